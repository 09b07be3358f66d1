"""What a scan depends on, as one hash of bytes: time stamps lie after a copy, a checkout or a restore."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Iterator, NamedTuple

# What a pack's import or its INPUT_TYPES may read of its own. Weights, pictures and the like are left out for speed.
_SUFFIXES = frozenset((".py", ".toml", ".json", ".yaml", ".yml", ".txt", ".ini", ".cfg", ".csv", ".js", ".pyi"))
_LARGEST_FILE = 4 << 20  # bytes; beyond it the size alone counts
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", ".git", ".github"))
_SETTLED_NANOSECONDS = 3_000_000_000  # some file systems count time in steps of two seconds
# Windows does not say when a file was last changed in any way, only when it was written, which programs set.
_STAMPS_HOLD = os.name != "nt"


class Stamp(NamedTuple):
    """What differs once a file is written, replaced or moved while this process looks."""

    name: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


class Fingerprints:
    """Fingerprints of packs, each hashed once in this process for as long as its files are left alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[list[Stamp], str]] = {}

    def get(self, pack: Path, *facts: str) -> str:
        """The same as `fingerprint`."""
        key = (str(pack), *facts)
        known = self._known.get(key)
        if known is not None and known[0] == [stamp for _, stamp in _files(pack)]:
            return known[1]
        begun = time.time_ns()
        stamps, mark = _read(pack, facts)
        newest = max((max(stamp.modified, stamp.changed) for stamp in stamps), default=0)
        if _STAMPS_HOLD and newest < begun - _SETTLED_NANOSECONDS:  # a change from now on leaves other stamps
            self._known[key] = stamps, mark
        return mark


def fingerprint(pack: Path, *facts: str) -> str:
    """A hash of a pack's source files and of what else a scan's result depends on. Files that can not be read count
    as absent."""
    return _read(pack, facts)[1]


def _read(pack: Path, facts: tuple[str, ...]) -> tuple[list[Stamp], str]:
    digest = hashlib.sha256()
    for fact in facts:
        encoded = fact.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(encoded) + encoded)
    stamps = []
    for path, stamp in _files(pack):
        stamps.append(stamp)
        content = b""
        if stamp.size <= _LARGEST_FILE:
            try:
                with open(path, "rb", buffering=0) as file:
                    content = file.readall()
            except OSError:
                continue
        encoded = stamp.name.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%s%d:" % (len(encoded), encoded, stamp.size))
        digest.update(content)
    return stamps, digest.hexdigest()[:40]


def _files(pack: Path) -> Iterator[tuple[str, Stamp]]:
    """The paths of the files that count, in an order of their own; stamps have names relative to the pack."""
    folders = [(str(pack), "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue
        below = []
        for entry in entries:
            name = entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if name not in _SKIPPED_FOLDERS and not name.startswith("."):
                        below.append((entry.path, prefix + name + os.sep))
                elif os.path.splitext(name)[1].lower() in _SUFFIXES:
                    found = os.stat(entry.path)
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    times = found.st_mtime_ns, found.st_ctime_ns
                    yield entry.path, Stamp(prefix + name, found.st_dev, found.st_ino, found.st_size, *times)
            except OSError:
                continue
        folders.extend(reversed(below))
