"""Which folders of a pack run in workers, and which packs ComfyUI is about to load.

The presence of comfy-env.toml is the switch, in exactly two places: <nodes package>/ and <nodes package>/<subfolder>/.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

MANIFEST = "comfy-env.toml"
NODES_PACKAGE = "nodes"  # what register_nodes looks for when it is not told otherwise


@dataclass(frozen=True)
class Source:
    """One folder of nodes."""

    directory: Path
    # The manifest that isolates it; None for a folder that the host imports.
    manifest: Path | None
    # The module below the pack, for example "nodes.fast".
    module: str


def skipped(name: str) -> bool:
    """Whether a folder of this name is private or switched off."""
    return name.startswith((".", "_")) or name.endswith(".disabled")


def isolated_sources(pack: Path, nodes_package: str = NODES_PACKAGE) -> list[Source]:
    """The folders of a pack that have a manifest; a manifest at the top takes the subfolders with it."""
    top = pack / nodes_package
    manifest = top / MANIFEST
    if manifest.is_file():
        return [Source(top, manifest, nodes_package)]
    return [
        Source(folder, folder / MANIFEST, f"{nodes_package}.{folder.name}")
        for folder in _subfolders(top)
        if (folder / MANIFEST).is_file()
    ]


def plain_subfolders(pack: Path, nodes_package: str = NODES_PACKAGE) -> list[Source]:
    """The subfolders without a manifest that are packages: the host imports them."""
    return [
        Source(folder, None, f"{nodes_package}.{folder.name}")
        for folder in _subfolders(pack / nodes_package)
        if not (folder / MANIFEST).is_file() and (folder / "__init__.py").is_file()
    ]


def _subfolders(top: Path) -> list[Path]:
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return []
    return [top / entry.name for entry in entries if entry.is_dir() and not skipped(entry.name)]


def packs_to_load() -> Iterator[Path]:
    """The pack folders that ComfyUI is going to load, under ComfyUI's own rules.

    Nothing when ComfyUI's modules are not there. What one rule's own failure hides is merely scanned later.
    """
    folder_paths = sys.modules.get("folder_paths")
    arguments = getattr(sys.modules.get("comfy.cli_args"), "args", None)
    if folder_paths is None or arguments is None:
        return
    only = getattr(arguments, "whitelist_custom_nodes", None) or []
    none_but_those = bool(getattr(arguments, "disable_all_custom_nodes", False))
    refuses = _manager_policy(arguments)
    for parent in folder_paths.get_folder_paths("custom_nodes"):
        try:
            names = sorted(os.listdir(parent))
        except OSError:
            continue
        for name in names:
            pack = Path(parent) / name
            if name == "__pycache__" or name.endswith(".disabled") or not (pack / "__init__.py").is_file():
                continue
            if none_but_those and name not in only:
                continue
            if refuses(str(pack)):
                continue
            yield pack


def _manager_policy(arguments: object):  # type: ignore[no-untyped-def]
    """ComfyUI-Manager's verdict on a pack's path, or one that refuses nothing."""
    manager = sys.modules.get("comfyui_manager")
    judge = getattr(manager, "should_be_disabled", None)
    if not getattr(arguments, "enable_manager", False) or judge is None:
        return lambda path: False

    def refuses(path: str) -> bool:
        try:
            return bool(judge(path))
        except Exception:
            return False

    return refuses
