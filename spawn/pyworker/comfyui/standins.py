"""Modules that a worker's pack can import although its environment lacks them, or must not have the real ones.

`server` is always ours: the real one would need a web server. `aiohttp` is ours only where it is not installed, and for
the pack's own modules only: libraries look whether it is there and go other ways when it is not.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, Callable


class StandIns:
    """Finders for the stand-ins; one object per process."""

    def __init__(self, pack_directory: str) -> None:
        self._pack = os.path.join(os.path.realpath(pack_directory), "")
        self._made: dict[str, types.ModuleType] = {}
        self._makers: dict[str, Callable[[], dict[str, types.ModuleType]]] = {}

    def install(self, modules: dict[str, types.ModuleType]) -> None:
        """Makes modules importable under their names, in place of real ones."""
        sys.modules.update(modules)

    def offer(self, name: str, make: Callable[[], dict[str, types.ModuleType]]) -> None:
        """Offers a package to the pack's own modules, if no other finder has it."""
        if not self._makers:
            sys.meta_path.append(self)  # type: ignore[arg-type]
        self._makers[name] = make

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Part of the protocol of finders; asked when nobody else knows the name."""
        package = name.partition(".")[0]
        make = self._makers.get(package)
        if make is None or not self._asked_by_pack():
            return None
        if package not in self._made:
            self._made.update(make())
        module = self._made.get(name)
        return None if module is None else importlib.util.spec_from_loader(name, _Given(module))

    def _asked_by_pack(self) -> bool:
        """Whether the import statement stands in one of the pack's files."""
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if frame.f_globals.get("__name__") != __name__ and "importlib" not in file:
                return os.path.realpath(file).startswith(self._pack)
            frame = frame.f_back  # type: ignore[assignment]
        return False


class _Given:
    """A loader of a module that exists already."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def create_module(self, spec: Any) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is left to do."""
