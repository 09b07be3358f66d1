"""Frames: two big-endian lengths, a header (a JSON-RPC 2.0 message), and a body that Go never
decodes.
"""

from __future__ import annotations

import struct

from .errors import ProtocolError

MAX_HEADER_BYTES = 256 << 10
MAX_FRAME_BYTES = 1 << 20  # header and body together
PREFIX_BYTES = 8

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
