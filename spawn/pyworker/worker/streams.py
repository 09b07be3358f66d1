"""The standard streams of a worker: input from nothing, output to the pipes that the launcher
reads.
"""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Points descriptor 0 at the null device and makes the output streams line buffered and unable
    to fail on text.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)
    os.set_inheritable(0, True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def flush() -> None:
    """Lets half lines out: print(end="") and sys.stdout.write. Whatever a pack put in their place
    is allowed to fail.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # None, closed, or a pack's own object
