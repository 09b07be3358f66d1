"""Scans kept between starts of ComfyUI: one JSON file for each environment, valid while the fingerprint is the same.

An outdated one is kept until the next scan replaces it: a pack whose environment is gone can still show its nodes.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1  # of the file; another one counts as no scan
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Scan:
    """What a worker said about its pack: nodes (contracts), display_names, routes, tables ..."""

    fingerprint: str
    document: dict[str, Any]


class ScanCache:
    """Scans below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, place: str) -> Scan | None:
        """The last scan of a place (an environment of one pack folder), whatever it was made from."""
        try:
            text = self._path(place).read_text(encoding="utf-8")
            document = json.loads(text)
            if document["format"] != FORMAT or document["place"] != place:
                return None
            return Scan(document["fingerprint"], document["scan"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, place: str, scan: Scan) -> None:
        """Keeps a scan; the file appears whole or not at all. Raises OSError."""
        document = {"format": FORMAT, "place": place, "fingerprint": scan.fingerprint, "scan": scan.document}
        path = self._path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(document, file, separators=(",", ":"))
            os.replace(temporary, path)
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise

    def _path(self, place: str) -> Path:
        # Two places whose names differ in odd characters only share a file; `place` inside it tells them apart.
        return self._folder / (_UNSAFE.sub("_", place)[-120:] + ".json")


def cache_folder() -> Path:
    """Where scans are kept: the folder that the supervisor's settings call the cache."""
    named = os.environ.get("COMFY_SUPERVISOR_CACHE_DIR")
    if named:
        return Path(named) / "scans"
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "comfy-supervisor" / "cache" / "scans"
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        base = str(Path.home() / ("Library/Caches" if os.uname().sysname == "Darwin" else ".cache"))
    return Path(base) / "comfy-supervisor" / "scans"
