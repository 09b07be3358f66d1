"""The memory files a process has made: reserved, filled, lent, taken back, used again."""

from __future__ import annotations

import mmap
import os
import threading
from typing import Any, Callable

from . import files
from .errors import CannotCross
from .files import FileReference

_SMALLEST = 64 << 10  # bytes of a file; smaller ones would cost more in descriptors than they save


class OwnedFile:
    """One memory file of ours, mapped shared so that it can be filled again without page faults."""

    __slots__ = ("id", "descriptor", "path", "size", "inode", "mapping")

    def __init__(self, name: str, size: int, folder: str = "") -> None:
        """Allocates `size` bytes. Raises CannotCross where there is no room."""
        self.id = ""
        self.size = size
        self.descriptor, self.path = files.create(name, size, folder)
        try:
            self.inode = os.fstat(self.descriptor).st_ino
            self.mapping: mmap.mmap = files.map_shared(self.descriptor, size)
        except (OSError, ValueError) as error:
            files.discard(self.descriptor, self.path)
            raise CannotCross(f"mapping a memory file of {size} bytes: {error}", "quota") from error

    def reference(self) -> FileReference:
        """The file as a message names it."""
        place = (
            {"path": self.path, "fd": -1}
            if self.path
            else {"pid": os.getpid(), "fd": self.descriptor}
        )
        return {"id": self.id, **place, "inode": self.inode, "size": self.size}

    def destroy(self) -> None:
        """Gives the memory back to the system."""
        try:
            self.mapping.close()
        except BufferError:
            pass  # somebody of this process still looks at it; it goes with the last view
        files.discard(self.descriptor, self.path)


class Pool:
    """Files of one process. `owner` begins their ids; an id names one content and is never used
    twice.
    """

    def __init__(
        self,
        owner: str,
        reserve: Callable[[int, Callable[[], int]], None],
        give_back: Callable[[int], None],
    ) -> None:
        """`reserve` asks for bytes before a file is made, beside those that the function it gets
        returns, and may raise CannotCross; `give_back` must not block.
        """
        self._owner = owner
        self._reserve = reserve
        self._give_back = give_back
        self._lock = threading.Lock()
        self._next = 0
        self._free: list[OwnedFile] = []
        self._lent: dict[str, OwnedFile] = {}
        self._filling = 0  # bytes taken and not lent yet
        self.booked = 0  # bytes of all files, and of the one that is being asked for
        self._booking = threading.Lock()  # one asks at a time
        self._folder = ""
        self.free_limit = 512 << 20  # bytes kept for use again

    def configure(self, rules: Any) -> None:
        """Takes over the supervisor's rules: pool_bytes to keep at most, and the folder where files
        have names.
        """
        if isinstance(rules, dict):
            if isinstance(rules.get("pool_bytes"), int):
                self.free_limit = rules["pool_bytes"]
            folder = rules.get("folder")
            if isinstance(folder, str) and folder and not files.ANONYMOUS:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                self._folder = folder

    def take(self, size: int) -> OwnedFile:
        """A file of at least `size` bytes to fill. Raises CannotCross (kind quota)."""
        size = _rounded(size)
        file = self._take_free(size)
        if file is None:
            try:
                self._book(size)
            except CannotCross:
                if not self._drop_free(0):
                    raise
                self._book(size)  # what lay unused has been given back first
            try:
                file = self._make(size)
            except BaseException:
                self._unbook(size)
                raise
        with self._lock:
            self._next += 1
            file.id = f"{self._owner}-{self._next}"
            self._filling += file.size
        return file

    def _make(self, size: int) -> OwnedFile:
        name = f"{self._owner}-{self._next}"
        try:
            return OwnedFile(name, size, self._folder)
        except CannotCross:
            if not self._drop_free(0):
                raise
            return OwnedFile(name, size, self._folder)  # in the room of what lay unused

    def _book(self, size: int) -> None:
        with self._booking:
            with self._lock:
                self.booked += size
            try:
                self._reserve(size, lambda: self.booked - size)
            except BaseException:
                with self._lock:
                    self.booked -= size
                raise

    def _unbook(self, size: int) -> None:
        self._give_back(size)
        with self._lock:
            self.booked -= size

    def _take_free(self, size: int) -> OwnedFile | None:
        with self._lock:
            fitting = [file for file in self._free if size <= file.size <= 2 * size]
            if not fitting:
                return None
            file = min(fitting, key=lambda file: file.size)
            self._free.remove(file)
            return file

    def lend(self, file: OwnedFile) -> None:
        """Marks a filled file as sent; to be called before the message goes out."""
        with self._lock:
            self._filling -= file.size
            self._lent[file.id] = file

    def put_back(self, file: OwnedFile) -> None:
        """Takes back a file that was not sent after all."""
        with self._lock:
            self._filling -= file.size
            self._free.append(file)
        self._drop_free(self.free_limit)

    def released(self, file_id: str, spoiled: bool = False) -> None:
        """Nobody refers to this content any more. Unknown ids are ignored.

        A spoiled file is not used again: a forked child of a receiver may still map it.
        """
        with self._lock:
            file = self._lent.pop(file_id, None)
            if file is None:
                return
            if not spoiled:
                self._free.append(file)
        if spoiled:
            self._destroy(file)
        self._drop_free(self.free_limit)

    def _drop_free(self, limit: int) -> int:
        dropped = []
        with self._lock:
            kept = sum(file.size for file in self._free)
            while self._free and kept > limit:
                file = self._free.pop(0)  # unused for longest
                kept -= file.size
                dropped.append(file)
        for file in dropped:
            self._destroy(file)
        return sum(file.size for file in dropped)

    def _destroy(self, file: OwnedFile) -> None:
        file.destroy()
        self._unbook(file.size)

    def lent(self) -> list[FileReference]:
        """The files that others may still map."""
        with self._lock:
            return [file.reference() for file in self._lent.values()]

    def sizes(self) -> dict[str, int]:
        """Bytes by state: free, lent, filling."""
        with self._lock:
            return {
                "free_bytes": sum(file.size for file in self._free),
                "lent_bytes": sum(file.size for file in self._lent.values()),
                "filling_bytes": self._filling,
            }


def _rounded(size: int) -> int:
    """Rounds up by an eighth at most, so that files of nearly one size are interchangeable."""
    size = max(size, _SMALLEST)
    step = max(files.PAGE, 1 << (size.bit_length() - 4))
    return -(-size // step) * step
