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
        self._list: list[dict[str, Any]] | None = None
        self._failure = ""

    def find(self, source: Source) -> Found:
        """The environment of a folder with a manifest. Never raises."""
        assert source.manifest is not None
        place = os.path.realpath(source.manifest)
        with self._lock:
            entry = self._look(place)
            if entry is None and not self._failure:
                self._list = None
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
        if self._list is None:
            try:
                self._list = self._link.session().environments()
                self._failure = ""
            except (errors.SupervisorError, OSError) as error:
                self._list = []
                self._failure = f"the supervisor can not be reached: {error}"
        matches = [entry for entry in self._list if os.path.realpath(str(entry.get("manifest"))) == place]
        usable = [entry for entry in matches if not entry.get("error")]
        return (usable or matches or [None])[0]


def build_command() -> str:
    """The command that builds the environments of this host's packs."""
    binary = os.environ.get("COMFY_SUPERVISOR_BINARY") or "comfy-supervisor"
    words = [binary, "build", "--comfyui", hostfacts.comfyui_directory() or ".", "--python", sys.executable]
    return " ".join(shlex.quote(word) for word in words)
