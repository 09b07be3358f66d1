"""Starting a worker: descriptors and streams first, then hello, then whatever the supervisor asks
for.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from . import streams
from .wire.descriptors import move_high
from .wire.transport import SocketTransport, Transport
from .worker import Worker, finish


def main(arguments: list[str]) -> None:
    """Runs the worker on the connection that the arguments name. Does not return."""
    transport = _transport(arguments)
    if transport is None:
        sys.stderr.write(
            "this program is started by comfy-supervisor, with --frames-fd and a number\n"
        )
        raise SystemExit(2)
    streams.prepare()
    # Ctrl-C in a terminal is the host's business; the handler, unlike SIG_IGN, is not inherited by
    # what a pack starts.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    worker_id = os.environ.get("COMFY_SUPERVISOR_WORKER") or os.urandom(16).hex()
    worker = Worker(transport, worker_id)
    worker.run()
    finish(0)


def _transport(arguments: list[str]) -> Transport | None:
    """`--frames-fd N` is a socket, `--frames-handles R,W` are two pipes (Windows); None for
    anything else.
    """
    name, _, value = " ".join(arguments).partition(" ")
    if name == "--frames-fd" and value.isdigit():
        return SocketTransport(socket.socket(fileno=move_high(int(value))))
    reader, _, writer = value.partition(",")
    if name == "--frames-handles" and reader.isdigit() and writer.isdigit():
        from .wire.pipes import from_handles

        return from_handles(int(reader), int(writer))
    return None
