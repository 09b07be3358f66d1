"""folder_paths in a worker: the host's registry, extra model paths and redirected directories included.

A pack that registers a folder of its own at import does so for the whole ComfyUI natively; what it adds here is
reported, and the host adds it too.
"""

from __future__ import annotations

import os
from typing import Any

_DIRECTORIES = {
    "output": "output_directory",
    "temp": "temp_directory",
    "input": "input_directory",
    "user": "user_directory",
}


class Folders:
    """The host's registry as last heard, and what the pack added to it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._module: Any = None
        self.version = ""  # of what was last heard; the host compares it

    def hear(self, described: dict[str, Any], version: str = "") -> None:
        """Takes over the host's registry; applied at once if folder_paths is imported, else when it is."""
        self._known = described
        self.version = version
        if self._module is not None:
            self.apply(self._module)

    def apply(self, module: Any) -> None:
        """The post-import hook of folder_paths."""
        self._module = module
        known = self._known
        if not known:
            return
        for name in ("base_path", "models_dir"):
            if known.get(name):
                setattr(module, name, known[name])
        for name, attribute in _DIRECTORIES.items():
            if known.get(name):
                setattr(module, attribute, known[name])
        supported = getattr(module, "supported_pt_extensions", set())
        registry = module.folder_names_and_paths
        for name in [name for name in registry if name not in known["names"]]:
            del registry[name]
        for name, (paths, extensions) in known["names"].items():
            # The one set of model extensions is shared natively: packs extend it for all folders at once.
            kept = supported if supported and set(extensions) == set(supported) else set(extensions)
            registry[name] = (list(paths), kept)
        cache = getattr(module, "filename_list_cache", None)
        if isinstance(cache, dict):
            cache.clear()

    def added(self) -> list[list[Any]]:
        """[name, paths, extensions] of what the pack registered beyond the host's registry."""
        if self._module is None or not self._known:
            return []
        result = []
        names = self._known["names"]
        for name, (paths, extensions) in self._module.folder_names_and_paths.items():
            before = {os.path.normpath(path) for path in names.get(name, ((), ()))[0]}
            new = [str(path) for path in paths if os.path.normpath(path) not in before]
            if new or name not in names:
                result.append([name, new, sorted(str(extension) for extension in extensions)])
        return result
