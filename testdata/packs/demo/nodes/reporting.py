"""What a worker's process looks like from inside, counting, and an error."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import comfy.utils


def installed(package: str) -> str | None:
    """A package's version in this environment, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class DemoReport:
    """Says which process it runs in."""

    CATEGORY = "demo"
    FUNCTION = "report"
    RETURN_TYPES = ("STRING",)
    RETURN_NAMES = ("report",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def report(self):
        packages = ("numpy", "pillow", "comfy-aimdo", "comfy-kitchen", "torch")
        return (
            {
                "pid": os.getpid(),
                "python": platform.python_version(),
                "prefix": sys.prefix,
                "greeting": os.environ.get("DEMO_GREETING"),
                "threads": os.environ.get("OMP_NUM_THREADS"),
                "packages": {name: installed(name) for name in packages},
                "torch imported": "torch" in sys.modules,
            },
        )


class DemoProgress:
    """Counts, with a pause after each step, and reports how far it got."""

    CATEGORY = "demo"
    FUNCTION = "count"
    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "steps": ("INT", {"default": 8, "min": 1, "max": 1000}),
                "pause": ("FLOAT", {"default": 0.12, "min": 0.0, "max": 10.0}),
            }
        }

    def count(self, steps, pause):
        bar = comfy.utils.ProgressBar(steps)
        for _ in range(steps):
            time.sleep(pause)
            bar.update(1)
        return (steps,)


class DemoReadFile:
    """Reads a text file; one that is not there raises FileNotFoundError."""

    CATEGORY = "demo"
    FUNCTION = "read"
    RETURN_TYPES = ("STRING",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"path": ("STRING", {"default": ""})}}

    def read(self, path):
        return (Path(path).read_text(encoding="utf-8"),)
