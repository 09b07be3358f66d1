"""INPUT_TYPES of isolated nodes, answered from what the workers last said.

ComfyUI asks twice for each node of /object_info and many times for each prompt, on the web server's thread and on the
executor's. So answers come from here. A question from the web server's thread first has every awake worker asked once,
all at the same time and at most once a second, and waits a quarter of a second at most; what comes later counts for the
next question. A transport's failure is never an error here: the last answer stays.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Protocol

from comfy_supervisor import raising

from .shapes import Builder, copied

FRESH_SECONDS = 1.0  # one burst of questions, such as /object_info, is answered by one round of asking
WAIT_SECONDS = 0.25


class InputTypesError(Exception):
    """The inputs of a node are not known."""


class Answers(Protocol):
    """Gets the document of one environment; None when its worker did not answer. May be called on any thread."""

    def __call__(self, document: dict[str, Any] | None) -> None: ...


@dataclass
class _Entry:
    value: Any = None
    error: dict[str, Any] | None = None  # what the pack raised, described
    problem: str = ""


class InputCache:
    """The answers of all environments of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._askers: dict[str, Callable[[Answers], bool]] = {}
        self._asked = float("-inf")

    def add(self, environment: str, ask: Callable[[Answers], bool]) -> None:
        """Adds an environment. `ask(answers)` asks its worker without waiting; False when that is not awake."""
        with self._lock:
            self._askers[environment] = ask

    def take(self, environment: str, document: dict[str, Any]) -> None:
        """Takes over {"inputs": {node: {"value"} or {"error"}}, "tables": [..]}."""
        builder = Builder(document.get("tables", []), for_json=True)
        made = {}
        for node, described in document["inputs"].items():
            made[environment, node] = _entry(described, builder)
        with self._lock:
            self._entries.update(made)

    def get(self, environment: str, node: str, refresh: bool) -> Any:
        """A copy of a node's INPUT_TYPES. Raises what the pack raised, and InputTypesError when nothing is known."""
        if refresh:
            self.refresh()
        with self._lock:
            entry = self._entries.get((environment, node))
        if entry is None:
            raise InputTypesError(f"the inputs of {node} are not known: its pack could not be scanned")
        if entry.error is not None:
            raise raising.rebuild(entry.error, None, f"the worker of environment {environment!r}")
        if entry.problem:
            raise InputTypesError(entry.problem)
        return copied(entry.value)

    def peek(self, environment: str, node: str) -> Any:
        """The cached value itself, None when there is none; not to be changed."""
        with self._lock:
            entry = self._entries.get((environment, node))
        return None if entry is None else entry.value

    def refresh(self) -> None:
        """Asks all awake workers, unless that was done a moment ago, and waits a little for their answers."""
        with self._lock:
            now = self._clock()
            if now - self._asked < FRESH_SECONDS:
                return
            self._asked = now
            askers = list(self._askers.items())
        waiting = _Countdown()
        for environment, ask in askers:
            waiting.up()
            if not ask(self._answers(environment, waiting)):
                waiting.down()
        waiting.wait(WAIT_SECONDS)

    def _answers(self, environment: str, waiting: _Countdown) -> Answers:
        def answered(document: dict[str, Any] | None) -> None:
            try:
                if document is not None:
                    self.take(environment, document)
            finally:
                waiting.down()

        return answered


class _Countdown:
    """Waits until as many things have happened as were announced."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._left = 0

    def up(self) -> None:
        with self._condition:
            self._left += 1

    def down(self) -> None:
        with self._condition:
            self._left -= 1
            if self._left <= 0:
                self._condition.notify_all()

    def wait(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._left <= 0, seconds)


def _entry(described: dict[str, Any], builder: Builder) -> _Entry:
    error = described.get("error")
    if error is not None:
        return _Entry(error=error)
    try:
        return _Entry(value=builder.build(described["value"]))
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        return _Entry(problem=f"its INPUT_TYPES could not be read: {problem}")
