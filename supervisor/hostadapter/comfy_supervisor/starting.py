"""Reaching a supervisor, and starting one when none listens."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from typing import Any

from . import locations
from .errors import SupervisorUnavailable

START_SECONDS = 30.0  # for the daemon to come up and adopt what lives
_LONGEST_ADDRESS = (
    107 if sys.platform == "linux" else 103
)  # bytes of a path in a Unix socket's address
_NOBODY_LISTENS = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK)

_started: list[subprocess.Popen[bytes]] = []  # daemons of ours, to be reaped when they end


def dial(path: str) -> Any:
    """A transport connected to the supervisor at a path. Raises OSError; see `nobody_listens`."""
    if sys.platform == "win32":
        from .wire.pipes import connect

        return connect(path)
    from .wire.transport import SocketTransport

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
            connection.connect(path)
        elif sys.platform == "linux":
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            finally:
                os.close(folder)
        else:
            raise SupervisorUnavailable(
                f"the socket path {path} is too long: set COMFY_SUPERVISOR_RUNTIME_DIR"
            )
    except BaseException:
        connection.close()
        raise
    return SocketTransport(connection)


def nobody_listens(error: OSError) -> bool:
    """Whether a failed `dial` means that no supervisor runs, not that it can not be used."""
    return error.errno in _NOBODY_LISTENS or isinstance(error, FileNotFoundError)


def start() -> bool:
    """Starts a supervisor that outlives this process, and returns when it accepts clients; False
    when another one is there already, which may not accept them yet.

    Raises SupervisorUnavailable.
    """
    for daemon in list(_started):
        if daemon.poll() is not None:
            _started.remove(daemon)
    binary = os.environ.get("COMFY_SUPERVISOR_BINARY")
    if not binary:
        raise SupervisorUnavailable(
            "no supervisor is running, and COMFY_SUPERVISOR_BINARY does not say which program to"
            " start",
            {
                "kind": "unavailable",
                "remedy": 'run `eval "$(comfy-supervisor env)"` first, or `comfy-supervisor serve`',
            },
        )
    log = os.path.join(locations.state_directory(), "supervisor.log")
    reader, writer = os.pipe()
    try:
        _started.append(_launch(binary, log, writer))
        os.close(writer)
        writer = -1
        line = _read_line(reader, log)
    except OSError as error:
        raise SupervisorUnavailable(f"starting the supervisor {binary}: {error}") from error
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if line.startswith("ready"):
        return True
    if line.startswith("error ") and "already running" not in line:
        raise SupervisorUnavailable(f"starting the supervisor {binary}: {line[len('error '):]}")
    if not line:
        raise SupervisorUnavailable(
            f"the supervisor {binary} ended before it was ready; its log is {log}"
        )
    return False


def _launch(binary: str, log: str, writer: int) -> subprocess.Popen[bytes]:
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": descriptor,
            "stderr": descriptor,
        }
        if sys.platform == "win32":
            import msvcrt

            handle = msvcrt.get_osfhandle(writer)
            os.set_handle_inheritable(handle, True)
            information = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
            return subprocess.Popen(
                [binary, "serve", "--ready-fd", str(handle)],
                startupinfo=information,
                creationflags=flags,
                close_fds=False,
                **options,
            )
        return subprocess.Popen(
            [binary, "serve", "--ready-fd", str(writer)],
            cwd="/",
            pass_fds=(writer,),
            start_new_session=True,
            **options,
        )
    finally:
        os.close(descriptor)


def _read_line(reader: int, log: str) -> str:
    """What the daemon says, within the time limit; "" if it ended without a word."""
    end = time.monotonic() + START_SECONDS
    said = b""
    while b"\n" not in said:
        if not _readable(reader, end - time.monotonic()):
            raise SupervisorUnavailable(
                f"the supervisor was not ready within {START_SECONDS:.0f} s; its log is {log}"
            )
        chunk = os.read(reader, 4096)
        if not chunk:
            break
        said += chunk
    return said.partition(b"\n")[0].decode("utf-8", "replace")


def _readable(descriptor: int, seconds: float) -> bool:
    if sys.platform == "win32":
        return True  # pipes can not be polled there: the read waits
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
