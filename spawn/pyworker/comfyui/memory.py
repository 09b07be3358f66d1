"""A worker's part in sharing cards and RAM: what it reports, asks for and lets go of.

Memory is touched on the main thread alone, between calls, while it is idle, or while a load waits for its lease; never in
another callback. Until a pack imports ComfyUI's memory management nothing happens here, not even the import of the modules
that do it; assignments are kept for it.

    memory.assign    request        values for ComfyUI's knobs (assignments)
    memory.release   request        lets go of something (ladder)
    memory.prompt    notification   a prompt of the host begins or ends (boundary)
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ..wire.errors import ChannelGone, error_object

if TYPE_CHECKING:
    from ..calls import Call
    from ..worker import Worker
    from .assignments import Assignments
    from .boundary import Boundary
    from .census import Census
    from .ladder import Ladder
    from .leases import Leases
    from .pager import Pager

_SHARE = 1000.0  # reports take at most a thousandth of the main thread's time
_LONGEST_PAUSE = 10.0  # seconds, for machines that are slow with one


class Memory:
    """Made when a worker loads its pack; `arrived` brings it to life."""

    requests = frozenset(("memory.assign", "memory.release"))

    def __init__(self, worker: Worker, pager: Pager, params: dict[str, Any]) -> None:
        """`params` are the `memory` of the load request: `lease_wait_ms`, and `assign` for what counts from the start."""
        self._worker = worker
        self._pager = pager
        self._wait = params.get("lease_wait_ms")
        self._assigned: dict[str, Any] = {}  # before there is anything to assign it to
        self._arrived = False  # the rest is there
        self.assignments: Assignments
        self.leases: Leases
        self.census: Census
        self._boundary: Boundary
        self._ladder: Ladder
        self._lock = threading.Lock()
        self._due: deque[Callable[[], None]] = deque()  # what waits for the main thread's next moment
        self._owed = False  # something may have changed that was not reported
        self._next = 0.0  # when the next report may be made
        assigned = params.get("assign")
        if isinstance(assigned, dict):
            self._assigned.update(assigned)

    def arrived(self, management: Any) -> None:
        """The post-import hook of comfy.model_management."""
        from .assignments import Assignments
        from .boundary import Boundary
        from .census import Census
        from .ladder import Ladder
        from .leases import WAIT_SECONDS, Leases

        worker, wait = self._worker, self._wait
        self.census = Census(management)
        self._boundary = Boundary(management)
        self._ladder = Ladder(management, self.census, self._nodes, worker.role.held)
        self.assignments = Assignments(self._pager, _seed())
        self.assignments.arrived(management, self.census.names.of)
        self.assignments.take(self._assigned)
        seconds = wait / 1000 if isinstance(wait, (int, float)) and wait > 0 else WAIT_SECONDS
        self.leases = Leases(worker, self.assignments, seconds)
        self.leases.on_left = self._queue
        self.leases.arrived(management, self.census)
        self._owed = self._arrived = True

    def pager_started(self) -> None:
        """The pager's outcome is known."""
        if self._arrived:
            self.assignments.pager_started()

    def _nodes(self) -> Iterator[Any]:
        yield from self._worker.calls.objects()

    # ---- from the thread that reads ------------------------------------------------------------------------------

    def post(self, message: dict[str, Any]) -> None:
        """Takes a request; it is served at the main thread's next moment."""
        params = message.get("params")
        given: dict[str, Any] = params if isinstance(params, dict) else {}
        if message["method"] == "memory.assign":
            self._queue(lambda: self._reply(message["id"], lambda: self._assign(given)))
            return

        def serve() -> None:
            self._reply(message["id"], lambda: self._release(given))

        if self._arrived and given.get("kind") == "partial_release" and self.leases.post_meanwhile(serve):
            return
        self._queue(serve)

    def prompt(self, params: dict[str, Any]) -> None:
        """Takes note of a prompt's begin or end."""
        self._queue(lambda: self._prompt(params))

    def cancelled(self) -> None:
        """A call was cancelled: it may be the one whose load waits."""
        if self._arrived:
            self.leases.wake()

    def answer(self) -> dict[str, Any]:
        """What the answer to a census has of this."""
        if not self._arrived:
            return {"census": None, "own": [], "leases": []}
        self.leases.ask_again()
        return {"census": self.census.last, "own": self.census.own(), "leases": self.leases.describe()}

    def _queue(self, item: Callable[[], None]) -> None:
        with self._lock:
            self._due.append(item)
        self._worker.main.post(self.between)

    # ---- around calls, on the main thread ------------------------------------------------------------------------

    def before(self, call: Call, inputs: Any) -> None:
        """Right before a node's code."""
        if self._arrived:
            self._boundary.call_begins(call.context.get("prompt_id"), inputs)

    def after(self, call: Call, result: Any) -> None:
        """Right after it, before the answer goes out; `result` is None for a call that failed."""
        if not self._arrived:
            return
        if not self._worker.main.computing(but=call):
            self._boundary.call_ended(result)
        self.leases.call_ended(call.request)
        self._owed = True
        if self.leases.loaded:  # a load takes far longer than a report
            self.leases.loaded, self._next = False, 0.0
        self.report_if_due()

    def between(self) -> None:
        """Serves what waits, unless a node computes."""
        while self._due and not self._worker.main.computing():
            with self._lock:
                item = self._due.popleft()
            item()

    def patience(self) -> float | None:
        """Seconds until something has to be reported though nothing arrives; None for never."""
        return max(0.0, self._next - time.monotonic()) if self._owed and self._arrived else None

    def changed(self) -> None:
        """Something outside of calls may have let go of models."""
        self._owed = self._arrived

    # ---- reports -------------------------------------------------------------------------------------------------

    def report_if_due(self) -> None:
        """Reports what has moved, as long as reports take no time worth mentioning."""
        if not self._arrived or not self._owed or time.monotonic() < self._next:
            return
        from .census import moved

        self._owed = False
        begin = time.monotonic()
        try:
            report = self.census.read()
            if moved(self.census.last, report):
                self._send(report)
        except Exception:  # a patcher of another kind in ComfyUI's list, say
            logging.debug("what this worker holds could not be counted", exc_info=True)
        end = time.monotonic()
        self._next = end + min((end - begin) * _SHARE, _LONGEST_PAUSE)

    def _send(self, report: dict[str, Any]) -> None:
        self.census.last = report
        try:
            self._worker.channel.notify("memory.census", report)
        except ChannelGone:
            pass  # nobody counts any more

    def _fresh(self) -> dict[str, Any]:
        """A report that counts from now on, to go with a receipt."""
        report = self.census.last = self.census.read()
        self._owed = False
        return report

    # ---- requests, on the main thread ----------------------------------------------------------------------------

    def _reply(self, request: int, serve: Callable[[], dict[str, Any]]) -> None:
        channel = self._worker.channel
        try:
            try:
                channel.reply(request, serve())
            except ChannelGone:
                raise
            except Exception as error:
                channel.reply_error(request, error_object("internal", f"{type(error).__name__}: {error}"))
        except ChannelGone:
            pass  # nobody waits for it

    def _assign(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._arrived:
            return self.assignments.take(params)
        self._assigned.update(params)
        return {"applied": {}, "missing": [], "pending": True}

    def _release(self, params: dict[str, Any]) -> dict[str, Any]:
        if not self._arrived:  # nothing of ComfyUI is loaded, so nothing is held through it
            return {"kind": str(params.get("kind")), "freed": {}, "pins_freed": 0, "census": None, "steps": [], "stuck": 0}
        receipt = self._ladder.release(params, self.leases.keeping())
        receipt["census"] = self._fresh()
        return receipt

    def _prompt(self, params: dict[str, Any]) -> None:
        begins = params.get("state") == "begin"
        headroom = params.get("ram_headroom") if begins else 0
        if isinstance(headroom, (int, float)):
            self._assign({"ram_headroom": headroom})
        if not begins and self._arrived:
            self._boundary.prompt_ended(params.get("prompt_id"))
            self._owed = True
            self.report_if_due()


def _seed() -> int | None:
    """What the pager was started with, in bytes."""
    try:
        return int(os.environ.get("COMFY_ENV_AIMDO_SIMPLE_HEADROOM", ""))
    except ValueError:
        return None
