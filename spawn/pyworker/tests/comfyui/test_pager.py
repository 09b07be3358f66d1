"""The pager starts by the shape of its calls, in three steps, and falls back with its own reason."""

from __future__ import annotations

import sys
import types
import unittest
from enum import Enum
from typing import Any

from comfy_supervisor_worker.comfyui.pager import HostMemory, Pager

ON = {"COMFY_ENV_WORKER_AIMDO": "1", "COMFY_ENV_AIMDO_SIMPLE_HEADROOM": "1024", "COMFY_ENV_AIMDO_HEADROOM": "7", "COMFY_ENV_AIMDO_NVML": "0"}


class Steps(list):
    """What was called, in order."""


def newest(steps: Steps) -> dict[str, Any]:
    """The shape of comfy-aimdo 0.4.11 and later."""

    def init(implementation: Any = None, simple_vram_headroom: Any = None, nvml_pressure: bool = False) -> bool:
        steps.append(("init", simple_vram_headroom, nvml_pressure))
        return True

    def init_device(device_id: int, extra_vram_headroom: int = 0) -> bool:
        raise AssertionError

    def init_devices(device_ids: Any) -> bool:
        steps.append(("devices", list(device_ids)))
        return True

    return {"init": init, "init_device": init_device, "init_devices": init_devices}


def middle(steps: Steps) -> dict[str, Any]:
    """Without NVML pressure, and with bare device indices."""

    def init(implementation: Any = None, simple_vram_headroom: Any = None) -> bool:
        steps.append(("init", simple_vram_headroom))
        return True

    def init_device(device_id: int) -> bool:
        raise AssertionError

    def init_devices(device_ids: Any) -> bool:
        steps.append(("devices", [int(device) for device in device_ids]))
        return True

    return {"init": init, "init_device": init_device, "init_devices": init_devices}


def oldest(steps: Steps) -> dict[str, Any]:
    """Without any argument, and without a call for one device."""

    def init() -> bool:
        steps.append(("init",))
        return True

    def init_devices(device_ids: Any) -> bool:
        steps.append(("devices", [int(device) for device in device_ids]))
        return True

    return {"init": init, "init_devices": init_devices}


class Starts(unittest.TestCase):
    def setUp(self) -> None:
        self.steps = Steps()
        self.memory = types.SimpleNamespace(aimdo_enabled=False)
        self.patcher = types.SimpleNamespace(CoreModelPatcher="old", ModelPatcherDynamic="dynamic")
        self.devices = [types.SimpleNamespace(index=0), types.SimpleNamespace(index=1)]

    def modules(self, shape: dict[str, Any] | None, managed: bool = False) -> None:
        package = types.ModuleType("comfy_aimdo")
        package.__path__ = []  # type: ignore[attr-defined]
        named: dict[str, Any] = {"comfy_aimdo": package}
        if shape is not None:
            control = named["comfy_aimdo.control"] = types.ModuleType("comfy_aimdo.control")
            control.__dict__.update(shape)
        if managed:
            named["comfy.model_management"] = types.ModuleType("comfy.model_management")
            named["comfy.model_management"].__dict__["get_all_torch_devices"] = lambda: self.devices
            named["comfy.memory_management"] = self.memory
        for name, module in named.items():
            sys.modules[name] = module
            self.addCleanup(sys.modules.pop, name, None)

    def start(self, shape: Any) -> Pager:
        pager = Pager(ON)
        self.modules(shape(self.steps))
        pager.prepare()
        self.modules(shape(self.steps), managed=True)
        sys.modules["comfy_aimdo.control"].__dict__.update(shape(self.steps))
        pager.complete(self.patcher)
        return pager

    def test_every_shape_of_the_calls_is_told_by_its_signature(self) -> None:
        for shape, expected in (
            (newest, [("init", 1024, False), ("devices", [(0, 7), (1, 7)])]),
            (middle, [("init", 1024), ("devices", [0, 1])]),
            (oldest, [("init",), ("devices", [0, 1])]),
        ):
            with self.subTest(shape=shape.__name__):
                self.steps.clear()
                self.memory.aimdo_enabled, self.patcher.CoreModelPatcher = False, "old"
                self.doCleanups()
                pager = self.start(shape)
                self.assertEqual(self.steps, expected)
                self.assertEqual((pager.outcome, pager.reason), ("paged", ""))
                self.assertEqual((self.memory.aimdo_enabled, self.patcher.CoreModelPatcher), (True, "dynamic"))

    def fails(self, reason: str, pager: Pager) -> None:
        self.assertEqual(pager.outcome, "ledger")
        self.assertIn(reason, pager.reason)
        self.assertFalse(self.memory.aimdo_enabled)
        self.assertEqual(self.patcher.CoreModelPatcher, "old")

    def test_the_ledger_is_used_where_the_host_uses_it(self) -> None:
        for environ in ({}, {"COMFY_ENV_WORKER_AIMDO": "0"}, {"COMFY_ENV_WORKER_AIMDO": " Off "}):
            pager = Pager(environ)
            pager.prepare()
            pager.complete(self.patcher)
            self.fails("the host does not use", pager)

    def test_what_fails_leaves_the_worker_on_the_ledger_with_one_line(self) -> None:
        def broken(steps: Steps) -> dict[str, Any]:
            return {**newest(steps), "init": lambda **_: False}

        def without_devices(steps: Steps) -> dict[str, Any]:
            return {**newest(steps), "init_devices": lambda devices: False}

        def raising(steps: Steps) -> dict[str, Any]:
            def init(**_: Any) -> bool:
                raise OSError("no such library")

            return {**newest(steps), "init": init}

        for shape, reason in ((broken, "native library"), (without_devices, "devices"), (raising, "no such library")):
            self.doCleanups()
            with self.subTest(reason=reason), self.assertLogs(level="WARNING") as said:
                self.fails(reason, self.start(shape))
                self.assertEqual(len(said.output), 1)

    def test_it_must_come_before_comfyuis_memory_management(self) -> None:
        self.modules(newest(self.steps), managed=True)
        pager = Pager(ON)
        with self.assertLogs(level="WARNING"):
            pager.prepare()
        pager.complete(self.patcher)
        self.fails("before it", pager)
        self.assertEqual(self.steps, [])

    def test_a_missing_package_is_a_reason(self) -> None:
        self.modules(None)
        pager = Pager(ON)
        with self.assertLogs(level="WARNING"):
            pager.prepare()
        self.fails("can not be imported", pager)


class State(Enum):
    HIGH_VRAM = 1
    DISABLED = 2


class AtImport(unittest.TestCase):
    def test_the_hosts_reserve_and_state_are_in_force_before_the_first_load(self) -> None:
        management = types.SimpleNamespace(EXTRA_RESERVED_VRAM=400, vram_state=State.DISABLED, VRAMState=State)
        HostMemory({"COMFY_ENV_EXTRA_RESERVED_VRAM": "-5", "COMFY_ENV_VRAM_STATE": "HIGH_VRAM"}).apply(management)
        self.assertEqual((management.EXTRA_RESERVED_VRAM, management.vram_state), (-5, State.HIGH_VRAM))
        HostMemory({"COMFY_ENV_VRAM_STATE": "OF_A_LATER_VERSION"}).apply(management)
        with self.assertLogs(level="WARNING"):
            HostMemory({"COMFY_ENV_EXTRA_RESERVED_VRAM": "much"}).apply(management)
        self.assertEqual((management.EXTRA_RESERVED_VRAM, management.vram_state), (-5, State.HIGH_VRAM))


if __name__ == "__main__":
    unittest.main()
