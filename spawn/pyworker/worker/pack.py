"""Importing a pack's nodes, under a name that nothing else has."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

from . import contract

REPORTED_PACKAGES = ("comfy-aimdo", "comfy-kitchen", "torch", "numpy")


class Pack:
    """A pack's node classes, once imported."""

    def __init__(self) -> None:
        self.nodes: dict[str, type] = {}
        self.display_names: dict[str, str] = {}
        self.module: Any = None

    def load(self, params: dict[str, Any], run: Callable[[Any], Any]) -> None:
        """Imports the package in params["pack"]["nodes"]; `run` runs a coroutine. Raises whatever
        the pack raises.
        """
        pack = params["pack"]
        comfyui = params.get("comfyui") or ""
        if comfyui:
            sys.path.insert(
                0, comfyui
            )  # as natively: the folder of main.py comes first, so `import nodes` is ComfyUI's
        if pack.get("directory"):
            sys.path.append(pack["directory"])  # last: it shadows nothing
        sys.argv[:] = [os.path.join(comfyui, "main.py") if comfyui else ""]
        self.module = _import_package(pack["nodes"], pack["unique_name"])
        self._collect(run)

    def _collect(self, run: Callable[[Any], Any]) -> None:
        mappings = getattr(self.module, "NODE_CLASS_MAPPINGS", None)
        if isinstance(mappings, dict):
            self.nodes.update((str(name), node) for name, node in mappings.items())
            names = getattr(self.module, "NODE_DISPLAY_NAME_MAPPINGS", None)
            if isinstance(names, dict):
                self.display_names.update((str(name), str(text)) for name, text in names.items())
        elif callable(getattr(self.module, "comfy_entrypoint", None)):
            self._collect_extension(run)

    def _collect_extension(self, run: Callable[[Any], Any]) -> None:
        """Nodes of the newer kind, in the order in which ComfyUI's loader asks for them."""
        extension = self.module.comfy_entrypoint()
        if hasattr(extension, "__await__"):
            extension = run(extension)
        if hasattr(extension, "on_load"):
            run(extension.on_load())
        for node in run(extension.get_node_list()):
            schema = node.GET_SCHEMA()
            self.nodes[schema.node_id] = node
            if getattr(schema, "display_name", None) is not None:
                self.display_names[schema.node_id] = schema.display_name

    def describe(self, failure: Callable[[BaseException], dict[str, Any]]) -> dict[str, Any]:
        """All contracts, as the `nodes` request answers them."""
        contracts = [
            contract.describe_node(name, node, failure) for name, node in self.nodes.items()
        ]
        return {"nodes": contracts, "display_names": self.display_names}


def _import_package(directory: str, name: str) -> Any:
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from importlib.util import module_from_spec

    path = os.path.join(directory, "__init__.py")
    if not os.path.isfile(path):
        raise ImportError(f"the pack's nodes folder has no __init__.py: {path}", path=path)
    loader = SourceFileLoader(name, path)
    spec = ModuleSpec(name, loader, origin=path, is_package=True)
    spec.submodule_search_locations = [directory]
    spec.has_location = True
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return sys.modules.get(name, module)


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """The versions of installed distributions, read from the names of their metadata folders;
    nothing is imported.
    """
    found: dict[str, str] = {}
    wanted = {name.replace("-", "_").lower(): name for name in names}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            if entry.endswith(".dist-info"):
                project, _, version = entry[: -len(".dist-info")].partition("-")
                name = wanted.get(project.lower())
                if name is not None and name not in found:
                    found[name] = version
    return found
