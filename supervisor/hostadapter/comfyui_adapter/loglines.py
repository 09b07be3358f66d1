"""Lines of workers in ComfyUI's log, with the pack's name, at the level that the worker gave them."""

from __future__ import annotations

import logging
import re
from typing import Any

_LEVEL = re.compile(r"\[(DEBUG|DETAIL|INFO|WARNING|ERROR|CRITICAL)\] (.*)\Z", re.DOTALL)
_NUMBERS = {"DEBUG": 10, "DETAIL": 15, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class LogLines:
    """Shows lines through the root logger, as ComfyUI's own lines are."""

    def show(self, pack: str, line: dict[str, Any]) -> None:
        """Shows one line. On the thread that reads."""
        text = str(line.get("line", ""))
        level = logging.INFO
        found = _LEVEL.match(text)
        if found is not None:
            level, text = _NUMBERS[found.group(1)], found.group(2)
        elif line.get("stream") == "supervisor":
            level = logging.WARNING
        logging.log(level, "[%s] %s", pack, text)
