"""copy_files: a pack's assets into ComfyUI's folders, wherever the host has put those."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Union

PathLike = Union[str, "os.PathLike[str]"]

_COMFYUI_FOLDERS = {
    "input": "get_input_directory",
    "output": "get_output_directory",
    "temp": "get_temp_directory",
    "user": "get_user_directory",
}


def copy_into(src: PathLike, dst: PathLike, pattern: str, overwrite: bool, caller: Path) -> int:
    """Copies the files of `src` that match `pattern` into `dst`; returns how many were copied.

    Relative paths are relative to the caller's folder; a `dst` that begins with input, output, temp or user means
    ComfyUI's folder of that name. An existing file stays unless `overwrite`. Raises OSError.
    """
    source = Path(src) if os.path.isabs(src) else caller / src
    target = destination(dst, caller)
    if not source.exists():
        return 0
    target.mkdir(parents=True, exist_ok=True)
    copied = 0
    for file in sorted(source.glob(pattern)):
        if not file.is_file():
            continue
        place = target / file.relative_to(source)
        if place.exists() and not overwrite:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)
        copied += 1
    return copied


def destination(dst: PathLike, caller: Path) -> Path:
    """Where copy_into copies to."""
    if os.path.isabs(dst):
        return Path(dst)
    parts = Path(dst).parts
    getter = _COMFYUI_FOLDERS.get(parts[0]) if parts and isinstance(dst, str) else None
    if getter is not None:
        try:
            import folder_paths
        except ImportError:
            return caller / dst  # outside ComfyUI
        return Path(getattr(folder_paths, getter)(), *parts[1:])
    return caller / dst
