"""What a call costs over pyisolate 0.10.2 and over this supervisor, in turn in one process.

    go build -o /tmp/comfy-supervisor ./cmd/comfy-supervisor
    python3 testdata/peers/compare_pyisolate.py /tmp/comfy-supervisor [--json]

It needs uv on PATH, and a Python 3.12 for the worker. What it makes once, in the user's cache folder, is an environment
with torch and pyisolate, which is the host. The environment of testdata/packs/bench and the supervisor are made anew.

pyisolate's child runs without a sandbox and shares the host's torch, which is what is fastest there. Each figure is the
median (or a quantile) of calls in rounds that the two sides took in turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOST = ["torch==2.10.0", "numpy==2.4.6", "pyisolate==0.10.2"]
ENVIRONMENT = "bench-nodes"
# Host and child import it; the child is the one that runs its methods.
PEER = """
from pyisolate import ExtensionBase

class Peer(ExtensionBase):
    async def noop(self, value):
        return value

    async def add_one(self, value):
        return value + 1
"""


def run(*words: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def prepare(home: Path) -> Path:
    """Makes the host, once; returns its interpreter."""
    if shutil.which("uv") is None:
        sys.exit("uv is needed, by pyisolate too: put it on PATH")
    host = home / "host"
    if not (host / "complete").exists():
        run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, host)
        run("uv", "pip", "install", "--quiet", "--python", host / "bin" / "python", *HOST)
        (host / "complete").touch()
    return host / "bin" / "python"


def main(binary: Path, options: list[str]) -> None:
    """Builds what is missing and compares, with a supervisor of its own."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "comfy-supervisor-peers"
    python = prepare(home)
    with tempfile.TemporaryDirectory(prefix="peers") as folder:
        environ = {
            **os.environ,
            "COMFY_ENV_ROOT": f"{folder}/environments",  # another checkout's pack has the same name
            "COMFY_SUPERVISOR_RUNTIME_DIR": f"{folder}/run",
            "COMFY_SUPERVISOR_STATE_DIR": f"{folder}/state",
        }
        pack = Path(__file__).parents[1] / "packs" / "bench"
        run(binary, "build", pack, "--python", python, env=environ, stdout=sys.stderr)
        said = run(binary, "env", "--python", python, env=environ, stdout=subprocess.PIPE).stdout
        for line in said.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["export"]:
                name, _, value = words[1].partition("=")
                environ[name] = value
        try:
            run(python, __file__, "--compare", *options, env=environ)
        finally:
            run(binary, "stop", "--all", env=environ, stdout=sys.stderr)


async def compare() -> None:
    """The host's part: the calls and the table."""
    import comfy_supervisor
    import torch
    from pyisolate import ExtensionManager
    from pyisolate.config import SandboxMode

    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="pyisolate-peer-"))
    (folder / "extension").mkdir()
    (folder / "extension" / "__init__.py").write_text("")
    (folder / "peer_of_bench.py").write_text(PEER)
    sys.path.insert(0, str(folder))
    from peer_of_bench import Peer

    manager = ExtensionManager(Peer, {"venv_root_path": str(folder / "venvs")})
    extension = manager.load_extension(
        {
            "name": "peer",
            "module_path": str(folder / "extension"),
            "isolated": True,
            "dependencies": [],
            "apis": [],
            "share_torch": True,
            "share_cuda_ipc": False,
            "sandbox_mode": SandboxMode.DISABLED,
        }
    )
    session = comfy_supervisor.connect()

    async def theirs(method: str, value):
        return await getattr(extension, method)(value)

    async def ours(node: str, value):
        return session.call(ENVIRONMENT, node, value=value)[0]

    for value in (7, torch.rand(1 << 18)):  # a small one, and one that both pass through memory
        small = isinstance(value, int)
        their = await theirs("noop" if small else "add_one", value)
        our = await ours("BenchNoop" if small else "BenchAddOne", value)
        expected = value if small else value + 1
        if not all(torch.equal(torch.as_tensor(got), torch.as_tensor(expected)) for got in (their, our)):
            sys.exit("an answer is wrong")
    rows = {}

    async def measure(name: str, rounds: int, count: int, their_method: str, our_node: str, make) -> None:
        samples = {"pyisolate": [], "ours": []}
        for turn in range(rounds + 1):
            for side, call, what in (("pyisolate", theirs, their_method), ("ours", ours, our_node)):
                for _ in range(count):
                    value = make()
                    begin = time.perf_counter()
                    await call(what, value)
                    if turn:  # the first round warms up
                        samples[side].append(time.perf_counter() - begin)
        for side in samples:
            samples[side].sort()
        rows[name] = {
            side: {"p50": statistics.median(taken), "p99": taken[int(len(taken) * 0.99)]}
            for side, taken in samples.items()
        }

    await measure("no-op", 20, 100, "noop", "BenchNoop", lambda: 1)
    for mebibytes in (1, 64):
        elements = mebibytes * 1024 * 1024 // 4
        await measure(
            f"a fresh tensor in, a new one out, {mebibytes} MiB",
            5,
            3,
            "add_one",
            "BenchAddOne",
            lambda: torch.ones(elements),
        )
    session.stop(ENVIRONMENT)
    manager.stop_all_extensions()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{'':44}{'pyisolate':>12}{'ours':>12}{'ratio':>8}")
    for name, row in rows.items():
        for quantile in ("p50", "p99") if name == "no-op" else ("p50",):
            their, our = row["pyisolate"][quantile], row["ours"][quantile]
            print(f"{name + ' ' + quantile + ', us':44}{their * 1e6:12.1f}{our * 1e6:12.1f}{our / their:8.2f}")
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        asyncio.run(compare())
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve(), sys.argv[2:])
    else:
        sys.exit(__doc__)
