"""What carries frames; on Unix a connected socket, for a stream or for packets (see frames)."""

from __future__ import annotations

import socket
import struct
from typing import Protocol

from .frames import PACKET_BYTES


class Transport(Protocol):
    """What a channel needs of a socket."""

    pollable: bool
    packet_bytes: int  # the largest packet where borders are kept; 0 for a stream

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes | memoryview, /) -> int: ...
    def fileno(self) -> int: ...
    def peer_pid(self) -> int: ...
    def shutdown(self) -> None: ...
    def close(self) -> None: ...


class SocketTransport:
    """A socket, owned."""

    pollable = True

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        packets = getattr(socket, "SOCK_SEQPACKET", None)
        self.packet_bytes = PACKET_BYTES if connection.type == packets else 0
        self._socket = connection
        self.recv = connection.recv
        self.send = connection.send
        self.fileno = connection.fileno
        self.close = connection.close

    def peer_pid(self) -> int:
        """The process at the other end as the kernel names it here: 0 for one in another PID
        namespace, -1 unknown.
        """
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            return -1
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
        return struct.unpack("3i", credentials)[0]

    def shutdown(self) -> None:
        """Ends both directions; a `recv` in progress returns."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # ended already
