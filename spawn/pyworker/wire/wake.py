"""An event that a poll can wait for, and that a finalizer or a signal handler may set."""

from __future__ import annotations

import os
import threading
from typing import Callable

_ONE = (1).to_bytes(8, "little")


class Wake:
    """A descriptor that is readable once `set` was called, until `clear`."""

    def __init__(self, place: Callable[[int], int] | None = None) -> None:
        """`place` may move a descriptor elsewhere and returns its new number."""
        place = place or (lambda descriptor: descriptor)
        if hasattr(os, "eventfd"):
            self._reader = self._writer = place(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        else:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            os.set_blocking(writer, False)
            self._reader, self._writer = place(reader), place(writer)

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._reader

    def set(self) -> None:
        """Makes the descriptor readable. Takes no lock and never blocks or raises."""
        writer = self._writer
        if writer >= 0:
            try:
                os.write(writer, _ONE)
            except OSError:
                pass  # full: it is readable already; closed: nobody waits any more

    def clear(self) -> None:
        """Takes back every `set` so far."""
        try:
            while self._reader >= 0 and len(os.read(self._reader, 4096)) == 4096:
                pass
        except OSError:
            pass  # nothing was set

    def close(self) -> None:
        """Closes the descriptors; a later `set` does nothing."""
        reader, writer = self._reader, self._writer
        self._reader = self._writer = -1
        for descriptor in {reader, writer}:
            if descriptor >= 0:
                os.close(descriptor)


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
