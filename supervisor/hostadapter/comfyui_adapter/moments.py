"""The moments at which the host's memory may be touched: on the executor's thread, between nodes or while nothing runs.

ComfyUI has no callback for them. Before each node it calls `nodes.before_node_execution`; around each prompt there is
`PromptExecutor.execute_async`; and while nothing runs, its loop asks the queue for flags: a flag of our own wakes it.

| module | name | when it is missing |
| --- | --- | --- |
| nodes | before_node_execution | what is asked of a host waits for the end of its prompt |
| execution | PromptQueue.get_flags, set_flag | what is asked of an idle host waits for its next prompt |
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections import deque
from typing import Any, Callable

FLAG = "comfy_supervisor"


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


class Moments:
    """Runs functions at the next moment, in their order."""

    def __init__(self, flags: Callable[[dict[str, Any]], None], reached: Callable[[], None]) -> None:
        """`flags` gets what the server asks of the loop (free_memory, unload_models), right before the loop does it;
        `reached` is called at every moment."""
        self._flags = flags
        self._reached = reached
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._queue: Any = None  # ComfyUI's
        self._thread = 0  # the executor's, once it has been seen
        self._hooked = False

    # ---- hooks ---------------------------------------------------------------------------------------------------

    def install(self, prompt_queue: Any) -> None:
        """Hooks the nodes and the queue, as far as they are there; more than once is once."""
        self._install_nodes()
        original = getattr(prompt_queue, "get_flags", None)
        if original is None or self._queue is not None:
            return
        self._queue = prompt_queue

        @functools.wraps(original)
        def get_flags(*arguments: Any, **named: Any) -> Any:
            flags = original(*arguments, **named)
            if isinstance(flags, dict) and not named.get("reset", True) is False:
                flags.pop(FLAG, None)
                self._guarded(self._at_rest, flags)
            return flags

        prompt_queue.get_flags = get_flags

    def _install_nodes(self) -> None:
        module = sys.modules.get("nodes")
        original = _attribute("nodes", "before_node_execution")
        if original is None or self._hooked:
            return
        self._hooked = True

        @functools.wraps(original)
        def before_node_execution(*arguments: Any, **named: Any) -> Any:
            self._guarded(self.now)
            return original(*arguments, **named)

        module.before_node_execution = before_node_execution  # type: ignore[union-attr]

    # ---- from any thread -----------------------------------------------------------------------------------------

    def post(self, function: Callable[[], None]) -> None:
        """Has a function run at the next moment."""
        with self._lock:
            self._waiting.append(function)
        queue = self._queue
        if queue is not None:
            queue.set_flag(FLAG, True)

    def is_here(self) -> bool:
        """Whether this is the executor's thread."""
        return threading.get_ident() == self._thread

    # ---- on the executor's thread --------------------------------------------------------------------------------

    def now(self) -> None:
        """A moment: runs what waits."""
        self._thread = threading.get_ident()
        while True:
            with self._lock:
                function = self._waiting.popleft() if self._waiting else None
            if function is None:
                break
            self._guarded(function)
        self._reached()

    def _at_rest(self, flags: dict[str, Any]) -> None:
        self.now()
        if flags:
            self._flags(flags)

    @staticmethod
    def _guarded(function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            logging.exception("comfy-supervisor: ComfyUI goes on without something that was to be done for its memory")
