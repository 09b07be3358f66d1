"""PROMPT and EXTRA_PNGINFO in a worker: one object for all nodes of a prompt, and what they wrote into it.

Each crosses once per prompt: the host names it by a mark and sends its content only when this worker lacks it. What a
node changed goes back with the call's answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..calls import Refused
from ..wire.errors import error_object
from ..wire.marks import mark

_KEPT = 16  # objects; a prompt has two


class Unknown(Refused):
    """The host named an object that this worker does not have (any more): it calls again with the content."""

    def __init__(self) -> None:
        super().__init__(error_object("resend", "the worker does not have this prompt any more"))


class LiveObjects:
    """The objects that this worker knows by their mark."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Any] = OrderedDict()

    def take(self, sent: dict[str, Any]) -> Any:
        """The object for {"mark": .., "value": ..}; without a value it must be known. Raises Unknown."""
        name = sent["mark"]
        if "value" not in sent:
            if name not in self._known:
                raise Unknown
            self._known.move_to_end(name)
            return self._known[name]
        value = sent["value"]
        if name:
            if name in self._known:
                return self._known[name]
            self._known[name] = value
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return value

    def changed(self, sent: dict[str, Any], value: Any) -> bool:
        """Whether a node changed an object; it is then known under its new mark."""
        if value is None:
            return False
        now = mark(value)
        if now == sent["mark"] and now:
            return False
        self._known.pop(sent["mark"], None)
        if now:
            self._known[now] = value
        return True
