"""The operator's settings that count inside ComfyUI, from the variables that `run` and `env` set."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

_SCAN_SECONDS = 300.0
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h)?)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")


def scan_seconds() -> float:
    """How long ComfyUI's start may wait for a worker to start, import its pack and describe it."""
    return _seconds(os.environ.get("COMFY_SUPERVISOR_SCAN", "")) or _SCAN_SECONDS


def keeps_scanned() -> bool:
    """Whether the worker that described a pack goes on running."""
    return os.environ.get("COMFY_SUPERVISOR_KEEP_SCANNED", "").strip() == "yes"


def falls_back_to_host(manifest: Path | None = None) -> bool:
    """Whether nodes whose environment can not be used are imported here, as their manifest or the operator says."""
    try:
        own = json.loads(os.environ.get("COMFY_SUPERVISOR_FALLBACKS") or "{}")
    except ValueError:
        own = {}
    if manifest is not None and isinstance(own, dict):
        place = os.path.realpath(manifest)
        for path, fallback in own.items():
            if os.path.realpath(path) == place:
                return fallback == "host"
    return os.environ.get("COMFY_SUPERVISOR_FALLBACK", "").strip() == "host"


def _seconds(text: str) -> float:
    """A duration as the settings have it ("90s", "1m30s", a number of seconds); 0 for anything else."""
    text = text.strip()
    if not _DURATION.fullmatch(text):
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
