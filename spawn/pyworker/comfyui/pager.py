"""Starting comfy-aimdo, the pager, in a worker: the three steps that ComfyUI's main.py takes, in their order.

First the native library, before anything imports comfy.model_management, whose imports would bind it half wired; then,
with ComfyUI's memory management there, the devices; at last ComfyUI is told. The package's calls have had several
shapes, which are told by their signatures: it ships three releases a month. What fails leaves the worker on the ledger,
with one line that says why.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from typing import Any, Callable

_OFF = ("", "0", "false", "no", "off")


class Pager:
    """The pager of one worker. `outcome` is "paged", "ledger" or "" before anything is known; `reason` says why."""

    def __init__(self, environ: Any = os.environ) -> None:
        self._environ = environ
        self.outcome = ""
        self.reason = ""

    def wanted(self) -> bool:
        """Whether the host uses the pager itself; without its word the ledger is used."""
        return self._environ.get("COMFY_ENV_WORKER_AIMDO", "").strip().lower() not in _OFF

    def prepare(self) -> None:
        """The first step, before the pack is imported."""
        if not self.wanted():
            self.outcome, self.reason = "ledger", "the host does not use the pager"
            return
        if "comfy.model_management" in sys.modules:
            self._fall_back("comfy.model_management was imported before it")
            return
        try:
            control = importlib.import_module("comfy_aimdo.control")
        except Exception as error:
            self._fall_back(f"comfy-aimdo can not be imported: {type(error).__name__}: {error}")
            return
        options = {
            "simple_vram_headroom": self._bytes("COMFY_ENV_AIMDO_SIMPLE_HEADROOM"),
            "nvml_pressure": self._environ.get("COMFY_ENV_AIMDO_NVML", "1").strip().lower() not in _OFF,
        }
        try:
            if not control.init(**accepted(control.init, options)):
                self._fall_back("comfy-aimdo's native library could not be loaded")
        except Exception as error:
            self._fall_back(f"comfy-aimdo's start failed: {type(error).__name__}: {error}")

    def complete(self, patcher: Any) -> None:
        """The second and third step: the post-import hook of comfy.model_patcher."""
        if self.outcome or not self.wanted():
            return
        try:
            management = sys.modules["comfy.model_management"]
            memory = sys.modules["comfy.memory_management"]
            control = sys.modules["comfy_aimdo.control"]
            dynamic = patcher.ModelPatcherDynamic
            if not self._start_devices(control, _devices(management)):
                self._fall_back("comfy-aimdo does not work with this machine's devices")
                return
        except Exception as error:
            self._fall_back(f"{type(error).__name__}: {error}")
            return
        patcher.CoreModelPatcher = dynamic
        memory.aimdo_enabled = True
        self.outcome = "paged"

    def _start_devices(self, control: Any, indices: list[int]) -> bool:
        headroom = self._bytes("COMFY_ENV_AIMDO_HEADROOM") or 0
        one = getattr(control, "init_device", None)
        pairs = one is None or "extra_vram_headroom" in _parameters(one)
        if pairs:
            try:
                return bool(control.init_devices([(index, headroom) for index in indices]))
            except TypeError:
                if one is not None:
                    raise
        return bool(control.init_devices(indices))

    def _bytes(self, name: str) -> int | None:
        text = self._environ.get(name, "").strip()
        try:
            return int(text) if text else None
        except ValueError:
            logging.warning("%s is %r, which is no number of bytes; it is ignored", name, text)
            return None

    def _fall_back(self, reason: str) -> None:
        self.outcome, self.reason = "ledger", reason
        logging.warning("the pager is not used in this worker, the ledger is: %s", reason)


def accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes."""
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def _parameters(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _devices(management: Any) -> list[int]:
    every = getattr(management, "get_all_torch_devices", None)
    devices = every() if every is not None else [management.get_torch_device()]
    return [device.index if device.index is not None else 0 for device in devices]


class HostMemory:
    """What is set on comfy.model_management at its import, before the first load reads it."""

    def __init__(self, environ: Any = os.environ) -> None:
        self._environ = environ

    def apply(self, management: Any) -> None:
        """The post-import hook: the host's reserve and VRAM state, in force until a budget reply brings later ones."""
        reserve = self._environ.get("COMFY_ENV_EXTRA_RESERVED_VRAM", "").strip()
        if reserve and hasattr(management, "EXTRA_RESERVED_VRAM"):
            try:
                management.EXTRA_RESERVED_VRAM = int(reserve)
            except ValueError:
                logging.warning("COMFY_ENV_EXTRA_RESERVED_VRAM is %r, which is no number of bytes; it is ignored", reserve)
        state = self._environ.get("COMFY_ENV_VRAM_STATE", "").strip()
        kinds = getattr(management, "VRAMState", None)
        if state and kinds is not None and state in kinds.__members__:
            management.vram_state = kinds[state]
