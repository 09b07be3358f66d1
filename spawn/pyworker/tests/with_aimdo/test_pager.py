"""The real comfy-aimdo, as far as it goes without a GPU: the library loads and takes what it is told, the devices do
not start."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys
import types
import unittest
from typing import Any

from comfy_supervisor_worker.comfyui.pager import Pager

HEADROOM = 1 << 30  # bytes


class RealPackage(unittest.TestCase):
    def setUp(self) -> None:
        self.control = importlib.import_module("comfy_aimdo.control")
        self.calls: list[Any] = []
        for name in ("init", "init_devices"):
            self.watch(name)
        self.addCleanup(self.control.deinit)

    def watch(self, name: str) -> None:
        real = getattr(self.control, name)

        @functools.wraps(real)  # the pager tells the calls' shapes by their signatures
        def watched(*positional: Any, **named: Any) -> Any:
            answer = real(*positional, **named)
            self.calls.append((name, *positional, named, answer))
            return answer

        setattr(self.control, name, watched)
        self.addCleanup(setattr, self.control, name, real)

    def test_the_library_loads_and_the_devices_are_refused(self) -> None:
        self.assertEqual(importlib.metadata.version("comfy-aimdo"), os.environ["TEST_AIMDO"])
        pager = Pager(
            {
                "COMFY_ENV_WORKER_AIMDO": "1",
                "COMFY_ENV_AIMDO_SIMPLE_HEADROOM": str(HEADROOM),
                "COMFY_ENV_AIMDO_HEADROOM": "7",
            }
        )
        pager.prepare()
        self.assertEqual((pager.outcome, pager.reason), ("", ""))
        self.assertIsNotNone(self.control.lib)
        self.assertEqual(self.calls, [("init", {"simple_vram_headroom": HEADROOM, "nvml_pressure": True}, True)])
        if hasattr(self.control, "get_simple_vram_headroom"):  # older ones do not tell
            self.assertEqual(self.control.get_simple_vram_headroom(), HEADROOM)
        management = types.SimpleNamespace(get_all_torch_devices=lambda: [types.SimpleNamespace(index=0)])
        memory = types.SimpleNamespace(aimdo_enabled=False)
        sys.modules["comfy.model_management"] = management  # type: ignore[assignment]
        sys.modules["comfy.memory_management"] = memory  # type: ignore[assignment]
        patcher = types.SimpleNamespace(CoreModelPatcher="old", ModelPatcherDynamic="dynamic")
        with self.assertLogs(level="WARNING") as said:
            pager.complete(patcher)
        self.assertEqual(self.calls[1:], [("init_devices", [(0, 7)], {}, False)])
        self.assertEqual((pager.outcome, pager.reason), ("ledger", "comfy-aimdo does not work with this machine's devices"))
        self.assertEqual((memory.aimdo_enabled, patcher.CoreModelPatcher), (False, "old"))
        self.assertEqual(len([line for line in said.output if "pager" in line]), 1)


if __name__ == "__main__":
    unittest.main()
