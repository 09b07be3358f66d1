"""The plain attributes of a node object, carried to the host after each call and back after a restart.

Packs keep settings, counters and file names on self. A worker that was replaced would have forgotten them; the object
starts from them again, and everything else from __init__.
"""

from __future__ import annotations

import os
from typing import Any

from ..wire.marks import is_plain

MOST_BYTES = 8 << 20  # of all attributes together; the existing launcher's limit
_OFF = ("0", "false", "no", "off")


def enabled() -> bool:
    """Whether state is carried at all: COMFY_ENV_NODE_STATE switches it off."""
    return os.environ.get("COMFY_ENV_NODE_STATE", "").strip().lower() not in _OFF


class StateWatch:
    """What was last reported of one object."""

    def __init__(self) -> None:
        self._reported: dict[str, bytes] = {}

    def restore(self, target: Any, state: dict[str, Any]) -> None:
        """Sets the attributes that the object's predecessor had. An attribute that refuses is left as it is."""
        for name, value in state.items():
            try:
                setattr(target, name, value)
            except Exception:
                continue
            data = is_plain(value, MOST_BYTES)
            if data is not None:
                self._reported[name] = data

    def changed(self, target: Any) -> dict[str, Any] | None:
        """All plain attributes if any of them is new, another or gone since the last report; else None."""
        attributes = getattr(target, "__dict__", None)
        if not isinstance(attributes, dict):
            return None
        found: dict[str, bytes] = {}
        left = MOST_BYTES
        for name, value in list(attributes.items()):
            data = is_plain(value, left) if isinstance(name, str) else None
            if data is not None:
                found[name] = data
                left -= len(data)
        if found == self._reported:
            return None
        self._reported = found
        return {name: attributes[name] for name in found}
