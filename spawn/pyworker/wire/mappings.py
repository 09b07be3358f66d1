"""The memory files of others that this process maps: copy-on-write, counted, reported when the last
view is gone.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any, Callable

from . import files
from .errors import CannotCross
from .files import FileReference


class Received:
    """One content received, possibly several times."""

    __slots__ = ("file", "descriptor", "deliveries", "alive", "spoiled")

    def __init__(self, file: FileReference, descriptor: int) -> None:
        self.file = file
        self.descriptor = descriptor
        self.deliveries = 0  # messages that brought it
        self.alive = 0  # mappings that have not been reported dead
        self.spoiled = False  # a forked child may map it

    def reference(self) -> FileReference:
        """The file as our own messages name it."""
        file = self.file
        place = (
            {"path": file["path"], "fd": -1}
            if file.get("path")
            else {"pid": os.getpid(), "fd": self.descriptor}
        )
        return {"id": file["id"], **place, "inode": file.get("inode", 0), "size": file["size"]}


class _Reference(weakref.ref):
    """A weak reference to a mapping that knows which content and which addresses it was."""

    __slots__ = ("received", "address", "size")

    received: Received
    address: int
    size: int


class Delivery:
    """What one message brought of one file: a mapping of its own, so that writes into it touch no
    other delivery.

    The delivery counts as long as the mapping, or an array over it, lives.
    """

    __slots__ = ("mapping", "_reference", "_mappings")

    def __init__(self, mappings: Mappings, mapping: mmap.mmap, reference: _Reference) -> None:
        self.mapping = mapping
        self._mappings = mappings
        self._reference = reference

    def locate(self, address: int) -> None:
        """Says at which address the mapping begins: from then on arrays in it can be recognised."""
        self._mappings._locate(self._reference, address)


class Mappings:
    """All received files of this process."""

    def __init__(self, due: Callable[[], None]) -> None:
        """`due` is called by finalizers when `collect` has work; it must not lock or block."""
        self._due = due
        self._lock = threading.Lock()
        self._received: dict[str, Received] = {}
        self._references: set[_Reference] = set()
        self._dead: deque[_Reference] = deque()
        self._refused: list[dict[str, Any]] = []  # deliveries that could not be mapped
        self._addresses: list[int] = []  # sorted; parallel to _located
        self._located: list[_Reference] = []
        _mappings.add(self)

    def receive(self, references: list[FileReference]) -> list[Delivery]:
        """Maps the files of a message and counts each as delivered.

        Raises CannotCross when one can not be mapped; the message's deliveries are then reported as
        released.
        """
        deliveries, failure = [], None
        for file in references:
            try:
                deliveries.append(self._receive(file))
            except CannotCross as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return deliveries

    def _receive(self, file: FileReference) -> Delivery:
        if (
            not isinstance(file, dict)
            or not isinstance(file.get("id"), str)
            or type(file.get("size")) is not int
        ):
            raise CannotCross("a reference to a memory file without an id and a size")
        key = file["id"]
        with self._lock:
            received = self._received.get(key)
            try:
                if received is None:
                    received = self._received[key] = Received(file, files.open_reference(file))
                received.deliveries += 1
                mapping = files.map_private(received.descriptor, received.file["size"])
            except (CannotCross, OSError, ValueError) as error:
                if received is None:
                    self._refused.append({"id": key, "count": 1})
                    self._due()
                elif not received.alive:
                    self._refused.append(self._forget(received))
                    self._due()
                if isinstance(error, CannotCross):
                    raise
                raise CannotCross(f"mapping memory file {key!r}: {error}") from error
            reference = _Reference(mapping, self._died)
            reference.received = received
            reference.address = 0
            reference.size = received.file["size"]
            received.alive += 1
            self._references.add(reference)
        return Delivery(self, mapping, reference)

    def _forget(self, received: Received) -> dict[str, Any]:
        """Drops a content and returns its entry of `memory.released`."""
        entry: dict[str, Any] = {"id": received.file["id"], "count": received.deliveries}
        if received.spoiled:
            entry["spoiled"] = True
        del self._received[received.file["id"]]
        os.close(received.descriptor)
        return entry

    def _died(self, reference: _Reference) -> None:
        """The finalizer of a mapping."""
        self._dead.append(reference)
        self._due()

    def _locate(self, reference: _Reference, address: int) -> None:
        with self._lock:
            if not reference.address:
                reference.address = address
                at = bisect.bisect(self._addresses, address)
                self._addresses.insert(at, address)
                self._located.insert(at, reference)

    def find(self, low: int, high: int) -> tuple[Received, int, mmap.mmap] | None:
        """The content whose mapping covers the addresses [low, high): it, the mapping's address,
        and the mapping.

        The mapping is returned so that it lives on while the caller uses the answer.
        """
        with self._lock:
            at = bisect.bisect(self._addresses, low) - 1
            while (
                at >= 0 and self._addresses[at] <= low
            ):  # a dead one may precede a live one at the same address
                reference = self._located[at]
                mapping = reference()
                if mapping is not None:
                    if high <= reference.address + reference.size:
                        return reference.received, reference.address, mapping
                    return None
                at -= 1
        return None

    def collect(self) -> list[dict[str, Any]]:
        """The contents whose last view is gone since the last time, as entries of
        `memory.released`.
        """
        with self._lock:
            gone, self._refused = self._refused, []
            while self._dead:
                reference = self._dead.popleft()
                self._references.discard(reference)
                if reference.address:
                    at = bisect.bisect_left(self._addresses, reference.address)
                    while self._located[at] is not reference:
                        at += 1
                    del self._addresses[at], self._located[at]
                received = reference.received
                received.alive -= 1
                if not received.alive:
                    gone.append(self._forget(received))
        return gone

    def holds(self) -> list[dict[str, Any]]:
        """What this process still maps, as {id, count}."""
        with self._lock:
            return [
                {"id": key, "count": received.deliveries}
                for key, received in self._received.items()
            ]

    def mapped_bytes(self) -> int:
        """The size of all files that are mapped, each counted once."""
        with self._lock:
            return sum(received.file["size"] for received in self._received.values())

    def spoil(self) -> None:
        """The process forks: the child maps, uncounted, whatever is mapped now."""
        for received in list(self._received.values()):
            received.spoiled = True


_mappings: weakref.WeakSet[Mappings] = weakref.WeakSet()


def _before_fork() -> None:
    for mappings in list(_mappings):
        mappings.spoil()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
