"""What the tests share: both ends of a channel in this process, and real worker processes."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from typing import Any, Callable

from comfy_supervisor_worker.wire import decode, values
from comfy_supervisor_worker.wire.channel import Channel, Message, Waiter
from comfy_supervisor_worker.wire.errors import CannotCross, RemoteError, error_object
from comfy_supervisor_worker.wire.memory import Memory
from comfy_supervisor_worker.wire.opaque import Handle, Opaque
from comfy_supervisor_worker.wire.transport import SocketTransport

PROGRAM = os.environ["COMFY_SUPERVISOR_TEST_PROGRAM"]  # the worker's program, laid out
PACKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packs")
LIMIT = 60.0  # seconds after which a test fails instead of waiting


def at_once(count: int, function: Callable[[int], object]) -> None:
    """Calls a function with 0, 1 ... in as many threads, and waits for them. Raises AssertionError for
    one that does not end.
    """
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a thread waits for ever"


class Recorder:
    """A handler that keeps what arrives and grants memory up to a quota."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.notifications: list[Message] = []
        self.requests: list[Message] = []
        self.strays: list[Message] = []
        self.arrived = threading.Condition()
        self.gone = threading.Event()
        self.quota = 8 << 30
        self.reserved = 0
        self.on_released: Any = None

    def on_request(self, message: Message, body: bytes) -> None:
        if message["method"] == "memory.reserve":
            size = message["params"]["bytes"]
            if self.reserved + size > self.quota:
                text = f"{size} bytes do not fit: {self.reserved} of {self.quota} are in use"
                self.channel.reply_error(message["id"], error_object("quota", text))
                return
            self.reserved += size
            self.channel.reply(message["id"], {})
            return
        self._keep(self.requests, message)

    def on_notification(self, message: Message, body: bytes) -> None:
        if message["method"] == "memory.return":
            self.reserved -= message["params"]["bytes"]
        if message["method"] == "memory.released" and self.on_released is not None:
            self.on_released(message["params"])
        self._keep(self.notifications, message)

    def on_stray(self, message: Message) -> None:
        self._keep(self.strays, message)

    def on_gone(self, error: Exception) -> None:
        self.gone.set()
        with self.arrived:
            self.arrived.notify_all()

    def _keep(self, place: list[Message], message: Message) -> None:
        with self.arrived:
            place.append(message)
            self.arrived.notify_all()

    def wait(self, condition: Any) -> None:
        """Waits until a condition over what has arrived holds."""
        with self.arrived:
            if not self.arrived.wait_for(condition, LIMIT):
                raise AssertionError(
                    f"did not arrive; there are {self.notifications} and {self.requests}"
                )

    def released(self) -> dict[str, int]:
        """The deliveries reported as released, by id."""
        counts: dict[str, int] = {}
        for message in list(self.notifications):
            if message["method"] == "memory.released":
                for file in message["params"]["files"]:
                    counts[file["id"]] = counts.get(file["id"], 0) + file["count"]
        return counts


class OpenRole:
    """A role for values that need none."""

    devices = False

    def encode_other(self, value: Any, encoder: Any) -> dict[str, Any]:
        if type(value) is Handle:
            return {"h": value.fields()}
        raise CannotCross(f"no form for a {type(value).__name__}")

    def open_opaque(self, fields: dict[str, Any], data: bytes, arrays: list[Any], face: Any) -> Any:
        return Opaque(str(fields.get("t")), str(fields.get("e")), data, arrays)

    def open_coded(self, name: str, payload: Any) -> Any:
        raise CannotCross(f"no codec {name!r}")

    def open_handle(self, fields: dict[str, Any]) -> Any:
        return Handle(
            fields["id"],
            fields["type"],
            fields["environment"],
            fields["generation"],
            fields["worker"],
        )


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of what connects a worker: packets where there are such sockets."""
    if sys.platform == "linux":
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return socket.socketpair()


class Pair:
    """Two memories in this process, as two processes would have them, each with its supervisor."""

    def __init__(self) -> None:
        self._channels: list[Channel] = []
        self.left, self.left_supervisor = self._memory()
        self.right, self.right_supervisor = self._memory()
        self.role = OpenRole()
        self.last: values.Encoded | None = None

    def _memory(self) -> tuple[Memory, Recorder]:
        ours, theirs = socket.socketpair()
        supervisor = Recorder()
        supervisor.channel = Channel(SocketTransport(theirs), supervisor, "supervisor")
        channel = Channel(SocketTransport(ours), Recorder(), "process")
        memory = Memory(secrets.token_hex(16), lambda: channel)
        channel.set_chore(memory.notices)
        for each in (supervisor.channel, channel):
            each.start()
            self._channels.append(each)
        return memory, supervisor

    def send(self, value: Any, sender: Memory | None = None) -> Message:
        """The message and body, as two keys, of a value on its way."""
        self.last = encoded = values.encode(value, sender or self.left, self.role, "value")
        encoded.lend()
        return {**encoded.fields, "body": encoded.body}

    def receive(self, message: Message, receiver: Memory | None = None) -> Any:
        """What arrives."""
        return decode.decode(message, message["body"], receiver or self.right, self.role, "value")

    def cross(self, value: Any) -> Any:
        """Sends from left to right."""
        return self.receive(self.send(value))

    def back(self, value: Any) -> Any:
        """Sends from right to left."""
        return self.receive(self.send(value, self.right), self.left)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class WorkerProcess:
    """A real worker, spoken to as the supervisor does."""

    def __init__(self, python: str = sys.executable, environ: dict[str, str] | None = None) -> None:
        ours, theirs = packet_pair()
        # Without COMFY_SUPERVISOR_WORKER, the mark by which supervisors find and end workers that
        # nobody owns.
        variables = {**os.environ, **(environ or {})}
        variables.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [python, "-I", "-X", "utf8", PROGRAM, "--frames-fd", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self.output = b""
        self.may_fail = False  # silences what is said about a worker that fails
        self.said = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.supervisor = Recorder()
        self.channel = self.supervisor.channel = Channel(
            SocketTransport(ours), self.supervisor, "supervisor"
        )
        self._pair = Pair()  # its left side reserves at a supervisor of its own
        self.memory = self._pair.left
        self.role = OpenRole()
        self.channel.start()
        self.supervisor.wait(lambda: self.supervisor.notifications)
        self.id = self.supervisor.notifications[0]["params"]["worker"]

    def _read(self) -> None:
        while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
            with self.said:
                self.output += chunk
                self.said.notify_all()

    def wait_output(self, text: bytes) -> None:
        """Waits until the worker has written a text."""
        with self.said:
            if not self.said.wait_for(lambda: text in self.output, LIMIT):
                raise AssertionError(f"{text!r} was not written; {self.output!r} was")

    def load(self, name: str = "basic", **changes: Any) -> Message:
        """Loads a pack of the tests' folder; returns the result."""
        directory = os.path.join(PACKS, name)
        params = {
            "session": "s",
            "environment": name,
            "environment_root_id": f"{name}/1",
            "generation": 1,
            "worker": self.id,
            "pack": {
                "directory": directory,
                "nodes": os.path.join(directory, "nodes"),
                "name": name,
                "unique_name": f"comfy_supervisor_pack_{name}",
            },
            "comfyui": "",
            "memory": {"pool_bytes": 64 << 20},
            "options": {},
            **changes,
        }
        message, body = self.channel.request("load", params, timeout=LIMIT)
        if message["result"].get("nodes_in_body"):
            message["result"].update(decode.read_envelope(message, body, self.memory))
        return message["result"]

    def begin(
        self, node: str, inputs: dict[str, Any] | None = None, **params: Any
    ) -> tuple[int, Waiter]:
        """Sends a call."""
        encoded = values.encode(inputs or {}, self.memory, self.role, "inputs")
        waiter = Waiter()
        request = self.channel.begin(waiter)
        message = {
            "jsonrpc": "2.0",
            "id": request,
            "method": "call",
            "params": {"node": node, **params},
        }
        import json

        encoded.lend()
        self.channel.send(json.dumps({**message, **encoded.fields}).encode(), encoded.body)
        return request, waiter

    def finish(self, waiter: Waiter) -> Any:
        """Waits for a call's value. Raises RemoteError."""
        if not self.channel.wait(waiter, LIMIT):
            raise AssertionError("no reply")
        message, body = Channel.result(waiter)
        # As the supervisor does, files that have passed here before are known and not opened again:
        # the worker may have let go of its descriptor by now.
        known = {file["id"]: file for file in self.memory.pool.lent()}
        if "files" in message:
            message["files"] = [known.get(file["id"], file) for file in message["files"]]
        return decode.decode(message, body, self.memory, self.role, "result")

    def call(self, node: str, inputs: dict[str, Any] | None = None, **params: Any) -> Any:
        """Calls a node."""
        return self.finish(self.begin(node, inputs, **params)[1])

    def error(self, node: str, inputs: dict[str, Any] | None = None, **params: Any) -> RemoteError:
        """The error that a call ends with."""
        try:
            value = self.call(node, inputs, **params)
        except RemoteError as error:
            return error
        raise AssertionError(f"{node} returned {value!r}")

    def close(self) -> None:
        """Ends the process and waits for it."""
        self.channel.close()
        self._pair.close()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            status = self.process.wait()
            self._reading.join()
            if status and not self.may_fail:
                print(
                    f"the worker ended with {status} and said:",
                    self.output.decode(errors="replace"),
                    file=sys.stderr,
                )
            self.process.stdin.close()
            self.process.stdout.close()
