"""Writing frames, each whole, together with what else is due to be told."""

from __future__ import annotations

import threading
from typing import Callable, Protocol

from .errors import ChannelGone
from .frames import PREFIX_BYTES, further_part
from .transport import Transport


class Connection(Protocol):
    """What a writer needs of its connection."""

    @property
    def gone(self) -> ChannelGone | None: ...
    def while_alive(self, function: Callable[[], None]) -> None: ...
    def fail(self, error: ChannelGone) -> None: ...


class Writer:
    """Writes to a transport, for any thread."""

    def __init__(self, transport: Transport, connection: Connection) -> None:
        self.due = False  # the chore has something; set without a lock
        self.chore: Callable[[], list[bytes]] | None = None  # returns frames that are due
        self._transport = transport
        self._packet_bytes = transport.packet_bytes
        self._connection = connection
        self.lock = threading.Lock()  # whoever writes holds it
        self._left: list[bytes] = []  # of the chore: taken and not sent yet; under the lock

    def send(self, data: bytes) -> None:
        """Sends one packed frame, and what is due with it. Raises ChannelGone."""
        with self.lock:
            if self.due:
                data = self._with_chores(data)
            self._write(data)

    def flush(self) -> None:
        """Sends what is due."""
        with self.lock:
            if self.due and self._connection.gone is None:
                try:
                    data = self._with_chores(b"")
                    if data:
                        self._write(data)
                except ChannelGone:
                    pass  # pending requests have learnt of it

    def _with_chores(self, data: bytes) -> bytes:
        # What the chore tells is told once: never to a connection that has ended. Whoever replaces
        # that one takes stock after its end, and must find it then.
        self._connection.while_alive(self._take_chores)
        joined = b"".join((*self._left, data))
        if not self._packet_bytes or len(joined) <= self._packet_bytes:
            return joined
        left, self._left = self._left, []
        for chore in left:  # a large frame has packets of its own
            self._write(chore)
        return data

    def _take_chores(self) -> None:
        self.due = False
        if self.chore is not None:
            self._left.extend(self.chore())

    def _write(self, data: bytes) -> None:
        """Writes all or nothing, also when a signal handler raises (Ctrl-C)."""
        if (gone := self._connection.gone) is not None:
            raise gone
        sent: list[int] = []  # one C call sends and stores how much
        first = data[: self._packet_bytes] if self._packet_bytes else data
        try:
            sent.extend(map(self._transport.send, (first,)))
            if sent[0] < len(data):
                self._write_rest(data, sent)
            if self._left:
                self._left = []
        except OSError as error:
            gone = ChannelGone(f"the other side is gone: {error}")
            self._connection.fail(gone)
            raise gone from error
        except BaseException:
            if sent:
                try:
                    self._write_rest(data, sent)
                    self._left = []
                except BaseException:
                    self._connection.fail(ChannelGone("sending a frame was interrupted"))
            elif self._left:
                self.due = True
            raise

    def _write_rest(self, data: bytes, sent: list[int]) -> None:
        if self._packet_bytes:
            while (done := sum(sent) - PREFIX_BYTES * (len(sent) - 1)) < len(data):
                sent.extend(map(self._transport.send, (further_part(data, done),)))
            return
        view = memoryview(data)
        while (done := sum(sent)) < len(data):
            sent.extend(map(self._transport.send, (view[done:],)))
