"""The real comfy-aimdo, as far as it goes without a GPU: the library loads, the devices do not start."""

from __future__ import annotations

import sys
import types
import unittest

from comfy_supervisor_worker.comfyui.pager import Pager


class RealPackage(unittest.TestCase):
    def test_the_library_loads_and_the_devices_are_refused(self) -> None:
        pager = Pager({"COMFY_ENV_WORKER_AIMDO": "1", "COMFY_ENV_AIMDO_SIMPLE_HEADROOM": "1073741824"})
        pager.prepare()
        self.assertEqual((pager.outcome, pager.reason), ("", ""))
        control = sys.modules["comfy_aimdo.control"]
        self.assertIsNotNone(control.lib)
        management = types.SimpleNamespace(get_all_torch_devices=lambda: [types.SimpleNamespace(index=0)])
        memory = types.SimpleNamespace(aimdo_enabled=False)
        sys.modules["comfy.model_management"] = management  # type: ignore[assignment]
        sys.modules["comfy.memory_management"] = memory  # type: ignore[assignment]
        patcher = types.SimpleNamespace(CoreModelPatcher="old", ModelPatcherDynamic="dynamic")
        with self.assertLogs(level="WARNING") as said:
            pager.complete(patcher)
        self.assertEqual((pager.outcome, pager.reason), ("ledger", "comfy-aimdo does not work with this machine's devices"))
        self.assertEqual((memory.aimdo_enabled, patcher.CoreModelPatcher), (False, "old"))
        self.assertEqual(len([line for line in said.output if "pager" in line]), 1)


if __name__ == "__main__":
    unittest.main()
