"""A host that calls nodes with known answers until it is told to pause.

Commands come on standard input, reports go to standard output, both one JSON object a line.
Arguments: a seed, then the names of the environments.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import sys
import threading
import time
from typing import Any, Callable

import comfy_supervisor
from comfy_supervisor.errors import CallCancelled, SupervisorError

SIZES = (0, 10, 5_000, 70_000, 300_000, 1_500_000, 5_000_000)
PAUSE_SECONDS = 0.01  # between two calls, so that the machine has time for others

_printing = threading.Lock()


def report(**fields: Any) -> None:
    with _printing:
        print(json.dumps(fields), flush=True)


def table(key: int) -> bytes:
    return bytes((byte * (2 * key + 1) + key) % 256 for byte in range(256))


class Loop:
    """One thread that calls."""

    def __init__(self, session: Any, environment: str, name: str, seed: int, gate: Gate) -> None:
        self.session = session
        self.environment = environment
        self.name = name
        self.random = random.Random(seed)
        self.gate = gate
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while self.gate.enter():
            begun = time.time_ns()
            fields = {"loop": self.name, "begun": begun}
            try:
                kind = self.once()
                fields["ok"] = kind
            except AssertionError as error:
                fields["wrong"] = str(error)
            except SupervisorError as error:
                fields.update(error=error.kind, text=str(error))
            except BaseException as error:  # not what a call may raise
                fields.update(error="unexpected", text=f"{type(error).__name__}: {error}")
            fields["seconds"] = (time.time_ns() - begun) / 1e9
            self.gate.leave()
            report(**fields)
            time.sleep(PAUSE_SECONDS)

    def call(self, node: str, **inputs: Any) -> Any:
        (result,) = self.session.call(self.environment, node, **inputs)
        return result

    def once(self) -> str:
        """One call and its check."""
        choose = self.random.choice
        kind = choose(("echo", "translate", "digest", "make", "fail", "nap", "compute", "cancel"))
        seed, size, key = self.random.getrandbits(40), choose(SIZES), self.random.randrange(100)
        if kind == "echo":
            value = {"n": seed, "big": seed**7, "text": "\ud800 é\n" * (size // 1000), "f": [1.5, None]}
            got = self.call("Echo", value=value)
            assert got == {"value": value}, f"echo of {seed} with {size} bytes"
        elif kind in ("translate", "digest"):
            data = random.Random(seed).randbytes(size)
            if kind == "translate":
                got = self.call("Translate", data=data, key=key)
                assert got == data.translate(table(key)), f"translating {size} bytes"
            else:
                got = self.call("Digest", data=data)
                assert got == hashlib.sha256(data).hexdigest(), f"digest of {size} bytes"
        elif kind == "make":
            got = self.call("Make", seed=seed, size=size)
            assert got == random.Random(seed).randbytes(size), f"making {size} bytes"
        elif kind == "fail":
            try:
                self.call("Fail", text=str(seed))
            except ValueError as error:
                if isinstance(error, SupervisorError):
                    raise
                assert str(error) == str(seed), f"failing with {seed} gave {error}"
            else:
                raise AssertionError("a failure did not raise")
        elif kind == "cancel":
            call = self.session.start(self.environment, "Nap", seconds=0.2, answer=seed)
            call.cancel()
            try:
                (got,) = call.result()
                assert got == seed, f"a nap for {seed} gave {got}"
            except CallCancelled:
                pass
        else:
            node = "Nap" if kind == "nap" else "Compute"
            got = self.call(node, seconds=0.02, answer=seed)
            assert got == seed, f"{kind} for {seed} gave {got}"
        return kind


class Gate:
    """Lets loops through, or holds them between two calls."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.open = False
        self.inside = 0

    def enter(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.open)
            self.inside += 1
        return True

    def leave(self) -> None:
        with self.changed:
            self.inside -= 1
            self.changed.notify_all()

    def set(self, state: bool) -> None:
        with self.changed:
            self.open = state
            self.changed.notify_all()
            if not state:
                self.changed.wait_for(lambda: self.inside == 0)


def memory_files() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
        except OSError:
            pass  # the folder's own
    return count


def accounts(session: Any, environments: list[str]) -> None:
    """Reports what this process and its workers hold."""
    gc.collect()
    workers, failed = {}, {}
    for environment in environments:
        try:
            (workers[environment],) = session.call(environment, "Accounts")
        except SupervisorError as error:
            failed[environment] = f"{error.kind}: {error}"
    report(
        accounts={
            "pid": os.getpid(),
            "pool": session.memory.pool.sizes(),
            "holds": len(session.memory.mappings.holds()),
            "memory_files": memory_files(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count(),
            "workers": workers,
            "failed": failed,
        }
    )


def harm(session: Any, environment: str, node: str, inputs: dict[str, Any]) -> None:
    """Calls a node that does harm, and tells how the call ended."""
    try:
        session.call(environment, node, **inputs)
        report(harmed=node, outcome="returned")
    except SupervisorError as error:
        report(harmed=node, outcome=error.kind, text=str(error))
    except BaseException as error:
        report(harmed=node, outcome="raised", text=f"{type(error).__name__}: {error}")


def start(function: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def main() -> None:
    seed, environments = int(sys.argv[1]), sys.argv[2:]
    session = comfy_supervisor.connect(name="stress host")
    gate = Gate()
    for number in range(2 * len(environments)):
        environment = environments[number % len(environments)]
        Loop(session, environment, f"{environment}.{number}", seed + number, gate).thread.start()
    report(ready=os.getpid())
    for line in sys.stdin:
        command = json.loads(line)
        kind = command["do"]
        if kind == "go":
            gate.set(True)
        elif kind == "pause":
            gate.set(False)
            report(paused=True)
        elif kind == "accounts":
            accounts(session, environments)
        elif kind == "harm":
            start(harm, session, command["environment"], command["node"], command["inputs"])
        elif kind == "quit":
            session.close()
            report(quit=True)
            return


main()
