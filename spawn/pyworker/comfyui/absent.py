"""Packages that ComfyUI's own modules import for what a pack may never use, where the environment lacks them.

`comfy_api` imports PyAV for its video types, and nearly every V3 node imports `comfy_api`. It gets modules whose names are
all there and say what is missing once they are used. Nobody else sees them: a pack that looks for the package finds
that it is not installed.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

PACKAGES = {"av": "ComfyUI's video types need it"}
IMPORTER = "comfy_api"


class Absent:
    """A finder that is asked when no other one knows a package."""

    def __init__(self) -> None:
        sys.meta_path.append(self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Part of the protocol of finders."""
        package = name.partition(".")[0]
        if package not in PACKAGES or not _asked_by_comfy_api():
            return None
        return ModuleSpec(name, _Loader(), is_package=True)

    def invalidate_caches(self) -> None:
        """Part of the protocol of finders; there are none."""

    @staticmethod
    def forget(_: Any = None) -> None:
        """Takes the modules back once ComfyUI's have them."""
        for name, module in list(sys.modules.items()):
            if type(module) is _Module:
                del sys.modules[name]


def _asked_by_comfy_api() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if not name.startswith(("importlib.", "_frozen_importlib")) and name != "comfy_supervisor_worker.worker.imports":
            return name.partition(".")[0] == IMPORTER
        frame = frame.f_back  # type: ignore[assignment]
    return False


class _Loader:
    """Makes the module, in which nothing is to be executed."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Missing(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Missing(type):
    """The class of every name: good for annotations and isinstance, and for nothing else."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        raise missing(cls.__module__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(cls.__module__)


def missing(module: str) -> ModuleNotFoundError:
    """What says that a package is to be added to the environment."""
    package = module.partition(".")[0]
    text = f'No module named {package!r}: {PACKAGES[package]}; add {package} = "*" to [pypi-dependencies] of comfy-env.toml'
    return ModuleNotFoundError(text, name=package)
