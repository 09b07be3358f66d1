"""What a ComfyUI host says about itself: flags, attention, pager, reserve, versions, and its folder registry.

| module | name | when it is missing |
| --- | --- | --- |
| comfy.cli_args | args | workers run with ComfyUI's default flags |
| comfy.ldm.modules.attention | optimized_attention | workers choose their attention by themselves |
| comfy.memory_management | aimdo_enabled | workers use the ledger |
| comfy.model_management | EXTRA_RESERVED_VRAM, vram_state | workers start from ComfyUI's defaults |
| comfyui_version | __version__ | versions are not compared |
| folder_paths | folder_names_and_paths, base_path, models_dir, the four directories | workers have their own defaults |
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from enum import Enum
from typing import Any

_DIRECTORIES = {
    "output": "get_output_directory",
    "temp": "get_temp_directory",
    "input": "get_input_directory",
    "user": "get_user_directory",
}


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


def comfyui_directory() -> str:
    """The folder of ComfyUI's main.py; "" outside ComfyUI."""
    file = getattr(sys.modules.get("folder_paths"), "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file else ""


def facts() -> dict[str, Any]:
    """Everything that is known at the moment."""
    arguments = _attribute("comfy.cli_args", "args")
    described: dict[str, Any] = {
        "comfyui_version": str(_attribute("comfyui_version", "__version__", "")),
        "comfyui_directory": comfyui_directory(),
        "log_level": logging.getLogger().level,
        "folders": folders(),
    }
    if arguments is not None:
        described["args"] = {name: value for name, value in map(_flag, vars(arguments).items()) if value is not _UNFIT}
    attention = getattr(_attribute("comfy.ldm.modules.attention", "optimized_attention"), "__name__", "")
    if attention.startswith("attention_"):
        described["attention"] = attention[len("attention_") :]
    enabled = _attribute("comfy.memory_management", "aimdo_enabled")
    if isinstance(enabled, bool):
        described["aimdo_enabled"] = enabled
    try:
        described["aimdo_version"] = importlib.metadata.version("comfy-aimdo")
    except importlib.metadata.PackageNotFoundError:
        pass
    reserve = _attribute("comfy.model_management", "EXTRA_RESERVED_VRAM")
    if isinstance(reserve, (int, float)):
        described["reserve_bytes"] = int(reserve)
    state = getattr(_attribute("comfy.model_management", "vram_state"), "name", None)
    if isinstance(state, str):
        described["vram_state"] = state
    user = described["folders"].get("user")
    if user:
        described["user_directory"] = user
    return described


_UNFIT = object()


def _flag(item: tuple[str, Any]) -> tuple[str, Any]:
    name, value = item
    return name, _plain(value)


def _plain(value: Any) -> Any:
    """A flag's value as JSON: enum members as their values, sets as sorted lists; _UNFIT for anything else."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else _UNFIT
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_plain(item) for item in value]
        if any(item is _UNFIT for item in items):
            return _UNFIT
        return sorted(items, key=str) if isinstance(value, (set, frozenset)) else items
    return _UNFIT


def folders() -> dict[str, Any]:
    """The folder registry, as folders.Folders of a worker takes it over; {} outside ComfyUI."""
    module = sys.modules.get("folder_paths")
    registry = getattr(module, "folder_names_and_paths", None)
    if not isinstance(registry, dict):
        return {}
    described: dict[str, Any] = {
        "names": {
            str(name): [[str(path) for path in entry[0]], sorted(str(extension) for extension in entry[1])]
            for name, entry in list(registry.items())
        },
    }
    for name in ("base_path", "models_dir"):
        described[name] = str(getattr(module, name, ""))
    for name, getter in _DIRECTORIES.items():
        function = getattr(module, getter, None)
        if function is not None:
            described[name] = str(function())
    return described


def add_folders(added: list[list[Any]]) -> None:
    """Registers in the host what a pack registered in its worker: [name, paths, extensions] each."""
    module = sys.modules.get("folder_paths")
    registry = getattr(module, "folder_names_and_paths", None)
    if not isinstance(registry, dict):
        return
    for name, paths, extensions in added:
        known = registry.get(name)
        if known is None:
            registry[name] = (list(paths), set(extensions))
            continue
        for path in paths:
            if path not in known[0]:
                known[0].append(path)
