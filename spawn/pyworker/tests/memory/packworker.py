"""A real worker with the memory pack on a fake card, and a supervisor that answers as the test wants it to."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

from comfy_supervisor_worker.wire.channel import Waiter, encode_json

from harness import LIMIT, WorkerProcess

MIB = 1 << 20
GIB = 1 << 30
PAGED = os.environ["TEST_MANAGER"] == "pager"


class PackWorker:
    """The worker; `leases` are the requests for leases that were not answered yet."""

    def __init__(self, load: dict[str, Any] | None = None, **environ: str) -> None:
        variables = {"COMFY_ENV_WORKER_AIMDO": "1" if PAGED else "0", **environ}
        self.computations: list[Computation] = []
        self.worker = WorkerProcess(environ=variables)
        self.supervisor = self.worker.supervisor
        self.channel = self.worker.channel
        pack = os.environ["TEST_PACK"]
        self.worker.load(
            "memory",
            pack={
                "directory": pack,
                "nodes": os.path.join(pack, "nodes"),
                "name": "memory",
                "unique_name": "comfy_supervisor_pack_memory",
            },
            comfyui=os.environ["TEST_COMFYUI"],
            memory={"pool_bytes": 64 * MIB, **(load or {})},
        )

    def close(self) -> None:
        if any(not computation.ended for computation in self.computations):
            self.worker.may_fail = True  # the test has failed before
            self.worker.process.kill()
        self.worker.close()

    # ---- messages ------------------------------------------------------------------------------------------------

    def notified(self, method: str) -> list[dict[str, Any]]:
        """The parameters of what the worker said under a name."""
        return [message["params"] for message in list(self.supervisor.notifications) if message["method"] == method]

    def wait(self, method: str, count: int = 1) -> dict[str, Any]:
        """Waits until it has said that so often; returns the last."""
        self.supervisor.wait(lambda: len(self.notified(method)) >= count)
        return self.notified(method)[count - 1]

    def lease(self, number: int = 1) -> dict[str, Any]:
        """Waits for the request of a lease, which counts from one."""

        def asked() -> list[dict[str, Any]]:
            return [message for message in list(self.supervisor.requests) if message["method"] == "memory.lease"]

        self.supervisor.wait(lambda: len(asked()) >= number)
        return asked()[number - 1]

    def grant(self, request: dict[str, Any], **answer: Any) -> None:
        """Answers it."""
        result = {"verdict": "granted", "cause": "fits", "lease": 1 * GIB, "waited_ms": 0, "terms": [], **answer}
        self.channel.reply(request["id"], result)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request to the worker and its result."""
        return self.channel.request(method, params, timeout=LIMIT)[0]["result"]

    def begin(self, method: str, **params: Any) -> Waiter:
        """Sends a request whose result is asked for later."""
        waiter = Waiter()
        message = {"jsonrpc": "2.0", "id": self.channel.begin(waiter), "method": method, "params": params}
        self.channel.send(encode_json(message).encode())
        return waiter

    def result(self, waiter: Waiter) -> dict[str, Any]:
        """Waits for it."""
        if not self.channel.wait(waiter, LIMIT):
            raise AssertionError("no answer")
        return self.channel.result(waiter)[0]["result"]

    # ---- calls ---------------------------------------------------------------------------------------------------

    def work(self, answer: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
        """A whole call of MemoryWork, its lease granted."""
        number = len([message for message in self.supervisor.requests if message["method"] == "memory.lease"])
        _, waiter = self.worker.begin("MemoryWork", inputs)
        self.grant(self.lease(number + 1), **(answer or {}))
        return self.worker.finish(waiter)[0]

    def computing(self, node: str = "MemoryWork", **inputs: Any) -> Computation:
        """A call of a node that goes on until `Computation.end`, as soon as it has its lease."""
        return Computation(self, node, inputs)

    def report(self) -> dict[str, Any]:
        return self.worker.call("MemoryReport")[0]


class Computation:
    """A node that computes until it is told to end."""

    def __init__(self, owner: PackWorker, node: str, inputs: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        started, self._until = (os.path.join(self._folder.name, name) for name in ("started", "until"))
        os.mkfifo(started)
        os.mkfifo(self._until)
        self._owner = owner
        self.ended = False
        owner.computations.append(self)
        self._started = threading.Event()
        self._watch = threading.Thread(target=self._read, args=(started,), daemon=True)
        self._watch.start()
        self.request, self.waiter = owner.worker.begin(node, {**inputs, "started": started, "until": self._until})

    def _read(self, started: str) -> None:
        with open(started, encoding="ascii") as pipe:
            pipe.read()
        self._started.set()

    def wait_started(self) -> None:
        if not self._started.wait(LIMIT):
            raise AssertionError("the node does not compute")

    def has_started(self) -> bool:
        return self._started.is_set()

    def end(self) -> dict[str, Any]:
        self.ended = True
        with open(self._until, "w", encoding="ascii"):
            pass
        result = self._owner.worker.finish(self.waiter)[0]
        self._watch.join()
        self._folder.cleanup()
        return result
