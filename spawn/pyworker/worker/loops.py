"""Event loops whose own descriptors are out of the way of packs that close all they can find."""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
from typing import Any

from .wire.descriptors import move_high


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, not yet set as anybody's."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    return _Loop(selectors.PollSelector())  # a poll needs no descriptor of its own


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose wake-up sockets have high numbers, and that says it runs while a synchronous
    node does.
    """

    # a synchronous node's code runs, which ComfyUI's executor would run from inside its loop
    in_node = False

    def is_running(self) -> bool:
        """Whether the loop runs, as far as a node can see."""
        return self.in_node or super().is_running()

    _ssock: Any
    _csock: Any

    def _make_self_pipe(self) -> None:
        super()._make_self_pipe()  # type: ignore[misc]
        self._remove_reader(self._ssock.fileno())  # type: ignore[attr-defined]
        for name in ("_ssock", "_csock"):
            moved = socket.socket(fileno=move_high(getattr(self, name).detach()))
            moved.setblocking(False)
            setattr(self, name, moved)
        self._add_reader(self._ssock.fileno(), self._read_from_self)  # type: ignore[attr-defined]
