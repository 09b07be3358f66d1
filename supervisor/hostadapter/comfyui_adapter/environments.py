"""Which built environment belongs to a manifest, as the supervisor knows them."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from dataclasses import dataclass
from typing import Any

from comfy_supervisor import errors

from . import hostfacts
from .discovery import Source


class Unusable(Exception):
    """An environment that can not be used; the text says what to do, and is all there is to say."""


@dataclass(frozen=True)
class Found:
    """An environment, or why there is none."""

    name: str = ""
    revision: str = ""
    problem: str = ""


class Environments:
    """The supervisor's list, asked once for a start of ComfyUI, and again for a manifest that is not on it."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._by_manifest: dict[str, dict[str, Any]] | None = None  # by real path
        self._failure = ""

    def find(self, source: Source, again: bool = True) -> Found:
        """The environment of a folder with a manifest; what is not on the list is asked for `again`. Never raises."""
        assert source.manifest is not None
        place = os.path.realpath(source.manifest)
        with self._lock:
            entry = self._look(place)
            if entry is None and again and not self._failure:
                self._by_manifest = None
                entry = self._look(place)
            failure = self._failure
        if failure:
            return Found(problem=failure)
        if entry is None:
            # A pack may have several, one for each folder below its package of nodes.
            which = f"the environment of {source.module}" if "." in source.module else "its environment"
            return Found(problem=f"{which} is not built: run `{build_command()}`")
        name, error = str(entry.get("name")), str(entry.get("error") or "")
        if error:
            return Found(name, "", f"its environment {name!r} can not be used: {error}; `{build_command()}` builds it")
        return Found(name, f"{entry.get('stack')}/{entry.get('revision')}")

    def _look(self, place: str) -> dict[str, Any] | None:
        if self._by_manifest is None:
            self._by_manifest = {}
            try:
                listed = self._link.session().environments()
                self._failure = ""
            except (errors.SupervisorError, OSError) as error:
                listed = []
                self._failure = f"the supervisor can not be reached: {error}"
            for entry in listed:
                manifest = os.path.realpath(str(entry.get("manifest")))
                known = self._by_manifest.get(manifest)
                # Of several for one manifest, the first that can be used counts.
                if known is None or (known.get("error") and not entry.get("error")):
                    self._by_manifest[manifest] = entry
        return self._by_manifest.get(place)


def build_command() -> str:
    """The command that builds the environments of this host's packs."""
    binary = os.environ.get("COMFY_SUPERVISOR_BINARY") or "comfy-supervisor"
    words = [binary, "build", "--comfyui", hostfacts.comfyui_directory() or ".", "--python", sys.executable]
    return " ".join(shlex.quote(word) for word in words)
