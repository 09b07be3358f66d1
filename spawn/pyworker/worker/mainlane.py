"""The main thread: synchronous node functions one at a time, asynchronous ones side by side.

While nothing asynchronous goes on, the thread reads frames itself and runs what arrives, without an
event loop in between; asyncio need not even be imported. A synchronous node that asks for the
running loop finds one all the same, as it does inside ComfyUI's executor. With asynchronous calls
the loop runs and the deputy reads, until no task is left.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable

from . import comfy
from .calls import Call
from .contract import is_coroutine_function
from .wire.channel import Waiter

if TYPE_CHECKING:
    from .worker import Worker


class MainLane:
    """The queue of the main thread and what it is doing."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiter = Waiter()
        self._lock = threading.Lock()  # orders cancels against the begin and end of calls
        self._calls: dict[int, Call] = {}  # queued or running, by request
        self._sync: Call | None = None  # the one whose code runs right now
        self._loop: Any = None
        self._loop_runs = False
        self._coroutines = 0  # calls whose task's end has not been seen
        self._in_sync = False

    # ---- from the thread that reads --------------------------------------------------------------

    def post_call(self, call: Call) -> None:
        """Queues a call."""
        with self._lock:
            self._calls[call.request] = call
        self.post(call)

    def post(self, item: Call | Callable[[], None]) -> None:
        """Queues a call, or a function to be run on the main thread."""
        self._worker.channel.post(self._waiter, item)
        if self._loop_runs:
            self._loop.call_soon_threadsafe(self._drain)

    def cancel(self, request: int) -> None:
        """Cancels a queued or running call; one that has ended is left alone."""
        with self._lock:
            call = self._calls.get(request)
            if call is None:
                return
            call.cancelled = True
            if call is self._sync:
                comfy.interrupt(True)
            elif call.task is not None:
                self._loop.call_soon_threadsafe(call.task.cancel)

    def only_call(self) -> Call | None:
        """The call that code without a call's context belongs to: the one that runs, where that is
        certain.
        """
        with self._lock:
            calls = [call for call in self._calls.values() if call.began]
        return self._sync or (calls[0] if len(calls) == 1 else None)

    def computing(self, but: Call | None = None) -> bool:
        """Whether the code of a node has begun and not ended, that of another call than `but`."""
        with self._lock:
            return any(call.began for call in self._calls.values() if call is not but)

    def state(self) -> dict[str, Any]:
        """What the lane is doing, for `ping`."""
        with self._lock:
            running = self._sync
            calls = list(self._calls.values())
        tasks = [call for call in calls if call.task is not None]
        running = running or (tasks[0] if tasks else None)
        current = None
        if running is not None:
            seconds = round(time.monotonic() - running.began, 3) if running.began else 0.0
            current = {"node": running.node, "seconds": seconds}
        return {"lane_busy": bool(calls), "depth": len(calls), "current": current}

    # ---- the main thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until the connection ends."""
        waiter, worker = self._waiter, self._worker
        channel = worker.channel
        while channel.gone is None:
            if not channel.wait(waiter, worker.patience()):
                self._guard(worker.idle)
                continue
            if not waiter.inbox:
                break
            self._serve(waiter.inbox.popleft())
            if self._loop is not None and self._loop_has_work():
                self._run_loop()

    def _serve(self, item: Call | Callable[[], None]) -> None:
        if not isinstance(item, Call):
            self._guard(item)
            return
        calls = self._worker.calls
        try:
            function = calls.function(item)
        except BaseException as error:
            calls.fail(item, error)
            return
        if is_coroutine_function(function):
            loop = self.loop()
            task = loop.create_task(calls.run_async(item, function))
            self._coroutines += 1
            with self._lock:
                item.task = task
                if item.cancelled:
                    task.cancel()
            task.add_done_callback(lambda _: self._async_done(item))
        elif self._loop_runs:
            calls.run(item, function)
            self._guard(self._worker.between_calls)
        else:
            self._run_sync(item, function)

    def _run_sync(self, call: Call, function: Any) -> None:
        """Outside the loop; the node still finds it running, once anybody has imported asyncio."""
        events = sys.modules.get("asyncio.events")
        self._in_sync = True
        if events is not None and hasattr(events, "_set_running_loop"):
            self._enter_loop(events)
        try:
            self._worker.calls.run(call, function)
        finally:
            self._in_sync = False
            if self._loop is not None:
                self._loop.in_node = False
            events = sys.modules.get("asyncio.events")
            if events is not None:
                events._set_running_loop(None)
            self.forget(call)
            self._guard(self._worker.between_calls)

    def _enter_loop(self, events: Any) -> None:
        loop = self.loop()
        loop.in_node = True
        events._set_running_loop(loop)

    def asyncio_arrived(self, module: Any) -> None:
        """The post-import hook of asyncio: a node that imports it in mid-call finds the loop
        running.
        """
        if self._in_sync and threading.current_thread() is threading.main_thread():
            self._enter_loop(module)

    def interrupts_arrived(self) -> None:
        """The post-import hook of ComfyUI's flag: a cancel that came before it is passed on now."""
        with self._lock:
            if self._sync is not None and self._sync.cancelled:
                comfy.interrupt(True)

    def begin_sync(self, call: Call) -> bool:
        """Right before a node's code: clears ComfyUI's flag. False if the call was cancelled."""
        with self._lock:
            if call.cancelled:
                return False
            comfy.interrupt(False)
            call.began = time.monotonic()
            self._sync = call
            return True

    def end_sync(self) -> None:
        """Right after it: a later cancel does not reach the flag any more."""
        with self._lock:
            self._sync = None

    def forget(self, call: Call) -> None:
        """Right before a call's answer goes out: from then on it counts for nothing, also while the
        next call keeps this thread from its own bookkeeping.
        """
        with self._lock:
            self._calls.pop(call.request, None)

    @staticmethod
    def _guard(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException:  # a pack's __del__, say
            traceback.print_exc()

    # ---- the loop --------------------------------------------------------------------------------

    def loop(self) -> Any:
        """The main thread's event loop, made when first needed."""
        if self._loop is None:
            import asyncio

            from .loops import new_loop

            self._loop = new_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def run_coroutine(self, coroutine: Any) -> Any:
        """Runs a coroutine to its end while the pack is being loaded."""
        return self.loop().run_until_complete(coroutine)

    def _loop_has_work(self) -> bool:
        # Private, but the same since asyncio began; where it is missing, the loop runs and looks
        # for itself.
        ready = getattr(self._loop, "_ready", None)
        return ready is None or bool(ready) or bool(getattr(self._loop, "_scheduled", None))

    def _run_loop(self) -> None:
        import asyncio

        channel, loop = self._worker.channel, self._loop
        self._loop_runs = True
        channel.read_in_background(True)
        try:
            loop.call_soon(self._drain)
            while channel.gone is None:
                try:
                    loop.run_forever()
                except OSError as error:  # a pack has closed its descriptors
                    self._give_up_loop(error)
                    break
                except (
                    BaseException
                ):  # SystemExit or KeyboardInterrupt of a task that a pack started
                    traceback.print_exc()
                if not self._coroutines and not asyncio.all_tasks(loop):
                    break
        finally:
            self._loop_runs = False
            channel.read_in_background(False)

    def _give_up_loop(self, error: OSError) -> None:
        """The loop can not be used any more: its calls end, and the next one gets another loop."""
        traceback.print_exc()
        with self._lock:
            lost = [call for call in self._calls.values() if call.task is not None]
        self._loop = None
        self._coroutines = 0
        for call in lost:
            self._worker.calls.fail(
                call, RuntimeError(f"the event loop broke down in mid-call: {error}")
            )

    def _drain(self) -> None:
        import asyncio

        inbox = self._waiter.inbox
        while inbox:
            self._serve(inbox.popleft())
        if not self._coroutines and not asyncio.all_tasks(self._loop):
            self._loop.stop()

    def _async_done(self, call: Call) -> None:
        self._coroutines -= 1
        self.forget(call)
        if call.task.cancelled():  # before its first step, so nothing has been answered
            self._worker.calls.reply_cancelled(call)
        self._guard(self._worker.between_calls)
        self._loop.call_soon(self._drain)

    def wake_loop(self) -> None:
        """Ends the loop when the connection is gone."""
        if self._loop_runs:
            self._loop.call_soon_threadsafe(self._loop.stop)
