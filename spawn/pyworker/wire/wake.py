"""An event that a poll can wait for, and that a finalizer or a signal handler may set."""

from __future__ import annotations

import os
import threading
from typing import Callable

_ONE = (1).to_bytes(8, "little")


class _Descriptors:
    """A reading and a writing end, closed when nobody holds them any more.

    A `set` that has begun holds them: a number that it would still write to is never one that a
    close has set free, and that another file has by now.
    """

    def __init__(self, place: Callable[[int], int]) -> None:
        self.reader = self.writer = -1
        if hasattr(os, "eventfd"):
            self.reader = self.writer = place(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            os.set_blocking(writer, False)
            self.reader, self.writer = place(reader), place(writer)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for descriptor in {self.reader, self.writer}:
            if descriptor >= 0:
                close(descriptor)


class Wake:
    """A descriptor that is readable once `set` was called, until `clear`."""

    def __init__(self, place: Callable[[int], int] | None = None) -> None:
        """`place` may move a descriptor elsewhere and returns its new number."""
        self._held: _Descriptors | None = _Descriptors(place or (lambda descriptor: descriptor))

    def fileno(self) -> int:
        """The descriptor to poll for reading, -1 once it is closed."""
        held = self._held
        return -1 if held is None else held.reader

    def set(self) -> None:
        """Makes the descriptor readable. Takes no lock and never blocks or raises."""
        held = self._held
        if held is not None:
            try:
                os.write(held.writer, _ONE)
            except OSError:
                pass  # full: it is readable already

    def clear(self) -> None:
        """Takes back every `set` so far."""
        held = self._held
        try:
            while held is not None and len(os.read(held.reader, 4096)) == 4096:
                pass
        except OSError:
            pass  # nothing was set

    def close(self) -> None:
        """Lets the descriptors go, at the end of the calls under way; a later `set` does nothing."""
        self._held = None


class Bell:
    """The same for one thread that waits for nothing else, where descriptors can not be polled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def fileno(self) -> int:
        """There is none."""
        return -1

    def set(self) -> None:
        """Ends one `wait`, the present or the next. Takes no lock that others hold, and never
        blocks or raises.
        """
        try:
            self._lock.release()
        except RuntimeError:
            pass  # rung already

    def wait(self) -> None:
        """Waits for `set`."""
        self._lock.acquire()

    def clear(self) -> None:
        """`wait` clears."""

    def close(self) -> None:
        """Nothing is open."""
