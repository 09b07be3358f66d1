"""Starting a worker: descriptors and streams first, then hello, then whatever the supervisor asks for."""

from __future__ import annotations

import os
import signal
import socket
import sys

from . import streams
from .wire.descriptors import move_high
from .wire.transport import SocketTransport
from .worker import Worker, finish


def main(arguments: list[str]) -> None:
    """Runs the worker on the connection that `--frames-fd N` names. Does not return."""
    if len(arguments) != 2 or arguments[0] != "--frames-fd" or not arguments[1].isdigit():
        sys.stderr.write("this program is started by comfy-supervisor, with --frames-fd and a number\n")
        raise SystemExit(2)
    connection = socket.socket(fileno=move_high(int(arguments[1])))
    streams.prepare()
    # Ctrl-C in a terminal is the host's business; the handler, unlike SIG_IGN, is not inherited by what a pack starts.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    worker_id = os.environ.get("COMFY_SUPERVISOR_WORKER") or os.urandom(16).hex()
    worker = Worker(SocketTransport(connection), worker_id)
    worker.run()
    finish(0)
