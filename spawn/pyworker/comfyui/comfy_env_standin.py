"""`comfy_env` as a pack's modules find it inside a worker: serializers are registered, the rest is done already."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import types
from typing import Any, Callable

from ..wire.codecs import Codecs


def modules(codecs: Codecs) -> dict[str, types.ModuleType]:
    """The modules, under every name that packs import them by."""
    register = _registrar(codecs)
    package = _module("comfy_env", "What a pack may call inside its worker.")
    package.register_serializer = register
    package.register_nodes = lambda nodes_package="nodes": ({}, {})
    package.install = lambda *_, **__: True
    package.setup_env = lambda node_dir=None: None
    package.copy_files = _copy_files
    package.__path__ = []
    made = {"comfy_env": package}
    for name in ("comfy_env.isolation", "comfy_env.isolation.workers"):
        made[name] = _module(name, package.__doc__ or "")
        made[name].__path__ = []
    for name in ("comfy_env.isolation.workers._ipc_shared", "_ipc_shared"):
        made[name] = _module(name, "The second spelling of register_serializer.")
        made[name].register_serializer = register
    made["comfy_env.isolation.wrap"] = _module("comfy_env.isolation.wrap", "Where register_nodes is looked for.")
    made["comfy_env.isolation.wrap"].register_nodes = package.register_nodes
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(made[parent], child, module)
    return made


def _module(name: str, doc: str) -> Any:
    return types.ModuleType(name, doc)


def _registrar(codecs: Codecs) -> Callable[..., None]:
    def register_serializer(
        type_name: str,
        serialize: Callable[[Any, Any], Any],
        deserialize: Callable[[Any, Any], Any] | None = None,
        tag: str | None = None,
    ) -> None:
        """Registers how objects of a class (by its name, or a base's) cross between processes."""
        codecs.register_pack(type_name, serialize, deserialize, tag)

    return register_serializer


def _copy_files(src: Any, dst: Any, pattern: str = "*", overwrite: bool = False) -> int:
    """Nothing: the host has copied the pack's files when it started."""
    return 0


def load_serializers(paths: str) -> None:
    """Runs the packs' serialization.py files, separated as PATH is; one that fails is named in the log."""
    for path in filter(None, paths.split(os.pathsep)):
        name = f"comfy_supervisor_serializers_{abs(hash(path)):x}"
        try:
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise ImportError(f"not a Python file: {path}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        except Exception as error:
            logging.warning("%s: its serializers are not registered: %s: %s", path, type(error).__name__, error)
