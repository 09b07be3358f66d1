"""What carries frames on Unix: a connected stream socket."""

from __future__ import annotations

import socket


class SocketTransport:
    """A stream socket, owned."""

    pollable = True

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._socket = connection
        self.recv = connection.recv
        self.sendall = connection.sendall
        self.fileno = connection.fileno
        self.close = connection.close

    def shutdown(self) -> None:
        """Ends both directions; a `recv` in progress returns."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # ended already
