"""Deciding how the bytes of a message's arrays travel: inline, in a file of their own, together, or
by reference.

Arrays whose addresses overlap share memory, so they travel as one segment and share it on the other
side as well.
"""

from __future__ import annotations

from typing import Any

from . import arrays
from .arrays import Source
from .errors import CannotCross
from .files import FileReference
from .memory import Memory
from .pool import OwnedFile

INLINE_BYTES = 64 << 10  # a storage up to this size travels in the frame
INLINE_TOTAL_BYTES = 512 << 10  # all of them in one frame
LARGE_BYTES = 1 << 20  # from this size on a storage has a file of its own
_ALIGNMENT = 64
_MOST_REFERENCES = 500  # files of one message, so that its header stays within limits
_WORTH_COPYING = 64 << 10  # bytes; copying a small part lets go of the large file it lies in


class Segment:
    """Addresses that travel together, and the arrays in them."""

    __slots__ = ("low", "high", "sources", "packed")

    def __init__(self, source: Source) -> None:
        self.low = source.low
        self.high = source.high
        self.sources = [source]
        self.packed = False  # the elements alone are copied

    @property
    def base(self) -> int:
        """The address that the storage begins at: aligned where arrays of several element sizes may
        lie in it.
        """
        return self.low if len(self.sources) == 1 else self.low - self.low % _ALIGNMENT

    @property
    def size(self) -> int:
        """Bytes to copy, the alignment included."""
        return self.sources[0].used_bytes if self.packed else self.high - self.base

    def describe(self, index: int) -> None:
        """Tells the arrays which storage they lie in, and where."""
        for source in self.sources:
            source.tree["x"] = index
            source.tree["o"] = 0 if self.packed else source.first - self.base

    def write(self, target: memoryview) -> None:
        """Fills the storage's bytes."""
        if self.packed:
            arrays.copy_packed(self.sources[0], target)
            return
        pad = self.low - self.base
        target[:pad] = bytes(pad)
        arrays.copy_span(self.sources[0], self.low, self.high, target[pad:])


class Raw:
    """A long bytes object that travels like a storage."""

    __slots__ = ("data", "size")

    def __init__(self, data: Any) -> None:
        self.data = data
        self.size = len(data)

    def write(self, target: memoryview) -> None:
        """Fills the storage's bytes."""
        target[:] = self.data


def gather(sources: list[Source]) -> list[Segment]:
    """Groups arrays by overlapping addresses. Empty arrays are in no segment."""
    segments: list[Segment] = []
    for source in sorted(
        (source for source in sources if source.span), key=lambda source: source.low
    ):
        last = segments[-1] if segments else None
        if last is not None and source.low < last.high:
            last.sources.append(source)
            last.high = max(last.high, source.high)
        else:
            segments.append(Segment(source))
    return segments


class Layout:
    """Where each storage of one message goes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.storages: list[Any] = []  # as they cross
        self.files: list[FileReference] = []
        self.taken: list[OwnedFile] = []
        self.keep: list[Any] = []  # alive until the message has been sent
        self._by_reference: dict[str, int] = {}
        self._inline_total = 0
        self._inline: list[tuple[int, Any]] = []  # (index of storage, item)
        self._small: list[tuple[int, Any]] = []
        self._large: list[tuple[int, Any]] = []

    def add_raw(self, data: Any) -> int:
        """Adds a long bytes object; returns its storage's index."""
        return self.add(Raw(data))

    def add_arrays(self, sources: list[Source]) -> None:
        """Adds the arrays of the message."""
        for source in sources:
            source.tree["x"], source.tree["o"] = -1, 0  # right for the empty ones
        for segment in gather(sources):
            used = sum(source.used_bytes for source in segment.sources)
            single = len(segment.sources) == 1
            sparse = (
                single
                and 0 not in segment.sources[0].tree["t"]
                and used * 2 < segment.high - segment.low
            )
            if (
                used > _WORTH_COPYING
                and not (sparse and used < LARGE_BYTES)
                and self._refer(segment)
            ):
                continue
            segment.packed = sparse
            segment.describe(self.add(segment))

    def _refer(self, segment: Segment) -> bool:
        """Sends a segment by reference if it is an untouched part of a file that is mapped here."""
        found = self._memory.mappings.find(segment.base, segment.high)
        if found is None:
            return False
        received, address, mapping = found
        if not self._memory.pagemap.untouched(segment.low, segment.high):
            return False
        key = received.file["id"]
        index = self._by_reference.get(key)
        if index is None:
            if len(self.files) >= _MOST_REFERENCES:
                return False
            index = self._by_reference[key] = len(self.files)
            self.files.append(received.reference())
            self.keep.append(mapping)
        base = segment.base
        self.storages.append({"f": [index, base - address, segment.high - base]})
        segment.describe(len(self.storages) - 1)
        return True

    def add(self, item: Any) -> int:
        """Adds something that knows its size and writes itself; returns its storage's index."""
        index = len(self.storages)
        self.storages.append(None)
        size = item.size
        if size <= INLINE_BYTES and self._inline_total + size <= INLINE_TOTAL_BYTES:
            self._inline_total += size
            self._inline.append((index, item))
        elif size < LARGE_BYTES or len(self._large) + len(self.files) >= _MOST_REFERENCES:
            self._small.append((index, item))
        else:
            self._large.append((index, item))
        return index

    def write(self, blob: bytearray) -> None:
        """Copies everything that has to be copied: once. Raises CannotCross (kind quota)."""
        start = len(blob)
        blob.extend(bytes(self._inline_total))
        view = memoryview(blob)
        for index, item in self._inline:
            item.write(view[start : start + item.size])
            self.storages[index] = {"i": [start, item.size]}
            start += item.size
        if self._small:
            starts, end = [], 0
            for _, item in self._small:
                starts.append(end)
                end += -(-item.size // _ALIGNMENT) * _ALIGNMENT
            file, number = self._file(end)
            view = memoryview(file.mapping)
            for (index, item), start in zip(self._small, starts):
                item.write(view[start : start + item.size])
                self.storages[index] = {"f": [number, start, item.size]}
        for index, item in self._large:
            file, number = self._file(item.size)
            item.write(memoryview(file.mapping)[: item.size])
            self.storages[index] = {"f": [number, 0, item.size]}

    def _file(self, size: int) -> tuple[OwnedFile, int]:
        if size <= 0:
            raise CannotCross("a storage without bytes")
        file = self._memory.pool.take(size)
        self.taken.append(file)
        self.files.append(file.reference())
        return file, len(self.files) - 1

    def write_body(self, body: bytes) -> dict[str, int]:
        """Puts a body that fits into no frame into a file; returns the message's `body_file`."""
        file, number = self._file(len(body))
        file.mapping[: len(body)] = body
        return {"index": number, "offset": 0, "length": len(body)}

    def lend(self) -> None:
        """To be called right before the message is sent."""
        for file in self.taken:
            self._memory.pool.lend(file)

    def recall(self) -> None:
        """Takes the files back of a message that was about to be sent."""
        for file in self.taken:
            self._memory.pool.released(file.id)
        self.taken = []

    def withdraw(self) -> None:
        """Takes the files back of a message that is not sent."""
        for file in self.taken:
            self._memory.pool.put_back(file)
        self.taken = []
