"""What carries frames on Windows: two anonymous pipes for a worker, a named pipe for a host.

Neither can be polled, so a thread of the channel's own reads them (see Channel).
"""

from __future__ import annotations

import os
from typing import Any


class DescriptorTransport:
    """Two descriptors, one to read and one to write, owned."""

    pollable = False
    packet_bytes = 0

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._closed = False

    def recv(self, size: int, /) -> bytes:
        """Waits for bytes; b"" at the end."""
        return b"" if self._closed else os.read(self._reader, size)

    def send(self, data: Any, /) -> int:
        """Writes and returns how much."""
        return os.write(self._writer, data)

    def peer_pid(self) -> int:
        """Unknown."""
        return -1

    def fileno(self) -> int:
        """The reading end."""
        return self._reader

    def shutdown(self) -> None:
        """Closes the writing end, which tells the other side; a `recv` in progress ends when it
        closes its own.
        """
        if not self._closed:
            self._closed = True
            os.close(self._writer)

    def close(self) -> None:
        """Closes the reading end; nobody reads any more."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1


def from_handles(reader: int, writer: int) -> DescriptorTransport:
    """A transport over two handles that a launcher let this process inherit; what it starts does
    not inherit them.
    """
    import msvcrt

    for handle in (reader, writer):
        os.set_handle_inheritable(handle, False)  # type: ignore[attr-defined]
    return DescriptorTransport(
        msvcrt.open_osfhandle(reader, os.O_RDONLY),  # type: ignore[attr-defined]
        msvcrt.open_osfhandle(writer, os.O_WRONLY),  # type: ignore[attr-defined]
    )


_PREFIX = "\\\\.\\pipe\\"
_BUSY_MILLISECONDS = 5000
_ERROR_BROKEN_PIPE, _ERROR_PIPE_BUSY, _ERROR_OPERATION_ABORTED = 109, 231, 995


def pipe_name(socket: str) -> str:
    """The named pipe that stands for a socket path, as Go's api.PipeName."""
    if socket.startswith(_PREFIX):
        return socket
    import hashlib

    return _PREFIX + "comfy-supervisor-" + hashlib.sha256(socket.lower().encode()).hexdigest()[:16]


def _windows() -> Any:
    """The interpreter's own module for Windows' calls, which other systems do not have."""
    import _winapi

    return _winapi


def connect(socket: str) -> NamedPipeTransport:
    """Connects to the supervisor's pipe. Raises OSError; FileNotFoundError when nobody listens."""
    _winapi = _windows()

    name = pipe_name(socket)
    access = _winapi.GENERIC_READ | _winapi.GENERIC_WRITE
    while True:
        try:
            handle = _winapi.CreateFile(
                name,
                access,
                0,
                _winapi.NULL,
                _winapi.OPEN_EXISTING,
                _winapi.FILE_FLAG_OVERLAPPED,
                _winapi.NULL,
            )
            return NamedPipeTransport(handle)
        except OSError as error:
            if getattr(error, "winerror", 0) != _ERROR_PIPE_BUSY:
                raise
        _winapi.WaitNamedPipe(name, _BUSY_MILLISECONDS)


class NamedPipeTransport:
    """A named pipe in overlapped mode: with the plain one, a read that waits would hold up every
    write.
    """

    pollable = False
    packet_bytes = 0

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._reading: Any = None
        self._closed = False

    def peer_pid(self) -> int:
        """Unknown."""
        return -1

    def fileno(self) -> int:
        """There is none."""
        return -1

    def recv(self, size: int, /) -> bytes:
        """Waits for bytes; b"" at the end."""
        _winapi = _windows()

        try:
            overlapped, _ = _winapi.ReadFile(self._handle, size, overlapped=True)
            self._reading = overlapped
            if self._closed:
                overlapped.cancel()
            _winapi.WaitForSingleObject(overlapped.event, _winapi.INFINITE)
            overlapped.GetOverlappedResult(True)
            return bytes(overlapped.getbuffer())
        except OSError as error:
            if getattr(error, "winerror", 0) in (_ERROR_BROKEN_PIPE, _ERROR_OPERATION_ABORTED):
                return b""
            raise
        finally:
            self._reading = None

    def send(self, data: Any, /) -> int:
        """Writes and returns how much."""
        _winapi = _windows()

        overlapped, _ = _winapi.WriteFile(self._handle, bytes(data), overlapped=True)
        _winapi.WaitForSingleObject(overlapped.event, _winapi.INFINITE)
        written, _ = overlapped.GetOverlappedResult(True)
        return written

    def shutdown(self) -> None:
        """Ends a `recv` in progress and every later one."""
        self._closed = True
        reading = self._reading
        if reading is not None:
            try:
                reading.cancel()
            except OSError:
                pass  # it ended by itself

    def close(self) -> None:
        """Closes the pipe; nobody uses it any more."""
        _winapi = _windows()

        if self._handle:
            _winapi.CloseHandle(self._handle)
            self._handle = 0
