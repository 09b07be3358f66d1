"""Where a pack's import hangs, read from the stacks of a worker that was not ready in time."""

from __future__ import annotations

import os
import re
from pathlib import Path

_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+), in (\S+)')


def place(lines: list[str], pack: Path) -> str:
    """The innermost line of the pack that its main thread is at, and what that is waiting for; "" when it is not to be
    seen. `lines` are the stacks as Python prints them."""
    frames: list[tuple[str, str, str]] = []
    main = False
    for line in lines:
        if line.startswith("Thread "):
            main = line.startswith("Thread MainThread")
        match = _FRAME.match(line)
        if main and match is not None:
            frames.append((match[1], match[2], match[3]))
    root = os.path.realpath(pack) + os.sep
    own = [frame for frame in frames if (os.path.realpath(frame[0])).startswith(root)]
    if not own:
        return ""
    file, number, function = own[-1]
    text = f"{os.path.relpath(os.path.realpath(file), root)}, line {number}, in {function}"
    if frames[-1] != own[-1]:
        inner, at, name = frames[-1]
        text += f", which was at {inner}, line {at}, in {name}"
    return text
