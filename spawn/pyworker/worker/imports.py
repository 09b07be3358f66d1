"""Being told when a module has been imported, whoever imports it."""

from __future__ import annotations

import sys
from typing import Any, Callable


class ImportHooks:
    """A finder that finds nothing of its own: it wraps the loader of the modules it watches."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[[Any], None]]] = {}
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def watch(self, name: str, hook: Callable[[Any], None]) -> None:
        """Calls `hook(module)` once the module has been executed; at once if it is there already.

        Several hooks of one module are called in the order in which they came.
        """
        self._hooks.setdefault(name, []).append(hook)
        module = sys.modules.get(name)
        if module is not None and not getattr(
            getattr(module, "__spec__", None), "_initializing", False
        ):
            hook(module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Asks the other finders, and wraps the loader of what is watched."""
        hooks = self._hooks.get(name)
        if hooks is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, hooks)
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Part of the protocol of finders; there are none."""


class _Loader:
    """A module's own loader, followed by hooks."""

    def __init__(self, loader: Any, hooks: list[Callable[[Any], None]]) -> None:
        self._loader = loader
        self._hooks = hooks

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = (
            self._loader
        )  # what inspects the module sees its own
        self._loader.exec_module(module)
        for hook in tuple(self._hooks):
            hook(sys.modules.get(module.__name__, module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
