"""The side lane: a thread with its own event loop for what must not wait for a computing node."""

from __future__ import annotations

import threading
import traceback
from typing import Any, Awaitable, Callable

Job = Callable[[], "Awaitable[None] | None"]


class SideLane:
    """Started with the first job; jobs run in order, coroutines side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: Any = None
        self._tasks: set[Any] = set()

    def post(self, job: Job) -> None:
        """Runs a job on the lane's thread. From any thread."""
        self.loop().call_soon_threadsafe(self._run, job)

    def loop(self) -> Any:
        """The lane's event loop."""
        with self._lock:
            if self._loop is None:
                from .loops import new_loop

                self._loop = new_loop()
                threading.Thread(
                    target=self._serve, name="comfy-supervisor-side", daemon=True
                ).start()
            return self._loop

    def _serve(self) -> None:
        import asyncio

        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # SystemExit of a pack's code ends nothing here
                traceback.print_exc()

    def _run(self, job: Job) -> None:
        import asyncio

        try:
            result = job()
        except BaseException:
            traceback.print_exc()
            return
        if result is not None:
            task = asyncio.ensure_future(result, loop=self._loop)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
