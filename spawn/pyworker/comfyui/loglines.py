"""logging in a worker: every record a line on stderr, with its level in front, where the host can read it.

Natively a pack logs through the handlers that ComfyUI's main.py sets up; here nobody would have.
"""

from __future__ import annotations

import logging
import os
import sys


class LevelFormatter(logging.Formatter):
    """[LEVEL] message."""

    def __init__(self) -> None:
        super().__init__("[%(levelname)s] %(message)s")


def configure_logging() -> None:
    """Sets up the root logger unless the pack's interpreter has done so: at the host's level, to stderr."""
    root = logging.getLogger()
    name = os.environ.get("COMFY_ENV_HOST_LOG_LEVEL", "").strip().upper()
    logging.addLevelName(15, "DETAIL")  # ComfyUI's own, between DEBUG and INFO
    level = int(name) if name.isdigit() else logging.getLevelName(name)
    root.setLevel(level if isinstance(level, int) else logging.INFO)
    if not root.handlers:
        handler = _StderrHandler()
        handler.setFormatter(LevelFormatter())
        root.addHandler(handler)


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever sys.stderr is at the moment: packs replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[no-untyped-def]
        """The present stderr."""
        return sys.stderr
