"""Class attributes and input types of a pack, built from what its worker found them to hold and to do.

The other half is comfyui/shapes.py of the worker program, which documents the JSON.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

# The packages of ComfyUI whose str classes are used as they are when the host has loaded them.
_COMFYUI_PACKAGES = ("comfy", "comfy_api", "comfy_execution", "nodes", "comfy_extras")


class PickyString(str):
    """A str that compares as the pack's own class does."""

    never_differs: bool = False
    always_equals: bool = False
    equal_to: frozenset[str] = frozenset()
    within: bool = False

    def __ne__(self, other: object) -> bool:
        if self.never_differs or (isinstance(other, str) and str.__str__(other) in self.equal_to):
            return False
        if self.within and isinstance(other, str) and set(str.split(self, ",")) <= set(str.split(other, ",")):
            return False
        return str.__ne__(self, other)

    def __eq__(self, other: object) -> bool:
        return True if self.always_equals else str.__eq__(self, other)

    __hash__ = str.__hash__


class OpenTuple(tuple):
    """A tuple that answers indices as the pack's own class does, also past its end."""

    at: list[Any]
    beyond: Any
    endless: bool

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and index >= 0:
            if index < len(self.at):
                return self.at[index]
            if self.endless:
                return self.beyond
        return tuple.__getitem__(self, index)


class OpenDict(dict):
    """A dict that contains more names than it lists."""

    any: Any
    every_name: bool
    families: list[tuple[str, Any]]

    def _answer(self, key: Any) -> tuple[bool, Any]:
        if self.every_name:
            return True, self.any
        if isinstance(key, str):
            for prefix, answer in self.families:
                if key.startswith(prefix) and key[len(prefix) :].isdigit():
                    return True, answer
        return False, None

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or self._answer(key)[0]

    def __missing__(self, key: Any) -> Any:
        known, answer = self._answer(key)
        if not known:
            raise KeyError(key)
        if isinstance(answer, Foreign):
            raise KeyError(f"{key}: {answer.why}")
        return answer

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def copy(self) -> OpenDict:
        """A shallow copy that answers the same names."""
        made = OpenDict(self)
        made.__dict__.update(self.__dict__)
        return made


class Foreign(str):
    """Stands where a pack has an object that can not be described: text, so that the browser can still be told of the
    node. Natively one such object takes all of /object_info down."""

    type_name: str
    why: str

    def __new__(cls, type_name: str, text: str, why: str) -> Foreign:
        made = super().__new__(cls, f"<{type_name} of a worker: {text}>")
        made.type_name = type_name
        made.why = why
        return made


class Builder:
    """Builds the values of one document."""

    def __init__(self, tables: list[list[str]], for_json: bool = False) -> None:
        """`for_json`: what is built goes to the browser, so sets become lists and bytes text."""
        self._tables = tables
        self._for_json = for_json

    def build(self, described: Any) -> Any:
        """The value that a description stands for. Raises ValueError for what is no description."""
        if isinstance(described, list):
            return [self.build(item) for item in described]
        if not isinstance(described, dict):
            return described
        if len(described) == 1:
            ((tag, content),) = described.items()
            if tag.startswith("$"):
                return self._tagged(tag, content)
        return {key: self.build(item) for key, item in described.items()}

    def _tagged(self, tag: str, content: Any) -> Any:
        if tag == "$tuple":
            return self._tuple(content)
        if tag == "$map":
            return self._map(content)
        if tag == "$str":
            return _string(content)
        if tag == "$same":
            return list(self._tables[content])
        if tag == "$dict":
            return {self.build(key): self.build(item) for key, item in content}
        if tag == "$float":
            return float(content)
        if tag == "$set":
            items = [self.build(item) for item in content]
            return items if self._for_json else set(items)
        if tag == "$bytes":
            data = base64.b64decode(content)
            return repr(data) if self._for_json else data
        if tag == "$foreign":
            return Foreign(content["type"], content["repr"], content.get("why", ""))
        raise ValueError(f"a description of an unknown kind, {tag!r}")

    def _tuple(self, content: dict[str, Any]) -> tuple[Any, ...]:
        items = [self.build(item) for item in content["items"]]
        if "at" not in content:
            return tuple(items)
        made = OpenTuple(items)
        made.at = [self.build(item) for item in content["at"]]
        made.endless = "beyond" in content
        made.beyond = self.build(content.get("beyond"))
        return made

    def _map(self, content: dict[str, Any]) -> dict[Any, Any]:
        items = {self.build(key): self.build(item) for key, item in content["items"]}
        if "any" not in content and "families" not in content:
            return items
        made = OpenDict(items)
        made.every_name = "any" in content
        made.any = self.build(content.get("any"))
        made.families = [(prefix, self.build(answer)) for prefix, answer in content.get("families", ())]
        return made


def _string(content: dict[str, Any]) -> str:
    text = content["text"]
    module_name, class_name = content["class"]
    if module_name.split(".", 1)[0] in _COMFYUI_PACKAGES:
        kind = getattr(sys.modules.get(module_name), class_name, None)
        if isinstance(kind, type) and issubclass(kind, str):
            try:
                return kind(text)
            except ValueError:
                pass  # an enum of another version of ComfyUI, without this member
    if not any(content.get(key) for key in ("never_differs", "always_equals", "equal_to", "within")):
        return text
    made = PickyString(text)
    made.never_differs = bool(content.get("never_differs"))
    made.always_equals = bool(content.get("always_equals"))
    made.within = bool(content.get("within"))
    made.equal_to = frozenset(content.get("equal_to", ()))
    return made


def copied(value: Any, depth: int = 5) -> Any:
    """A copy of an INPUT_TYPES value, or of what a V3 node says of itself, down to the inputs' options: nobody's change
    reaches the cache. Lists of choices are shared."""
    if depth <= 0:
        return value
    if isinstance(value, OpenDict):
        made = value.copy()
        for key, item in made.items():
            dict.__setitem__(made, key, copied(item, depth - 1))
        return made
    if type(value) is dict:
        return {key: copied(item, depth - 1) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(copied(item, depth - 1) for item in value)
    return value
