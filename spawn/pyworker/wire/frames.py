"""Frames: two big-endian lengths, a header (a JSON-RPC 2.0 message), and a body that Go never decodes."""

from __future__ import annotations

import struct
from collections import deque

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

    `chunks` is filled from outside, so that one C call can receive and store; `take` empties it.
    """

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0  # bytes in _parts
        self._at = 0  # where the next frame begins in the joined parts
        self._need = PREFIX_BYTES  # the size from which looking makes sense

    def take(self) -> tuple[bytes, bytes] | None:
        """The next whole frame as (header, body), or None when more bytes are needed."""
        while self.chunks:
            chunk = self.chunks.popleft()
            self._parts.append(chunk)
            self._size += len(chunk)
        if self._size < self._need:
            return None
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        data, at = self._parts[0], self._at
        header_bytes, body_bytes = _PREFIX.unpack_from(data, at)
        check_size(header_bytes, body_bytes)
        middle = at + PREFIX_BYTES + header_bytes
        end = middle + body_bytes
        if end > self._size:
            self._need = end
            return None
        frame = data[at + PREFIX_BYTES : middle], data[middle:end]
        if end == self._size:
            self._parts = []
            self._size = self._at = 0
            self._need = PREFIX_BYTES
        else:
            self._at = end
            self._need = end + PREFIX_BYTES
            if end > MAX_FRAME_BYTES:  # let go of what has been taken
                self._parts = [data[end:]]
                self._size -= end
                self._at = 0
                self._need = PREFIX_BYTES
        return frame

    @property
    def missing(self) -> int:
        """The bytes still missing of the frame that has begun; a size to receive next."""
        return max(0, self._need - self._size)

    @property
    def empty(self) -> bool:
        """True between two frames."""
        return self._size == self._at and not self.chunks
