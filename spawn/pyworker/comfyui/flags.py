"""The host's flags in a worker: set on comfy.cli_args.args before anything of ComfyUI reads them.

Values cross resolved, as JSON in COMFY_ENV_HOST_ARGS. What this ComfyUI does not know, or what would end the process at
import (a forced attention backend whose package is missing), is left out with its reason.
"""

from __future__ import annotations

import importlib.util
import json
import os
from enum import Enum
from typing import Any

ATTENTION = "attention"  # not an attribute: the backend that the host resolved

# What makes ComfyUI choose a backend: the flags to set, and the package it ends the process for when it is missing.
_BACKENDS: dict[str, tuple[dict[str, bool], str]] = {
    "sage": ({"use_sage_attention": True}, "sageattention"),
    "flash": ({"use_flash_attention": True}, "flash_attn"),
    "xformers": ({"disable_xformers": False}, ""),
    "pytorch": ({"use_pytorch_cross_attention": True}, ""),
    "split": ({"use_split_cross_attention": True, "disable_xformers": True}, ""),
    "sub_quad": ({"use_quad_cross_attention": True, "disable_xformers": True}, ""),
    "ck": ({"use_ck_attention": True}, ""),
}
_OFF = ("", "0", "false", "no", "off")


class Flags:
    """What was asked for, what was set, and what was not."""

    def __init__(self, environ: Any = os.environ) -> None:
        self.skipped: dict[str, str] = {}  # flag -> reason
        self._applied: list[str] = []
        self._arguments: Any = None
        self._asked: dict[str, Any] = {}
        text = environ.get("COMFY_ENV_HOST_ARGS", "")
        if text:
            try:
                asked = json.loads(text)
                if not isinstance(asked, dict):
                    raise ValueError("not an object")
                self._asked = asked
            except ValueError as error:
                self.skipped["COMFY_ENV_HOST_ARGS"] = f"it can not be read: {error}"
        if environ.get("COMFY_CPU", "").strip().lower() not in _OFF:
            self._asked["cpu"] = True

    def apply(self, module: Any) -> None:
        """The post-import hook of comfy.cli_args."""
        arguments = self._arguments = module.args
        for name, value in self._asked.items():
            if name == ATTENTION:
                continue
            if not hasattr(arguments, name):
                self.skipped[name] = "this ComfyUI has no such flag"
                continue
            if name == "directml" and value is not None and not _importable("torch_directml"):
                self.skipped[name] = "torch_directml is not installed in this environment"
                continue
            try:
                setattr(arguments, name, _converted(name, value, getattr(arguments, name), module))
            except ValueError as error:
                self.skipped[name] = str(error)
                continue
            self._applied.append(name)
        if isinstance(self._asked.get(ATTENTION), str):
            self._attention(arguments, self._asked[ATTENTION])

    def _attention(self, arguments: Any, backend: str) -> None:
        flags, package = _BACKENDS.get(backend, ({}, ""))
        if not flags:
            self.skipped[ATTENTION] = f"{backend!r} is no backend that is known here"
        elif package and not _importable(package):
            self.skipped[ATTENTION] = f"{package} is not installed in this environment"
        else:
            for name, value in flags.items():
                if hasattr(arguments, name):
                    setattr(arguments, name, value)

    def read_back(self) -> dict[str, Any]:
        """The flags that were set, as they are now: enum members as their values, sets as sorted lists."""
        return {name: plain(getattr(self._arguments, name, None)) for name in self._applied}


def plain(value: Any) -> Any:
    """A flag's value as JSON."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _converted(name: str, value: Any, present: Any, module: Any) -> Any:
    """A value in the type that ComfyUI has for the flag. Raises ValueError."""
    if isinstance(present, Enum):
        return type(present)(value)
    if isinstance(present, (set, frozenset)) and isinstance(value, list):
        kind = getattr(module, "PerformanceFeature", None)
        if name == "fast" and kind is not None:
            return {kind(item) for item in value}
        return set(value)
    if name == "verbose" and isinstance(value, list):
        return [tuple(output) if isinstance(output, list) else output for output in value]
    return value


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
