"""A supervisor for tests: one thread-safe object that passes messages between real clients and real
workers.

It does what a client or a worker can notice of the supervisor: sessions and tokens, calls and
cancels, requests for the caller, and the table of memory files, which it opens, rewrites, counts
and gives back to their owners.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import threading
from typing import Any

from comfy_supervisor.wire import PROTOCOL
from comfy_supervisor.wire.channel import Channel, Message, Waiter
from comfy_supervisor.wire.errors import ChannelGone, RemoteError, error_object
from comfy_supervisor.wire.process import start_time
from comfy_supervisor.wire.transport import SocketTransport


class Files:
    """The table of memory files on their way or mapped somewhere."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: dict[str, dict[str, Any]] = {}  # id -> {file, fd, owner, counts}
        self.reserved: dict[str, int] = {}
        self.quota = 4 << 30
        self.parties: dict[str, Party] = {}
        self.deliveries = 0

    def reserve(self, party: Party, size: int) -> bool:
        with self.lock:
            if sum(self.reserved.values()) + size > self.quota:
                return False
            self.reserved[party.owner] = self.reserved.get(party.owner, 0) + size
            return True

    def give_back(self, party: Party, size: int) -> None:
        with self.lock:
            self.reserved[party.owner] -= size
            assert self.reserved[party.owner] >= 0, "more given back than reserved"

    def pass_on(
        self, sender: Party, receiver: Party, files: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        rewritten = []
        with self.lock:
            for file in files:
                known = self.open.get(file["id"])
                if known is None:
                    descriptor = os.open(
                        f"/proc/{sender.pid}/fd/{file['fd']}", os.O_RDONLY | os.O_CLOEXEC
                    )
                    status = os.fstat(descriptor)
                    assert (status.st_ino, status.st_size) == (file["inode"], file["size"]), file
                    owner = file["id"].rpartition("-")[0]
                    known = {"file": file, "fd": descriptor, "owner": owner, "counts": {}}
                    self.open[file["id"]] = known
                counts = known["counts"]
                counts[receiver.owner] = counts.get(receiver.owner, 0) + 1
                self.deliveries += 1
                rewritten.append({**known["file"], "pid": os.getpid(), "fd": known["fd"]})
        return rewritten

    def released(self, party: Party, entries: list[dict[str, Any]]) -> None:
        with self.lock:
            freed = []
            for entry in entries:
                known = self.open.get(entry["id"])
                if known is None:
                    continue  # from before a reconnect
                left = known["counts"][party.owner] - entry["count"]
                assert left >= 0, f"{entry['id']} released more often than delivered"
                known["counts"][party.owner] = left
                if entry.get("spoiled"):
                    known["spoiled"] = True
                freed.extend(self._settle(entry["id"], known))
        self._tell(freed)

    def drop(self, party: Party) -> None:
        with self.lock:
            freed = []
            for key, known in list(self.open.items()):
                known["counts"].pop(party.owner, None)
                freed.extend(self._settle(key, known))
            self.reserved.pop(party.owner, None)
            self.parties.pop(party.owner, None)
        self._tell(freed)

    def adopt(self, party: Party, owned: list[dict[str, Any]]) -> None:
        with self.lock:
            unknown = [
                (party.owner, file["id"], False) for file in owned if file["id"] not in self.open
            ]
        self._tell(unknown)

    def _settle(self, key: str, known: dict[str, Any]) -> list[tuple[str, str, bool]]:
        if any(known["counts"].values()):
            return []
        os.close(known["fd"])
        del self.open[key]
        return [(known["owner"], key, known.get("spoiled", False))]

    def _tell(self, freed: list[tuple[str, str, bool]]) -> None:
        for owner, key, spoiled in freed:
            party = self.parties.get(owner)
            if party is not None:
                entry = {"id": key, "count": 0, **({"spoiled": True} if spoiled else {})}
                party.try_notify("memory.released", {"files": [entry]})


class Party:
    """One connection: a client's or a worker's."""

    def __init__(self, broker: Broker, connection: socket.socket, name: str) -> None:
        self.broker = broker
        self.owner = ""
        self.pid = 0
        self.calls: dict[int, tuple[Party, int]] = {}  # request here -> where it was sent on
        self.gone = threading.Event()
        self.cancelled: set[int] = set()
        self.channel = Channel(SocketTransport(connection), self, name)

    def try_notify(self, method: str, params: Any, **fields: Any) -> None:
        try:
            self.channel.notify(method, params, **fields)
        except ChannelGone:
            pass

    def on_stray(self, message: Message) -> None:
        pass

    def on_gone(self, error: ChannelGone) -> None:
        self.gone.set()
        self.broker.files.drop(self)

    def memory(self, message: Message) -> bool:
        """Serves the requests and notifications about memory files, which are the same on both
        sides.
        """
        files, params = self.broker.files, message.get("params")
        if message["method"] == "memory.reserve":
            if files.reserve(self, params["bytes"]):
                self.channel.reply(message["id"], {})
            else:
                text = f"{params['bytes']} bytes do not fit into the quota of {files.quota}"
                self.channel.reply_error(message["id"], error_object("quota", text))
        elif message["method"] == "memory.return":
            files.give_back(self, params["bytes"])
        elif message["method"] == "memory.released":
            files.released(self, params["files"])
        else:
            return False
        return True

    def forward(self, message: Message, body: bytes, receiver: Party, **changes: Any) -> int:
        """Sends a request on and its reply back; returns its id there."""
        fields = {key: message[key] for key in ("lane", "body_file", "call") if key in message}
        if "files" in message:
            fields["files"] = self.broker.files.pass_on(self, receiver, message["files"])
        fields.update(changes)

        def replied() -> None:
            reply = waiter.reply
            self.calls.pop(message["id"], None)
            if not isinstance(reply, tuple):
                text = f"the worker of the call ended: {reply}"
                self._answer(
                    message["id"],
                    {"error": error_object("worker_died", text, signal="SIGKILL")},
                    b"",
                )
                return
            answer, answer_body = reply
            back = {key: answer[key] for key in ("result", "error", "body_file") if key in answer}
            if "files" in answer:
                try:
                    back["files"] = self.broker.files.pass_on(receiver, self, answer["files"])
                except OSError as error:
                    back = {
                        "error": error_object(
                            "worker_died", f"it ended before its files were opened: {error}"
                        )
                    }
            self._answer(message["id"], back, answer_body)

        waiter = Waiter(replied)
        request = receiver.channel.begin(waiter)
        self.calls[message["id"]] = receiver, request
        receiver.reverse[request] = self, message["id"]
        header = {
            "jsonrpc": "2.0",
            "id": request,
            "method": message["method"],
            "params": message.get("params"),
        }
        receiver.channel.send(_encode({**header, **fields}), body)
        return request

    def _answer(self, request: int, fields: dict[str, Any], body: bytes) -> None:
        try:
            self.channel.send(_encode({"jsonrpc": "2.0", "id": request, **fields}), body)
        except ChannelGone:
            pass

    @property
    def reverse(self) -> dict[int, tuple[Party, int]]:
        """For each request sent to this party, whose it was."""
        return self.__dict__.setdefault("_reverse", {})


class Client(Party):
    """A host."""

    def on_request(self, message: Message, body: bytes) -> None:
        method = message["method"]
        if method == "hello":
            self.hello(message)
        elif method == "call":
            threading.Thread(target=self.call, args=(message, body), daemon=True).start()
        elif method in self.broker.unanswered:
            pass
        elif method == "handle.settle" and not self.broker.old:
            self.settle(message, body)
        elif (
            method == "ask"
        ):  # for tests: a request of the supervisor itself to the thread in a call
            self.channel.reply(message["id"], {})
        elif not self.memory(message):
            result = self.broker.serve(self, method, message.get("params") or {})
            if isinstance(result, RemoteError):
                self.channel.reply_error(
                    message["id"], {"code": -32000, "message": result.message, "data": result.data}
                )
            else:
                self.channel.reply(message["id"], result)

    def hello(self, message: Message) -> None:
        params = self.broker.last_hello = message["params"]
        self.owner, self.pid = params["owner"], params["pid"]
        if self.broker.refuse_hello:
            self.channel.reply_error(
                message["id"], error_object("bad_request", self.broker.refuse_hello)
            )
            return
        self.broker.files.parties[self.owner] = self
        token = params.get("token")
        if token not in self.broker.tokens:
            token = secrets.token_hex(8)
            self.broker.tokens.add(token)
        result = {
            "protocol": self.broker.protocol,
            "session": "s-" + token,
            "token": token,
            "supervisor": {
                "pid": os.getpid(),
                "start_time": start_time(os.getpid()),
                "version": "test",
            },
            "memory": {
                "quota_bytes": self.broker.files.quota,
                "pool_bytes": self.broker.pool_bytes,
            },
        }
        self.broker.files.adopt(self, params.get("owned") or [])
        self.channel.reply(message["id"], result)

    def settle(self, message: Message, body: bytes) -> None:
        worker = self.broker.workers.get(message["params"]["environment"])
        if worker is None:
            self.channel.reply(message["id"], {"awake": False})
        else:
            self.forward(message, body, worker)

    def call(self, message: Message, body: bytes) -> None:
        try:
            worker = self.broker.worker(message["params"]["environment"])
            request = self.forward(message, body, worker)
            if (
                message["id"] in self.cancelled
            ):  # it came before the call was sent on, or is sent twice
                worker.try_notify("cancel", {}, call=request)
        except RemoteError as error:
            text = {"code": -32000, "message": error.message, "data": error.data}
            self._answer(message["id"], {"error": text}, b"")
        except ChannelGone as error:
            self._answer(message["id"], {"error": error_object("worker_died", str(error))}, b"")

    def on_notification(self, message: Message, body: bytes) -> None:
        if message["method"] == "cancel":
            self.cancelled.add(message["call"])
            target = self.calls.get(message["call"])
            if target is not None:
                target[0].try_notify("cancel", {}, call=target[1])
        elif message["method"] in ("instance.drop", "handle.drop"):
            worker = self.broker.workers.get(message["params"]["environment"])
            if worker is not None:
                worker.try_notify(message["method"], message["params"])
        else:
            self.memory(message)


class Worker(Party):
    """A worker process and its connection."""

    def __init__(self, broker: Broker, environment: str, generation: int) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(broker, ours, f"worker-{environment}")
        self.environment = environment
        # Without COMFY_SUPERVISOR_WORKER, the mark by which supervisors find and end workers that
        # nobody owns.
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        python, nodes, comfyui, options = broker.environments[environment]
        self.process = subprocess.Popen(
            [python, "-I", "-X", "utf8", broker.program, "--frames-fd", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self.pid = self.process.pid
        self.output = b""
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        self.hello = threading.Event()
        self.channel.start()
        if not self.hello.wait(30):
            raise RemoteError(
                error_object("start_failed", f"the worker of {environment} did not say hello")
            )
        broker.files.parties[self.owner] = self
        directory = os.path.dirname(nodes)
        pack = {
            "directory": directory,
            "nodes": nodes,
            "name": environment,
            "unique_name": f"pack_{environment}",
        }
        load = {
            "session": "s",
            "environment": environment,
            "environment_root_id": environment + "-root",
            "generation": generation,
            "worker": self.owner,
            "pack": pack,
            "comfyui": comfyui,
            "memory": {"pool_bytes": broker.pool_bytes},
            "options": options,
        }
        self.loaded, self.loaded_body = self.channel.request("load", load, timeout=120)

    def _read_output(self) -> None:
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            self.output += chunk

    def on_request(self, message: Message, body: bytes) -> None:
        if self.memory(message):
            return
        client, call = self.reverse[message["call"]]
        client.pass_request(self, message, body, call)

    def on_notification(self, message: Message, body: bytes) -> None:
        if message["method"] == "hello":
            assert message["params"]["protocol"] == PROTOCOL
            self.owner = message["params"]["worker"]
            self.hello.set()
        elif message["method"] == "progress":
            client, call = self.reverse[message["call"]]
            client.try_notify("progress", message["params"], call=call)
        else:
            self.memory(message)

    def end(self) -> None:
        """Ends the process, politely first."""
        try:
            self.channel.request("shutdown", {}, timeout=10)
        except (ChannelGone, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()
        self.channel.close()

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.gone.wait(10)


def _pass_request(self: Client, worker: Worker, message: Message, body: bytes, call: int) -> None:
    worker.forward(message, body, self, call=call)


Client.pass_request = _pass_request  # type: ignore[attr-defined]


class Broker:
    """Listens at a path until `close`. `environments` maps names to (python, nodes folder, comfyui,
    options).
    """

    def __init__(self, path: str, program: str) -> None:
        self.path = path
        self.program = program
        self.files = Files()
        self.environments: dict[str, tuple[str, str, str, dict[str, Any]]] = {}
        self.workers: dict[str, Worker] = {}
        self.generations: dict[str, int] = {}
        self.tokens: set[str] = set()
        self.clients: list[Client] = []
        self.protocol = PROTOCOL
        self.pool_bytes = 512 << 20
        self.refuse_hello = ""
        self.old = False  # it does not know handle.settle
        self.unanswered: set[str] = set()  # methods of clients
        self.last_hello: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._starting: dict[str, threading.Lock] = {}
        self.listen()

    def listen(self) -> None:
        """Begins to accept clients."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._accepting.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            client = Client(self, connection, "client")
            self.clients.append(client)
            client.channel.start()

    def worker(self, environment: str) -> Worker:
        """The environment's worker, started when there is none."""
        with self._lock:
            if environment not in self.environments:
                raise RemoteError(
                    error_object("unknown_environment", f"no environment {environment!r}")
                )
            starting = self._starting.setdefault(environment, threading.Lock())
        with starting:
            worker = self.workers.get(environment)
            if worker is None or worker.channel.gone is not None:
                if worker is not None:
                    worker.end()
                generation = self.generations[environment] = (
                    self.generations.get(environment, 0) + 1
                )
                worker = self.workers[environment] = Worker(self, environment, generation)
            return worker

    def serve(self, client: Client, method: str, params: dict[str, Any]) -> Any:
        """Answers what is not about calls or memory files."""
        if method == "stop":
            worker = self.workers.pop(params.get("environment", ""), None)
            if worker is not None:
                worker.end()
            return {"stopped": [{"environment": worker.environment}] if worker else []}
        if method == "environments":
            after = params["after"]
            part = [{"name": name} for name in list(self.environments)[after : after + 2]]
            return {"environments": part, "more": after + len(part) < len(self.environments)}
        if method in ("ping", "status"):
            return {}
        return RemoteError(error_object("unknown_method", f"no method {method!r}"))

    def vanish(self) -> None:
        """Closes every client's connection and the socket, as a supervisor that dies does; workers
        live on.
        """
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        os.unlink(self.path)
        for client in self.clients:
            client.channel.close()
        self.clients.clear()

    def close(self) -> None:
        """Ends everything."""
        self.vanish()
        for worker in self.workers.values():
            worker.end()
        self.workers.clear()


def _encode(message: Any) -> bytes:
    import json

    return json.dumps(message, separators=(",", ":")).encode()
