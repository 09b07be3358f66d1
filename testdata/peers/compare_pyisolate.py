"""What a call costs over pyisolate 0.10.2 and over this supervisor, in turn in one process.

To be run by an interpreter that has torch and pyisolate, in the environment that `comfy-supervisor env` prints:

    comfy-supervisor build testdata/packs/bench --python HOST
    eval "$(comfy-supervisor env --python HOST)"
    HOST testdata/peers/compare_pyisolate.py

pyisolate's child runs without a sandbox and shares the host's torch, which is what is fastest there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import comfy_supervisor
from pyisolate import ExtensionManager
from pyisolate.config import SandboxMode

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


async def main() -> None:
    import torch

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

    rows = {}

    async def measure(name: str, count: int, their_method: str, our_node: str, make) -> None:
        samples = {"pyisolate": [], "ours": []}
        for turn in range(count + count // 10):
            for side, call, what in (("pyisolate", theirs, their_method), ("ours", ours, our_node)):
                value = make()
                begin = time.perf_counter()
                await call(what, value)
                if turn >= count // 10:  # the first ones warm up
                    samples[side].append(time.perf_counter() - begin)
        for side in samples:
            samples[side].sort()
        rows[name] = {
            side: {"p50": statistics.median(taken), "p99": taken[int(len(taken) * 0.99)]}
            for side, taken in samples.items()
        }

    await measure("no-op", 2000, "noop", "BenchNoop", lambda: 1)
    for mebibytes in (1, 64):
        elements = mebibytes * 1024 * 1024 // 4
        await measure(
            f"a fresh tensor in, a new one out, {mebibytes} MiB",
            15,
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
    asyncio.run(main())
