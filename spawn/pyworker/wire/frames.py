"""Frames: two big-endian lengths, a header (a JSON-RPC 2.0 message), and a body that Go never
decodes.

A stream carries them one after the other. Where a socket keeps the borders of what is written, a
packet is one or more whole frames, or a part of one larger frame: so nobody who comes or goes
between two packets leaves half of a frame behind. Parts but the first begin with a prefix whose
header length is zero, which no frame has, and whose body length is the part's.
"""

from __future__ import annotations

import struct

from .errors import ProtocolError

MAX_HEADER_BYTES = 256 << 10
MAX_FRAME_BYTES = 1 << 20  # header and body together
PREFIX_BYTES = 8
PACKET_BYTES = 64 << 10  # the largest packet

_PREFIX = struct.Struct(">II")


def check_size(header: int, body: int) -> None:
    """Raises ProtocolError for lengths in bytes beyond the protocol's limits."""
    if not header:
        raise ProtocolError("a frame without a header")
    if header > MAX_HEADER_BYTES or header + body > MAX_FRAME_BYTES:
        raise ProtocolError(
            f"a frame of {header} bytes of header and {body} of body; at most {MAX_HEADER_BYTES}"
            f" and together {MAX_FRAME_BYTES} are allowed"
        )


def pack(header: bytes, body: bytes = b"") -> bytes:
    """The stream form of a frame."""
    check_size(len(header), len(body))
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def further_part(data: bytes, start: int) -> bytes:
    """The packet that follows when the bytes of a frame before `start` have been sent."""
    part = data[start : start + PACKET_BYTES - PREFIX_BYTES]
    return _PREFIX.pack(0, len(part)) + part


class FrameBuffer:
    """Turns the chunks of a byte stream into frames.

    An exception from outside (Ctrl-C) may strike anywhere: every change is one operation, and a
    frame stays until it is dropped. `chunks` is filled from outside, so that one C call can receive
    and store.
    """

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self._need = PREFIX_BYTES  # the size from which looking makes sense

    def peek(self) -> tuple[bytes, bytes, int] | None:
        """The first whole frame as (header, body, its size), or None when more bytes are needed.

        Raises ProtocolError for sizes beyond the limits.
        """
        chunks = self.chunks
        if len(chunks) > 1:
            if sum(map(len, chunks)) < self._need:
                return None
            chunks[:] = (b"".join(chunks),)
        elif not chunks:
            return None
        data = chunks[0]
        if len(data) < PREFIX_BYTES:
            self._need = PREFIX_BYTES
            return None
        header_bytes, body_bytes = _PREFIX.unpack_from(data)
        check_size(header_bytes, body_bytes)
        middle = PREFIX_BYTES + header_bytes
        end = middle + body_bytes
        if end > len(data):
            self._need = end
            return None
        return data[PREFIX_BYTES:middle], data[middle:end], end

    def drop(self, size: int) -> None:
        """Removes the frame that `peek` returned."""
        self._need = PREFIX_BYTES
        data = self.chunks[0]
        if len(data) == size:
            del self.chunks[0]
        else:
            self.chunks[0] = data[size:]

    @property
    def missing(self) -> int:
        """The bytes still missing of the frame that has begun; a size to receive next."""
        return max(0, self._need - sum(map(len, self.chunks)))


class PacketBuffer(FrameBuffer):
    """Turns packets into frames. What is left of a frame whose sender or first reader is gone is
    dropped.
    """

    def peek(self) -> tuple[bytes, bytes, int] | None:
        """As FrameBuffer's; the packets in `chunks` begin with a frame or go on with one."""
        chunks = self.chunks
        while chunks and chunks[0][:4] == b"\0\0\0\0":
            del chunks[0]  # goes on with a frame whose beginning went to somebody else
        if len(chunks) > 1:
            missing = self._need - sum(map(len, chunks[:-1])) + PREFIX_BYTES * (len(chunks) - 2)
            last = chunks[-1]
            if last[:4] != b"\0\0\0\0" and last:
                chunks[:] = (last,)  # whoever sent the rest of the other frame is gone
            elif len(last) - PREFIX_BYTES < missing:
                return None
            else:
                rest = (chunk[PREFIX_BYTES:] for chunk in chunks[1:])
                chunks[:] = (b"".join((chunks[0], *rest)),)
        return super().peek()

    @property
    def missing(self) -> int:
        """A packet is received whole."""
        return PACKET_BYTES
