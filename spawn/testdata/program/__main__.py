"""A worker program for the tests of spawn: speaks the frames, does what requests ask for. Standard library only."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

PACKET = 64 << 10


class Link:
    """Frames over the inherited descriptor: a stream, or packets."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._packets = self._socket.type == socket.SOCK_SEQPACKET
        self._lock = threading.Lock()

    def send(self, message: dict, body: bytes = b"") -> None:
        header = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_raw(struct.pack(">II", len(header), len(body)) + header + body)

    def send_raw(self, data: bytes) -> None:
        with self._lock:
            if not self._packets:
                self._socket.sendall(data)
                return
            self._socket.send(data[:PACKET])
            for start in range(PACKET, len(data), PACKET - 8):
                part = data[start : start + PACKET - 8]
                self._socket.send(struct.pack(">II", 0, len(part)) + part)

    def receive(self) -> tuple[dict, bytes]:
        if self._packets:
            data = bytearray()
            while True:
                packet = self._packet()
                if packet[:4] != bytes(4):
                    data = bytearray(packet)  # drops what is left of a frame whose sender is gone
                elif data:
                    data += packet[8:]
                if data:
                    header, body = struct.unpack(">II", data[:8])
                    if len(data) == 8 + header + body:
                        return json.loads(data[8 : 8 + header]), bytes(data[8 + header :])
        header, body = struct.unpack(">II", self._exactly(8))
        return json.loads(self._exactly(header)), self._exactly(body)

    def _packet(self) -> bytes:
        packet = self._socket.recv(2 * PACKET)
        if not packet:
            raise EOFError
        return packet

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


def grandchild(report: int, cleared: bool, ignore_term: bool, keep: bool) -> None:
    """Forks twice, into a session of its own; the PID goes to `report`. Never returns in the grandchild."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(report, b"%d\n" % os.getpid())
    if not keep:
        os.closerange(0, 64)
    if cleared:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    while True:
        time.sleep(600)


def stdout_flood(params: dict) -> None:
    stream = {"stdout": 1, "stderr": 2}[params.get("stream", "stdout")]
    chunk = params["text"].encode() * params.get("per_write", 1)
    for _ in range(params["writes"]):
        view = memoryview(chunk)
        while view:
            view = view[os.write(stream, view) :]


def fork_bomb(report: int) -> None:
    """A chain of processes, each in its own session, that fork as fast as they can for a while."""
    if os.fork():
        return
    end = time.monotonic() + 20
    while time.monotonic() < end:
        os.setsid() if os.getsid(0) != os.getpid() else None
        if os.fork():
            os._exit(0)
    os._exit(0)


def handle(link: Link, message: dict, body: bytes) -> None:
    method, params, request = message["method"], message.get("params") or {}, message.get("id")

    def reply(result: object, data: bytes = b"") -> None:
        if request:  # not a notification
            link.send({"id": request, "result": result}, data)

    if method == "echo":
        reply(params, body)
    elif method == "environ":
        reply(dict(os.environ))
    elif method == "facts":
        reply(
            {
                "pid": os.getpid(),
                "parent": os.getppid(),
                "group": os.getpgrp(),
                "session": os.getsid(0),
                "directory": os.getcwd(),
                "argv": sys.argv,
                "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
                "stdin": os.readlink("/proc/self/fd/0"),
                "sigpipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
            }
        )
    elif method == "grandchild":
        reader, writer = os.pipe()
        for _ in range(params.get("count", 1)):
            grandchild(
                writer,
                params.get("cleared", False),
                params.get("ignore_term", False),
                params.get("keep", False),
            )
        os.close(writer)
        with os.fdopen(reader) as report:
            reply({"pids": [int(report.readline()) for _ in range(params.get("count", 1))]})
    elif method == "fork_bomb":
        fork_bomb(1)
        reply({})
    elif method == "burn":
        reply({})
        libc = ctypes.PyDLL(None)  # keeps the interpreter lock: nothing else of Python runs
        libc.sleep(600)
    elif method == "spin":
        reply({})
        while True:
            pass
    elif method == "exit":
        sys.stderr.write(params.get("stderr", ""))
        sys.stderr.flush()
        if params.get("reply"):
            reply({"last": True})
        os._exit(params["code"])
    elif method == "signal":
        os.kill(os.getpid(), params["signal"])
    elif method == "ignore_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reply({})
    elif method == "ignore_shutdown":
        link.ignore_shutdown = True
        reply({})
    elif method == "print":
        os.write({"stdout": 1, "stderr": 2}[params.get("stream", "stdout")], params["text"].encode())
        reply({})
    elif method == "later":
        # Prints and sends a notification when nobody listens.
        def later() -> None:
            time.sleep(params["seconds"])
            os.write(1, params["text"].encode())
            link.send({"method": "later", "params": {}})

        threading.Thread(target=later, daemon=True).start()
        reply({})
    elif method == "flood":
        stdout_flood(params)
        reply({})
    elif method == "close_descriptors":
        os.closerange(0, 1000)
        reply({})
    elif method == "send_raw":
        link.send_raw(bytes.fromhex(params["hex"]))
    elif method == "sleep_unread":
        time.sleep(params["seconds"])
        reply({})
    elif method == "memfd":
        descriptor = os.memfd_create("test")
        os.write(descriptor, params["content"].encode())
        stat = os.fstat(descriptor)
        reply({"fd": descriptor, "inode": stat.st_ino, "size": stat.st_size})
    elif method == "shutdown":
        if getattr(link, "ignore_shutdown", False):
            return
        reply({})
        sys.exit(0)
    else:
        link.send({"id": request, "error": {"code": -32601, "message": method, "data": {"kind": "unknown_method"}}})


def main() -> None:
    descriptor = int(sys.argv[sys.argv.index("--frames-fd") + 1])
    if "--fail-early" in sys.argv:
        sys.stderr.write("first line\nthe last words\n")
        sys.exit(3)
    if "--print-at-start" in sys.argv:
        for number in range(20000):
            print("line", number)
        sys.stdout.flush()
    if "--no-hello" in sys.argv:
        time.sleep(600)
    import fcntl

    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 1000)
    os.close(descriptor)
    link = Link(high)
    os.register_at_fork(after_in_child=lambda: os.dup2(0, high))
    worker = os.environ["COMFY_SUPERVISOR_WORKER"]
    link.send({"method": "hello", "params": {"pid": os.getpid(), "worker": worker}})
    while True:
        try:
            message, body = link.receive()
        except EOFError:
            if "--linger" in sys.argv:
                time.sleep(600)
            return
        if "method" in message:
            handle(link, message, body)


if __name__ == "__main__":
    main()
