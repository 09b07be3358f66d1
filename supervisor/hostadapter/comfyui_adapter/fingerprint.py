"""What a scan depends on, as one hash of bytes: time stamps lie after a copy, a checkout or a restore."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# What a pack's import or its INPUT_TYPES may read of its own. Weights, pictures and the like are left out for speed.
_SUFFIXES = frozenset((".py", ".toml", ".json", ".yaml", ".yml", ".txt", ".ini", ".cfg", ".csv", ".js", ".pyi"))
_LARGEST_FILE = 4 << 20  # bytes; beyond it the size alone counts
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", ".git", ".github"))


def fingerprint(pack: Path, *facts: str) -> str:
    """A hash of a pack's source files and of what else a scan's result depends on. Files that can not be read count
    as absent."""
    digest = hashlib.sha256()
    for fact in facts:
        encoded = fact.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(encoded) + encoded)
    top = str(pack)
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in _SUFFIXES:
                path = os.path.join(folder, name)
                _add(digest, os.path.relpath(path, top), path)
    return digest.hexdigest()[:40]


def _add(digest: hashlib._Hash, name: str, path: str) -> None:
    try:
        size = os.stat(path).st_size
        content = b""
        if size <= _LARGEST_FILE:
            with open(path, "rb") as file:
                content = file.read()
    except OSError:
        return
    encoded = name.encode("utf-8", "surrogateescape")
    digest.update(b"%d:%s%d:" % (len(encoded), encoded, size))
    digest.update(content)
