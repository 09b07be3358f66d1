"""Class attributes and input types as JSON, together with what they do.

ComfyUI lets behaviour travel in data: a dict that contains every name, a str that differs from nothing, a tuple that
answers any index. As plain JSON they would lose their meaning and inputs would vanish without a word, so what a value
does is tried here and written down beside what it holds. The host's twin, comfyui_adapter/shapes.py, builds an
equivalent from it.

    JSON                                   stands for
    null, true, 1, 0.5, "a", [..], {..}    itself
    {"$float": "nan"}                      a float that JSON lacks
    {"$tuple": {"items": [..]}}            a tuple; "at": its own answers to indices, "beyond": to one past the end
    {"$dict": [[key, value], ..]}          a dict whose keys JSON can not hold
    {"$map": {"items": [[k, v], ..]}}      a subclass of dict; "any": what a name that nobody gave answers,
                                           "families": [[prefix, answer], ..] of numbered names
    {"$str": {"text": .., "class": ..}}    a subclass of str; "never_differs", "always_equals", "equal_to",
                                           "within" (equal to a list of types that has all of its own)
    {"$set": [..]}, {"$bytes": base64}     a set, bytes
    {"$same": n}                           the n-th long list of the document's "tables"
    {"$foreign": {"type": .., "repr": ..}} anything else
"""

from __future__ import annotations

import base64
import json
import math
from enum import Enum
from typing import Any

# Names and types that no pack defines.
_MADE_UP_NAMES = ("made_up_input_7f3a", "another_made_up_input_c51e")
_MADE_UP_TYPE = "A_TYPE_THAT_NOBODY_DEFINES_7F3A"
_TABLE_ITEMS = 16  # lists of at least this many strings are written once
_DEPTH = 64
_REPR_CHARACTERS = 200


class Describer:
    """Describes the values of one document; long lists of strings that come again are written once, in `tables`."""

    def __init__(self) -> None:
        self.tables: list[list[str]] = []
        self._table_of: dict[tuple[str, ...], int] = {}
        self._within: list[int] = []

    def describe(self, value: Any) -> Any:
        """The JSON of a value. Never raises: what can not be described is foreign."""
        try:
            return self._describe(value)
        except Exception as error:  # a pack's own __getitem__, __ne__ ... may raise anything
            return _foreign(value, f"{type(error).__name__}: {error}")

    def _describe(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str:
            return value
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool) or isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, (bytes, bytearray)):
            return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
        if not isinstance(value, (dict, list, tuple, set, frozenset)):
            return _foreign(value)
        if id(value) in self._within or len(self._within) >= _DEPTH:
            return _foreign(value, "it contains itself or is nested too deeply")
        self._within.append(id(value))
        try:
            if isinstance(value, dict):
                return self._dict(value)
            if isinstance(value, tuple):
                return self._tuple(value)
            if isinstance(value, (set, frozenset)):
                return {"$set": [self.describe(item) for item in sorted(value, key=repr)]}
            return self._list(value)
        finally:
            self._within.pop()

    def _list(self, value: list[Any]) -> Any:
        items = list(value)
        if len(items) >= _TABLE_ITEMS and all(type(item) is str for item in items):
            key = tuple(items)
            number = self._table_of.setdefault(key, len(self.tables))
            if number == len(self.tables):
                self.tables.append(items)
            return {"$same": number}
        return [self.describe(item) for item in items]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        described: dict[str, Any] = {"items": [self.describe(item) for item in value]}
        if type(value).__getitem__ is not tuple.__getitem__:
            described["at"] = [self.describe(value[index]) for index in range(len(value))]
            try:
                described["beyond"] = self.describe(value[len(value) + 7])
            except (IndexError, TypeError):
                pass
        return {"$tuple": described}

    def _dict(self, value: dict[Any, Any]) -> Any:
        items = [(key, self.describe(item)) for key, item in dict.items(value)]
        plain = type(value) is dict or not _overrides(type(value), dict)
        if plain:
            if all(type(key) is str and not key.startswith("$") for key, _ in items):
                return dict(items)
            return {"$dict": [[self.describe(key), item] for key, item in items]}
        described: dict[str, Any] = {"items": [[self.describe(key), item] for key, item in items]}
        if all(name in value for name in _MADE_UP_NAMES):
            described["any"] = self._answer(value, _MADE_UP_NAMES[0])
        else:
            families = self._families(value)
            if families:
                described["families"] = families
        return {"$map": described}

    def _answer(self, value: Any, name: str) -> Any:
        try:
            return self.describe(value[name])
        except Exception as error:
            return _foreign(None, f"{type(error).__name__}: {error}")

    def _families(self, value: dict[Any, Any]) -> list[list[Any]]:
        """The prefixes of numbered names ("input1", "any_02") for which the dict goes on past its last."""
        prefixes = {}
        for key in dict.keys(value):
            if isinstance(key, str) and key[-1:].isdigit():
                prefixes.setdefault(key.rstrip("0123456789"), None)
        return [
            [prefix, self._answer(value, f"{prefix}987")]
            for prefix in prefixes
            if f"{prefix}987" in value and not dict.__contains__(value, f"{prefix}987")
        ]

    def _string(self, value: str) -> Any:
        text = value.value if isinstance(value, Enum) else str.__str__(value)
        text = str.__str__(text)
        described: dict[str, Any] = {"text": text, "class": [type(value).__module__, type(value).__qualname__]}
        if not (value != _MADE_UP_TYPE):
            described["never_differs"] = True
        if value == _MADE_UP_TYPE:
            described["always_equals"] = True
        equal = [other for other in ("*", "IMAGE", "INT", "") if other != text and not (value != other)]
        if "never_differs" not in described:
            if equal:
                described["equal_to"] = equal
            if not (value != f"{text},{_MADE_UP_TYPE}"):
                described["within"] = True
        return {"$str": described}


def _overrides(kind: type, base: type) -> bool:
    """Whether a subclass answers lookups in its own way."""
    names = ("__contains__", "__getitem__", "__missing__", "get", "keys", "items", "__iter__")
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in names)


def _foreign(value: Any, why: str = "") -> dict[str, Any]:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"
    described = {"type": f"{type(value).__module__}.{type(value).__qualname__}", "repr": text[:_REPR_CHARACTERS]}
    if why:
        described["why"] = why[:_REPR_CHARACTERS]
    return {"$foreign": described}


def is_foreign(described: Any) -> bool:
    """Whether a value as a whole could not be described."""
    return isinstance(described, dict) and "$foreign" in described


def encode(document: Any) -> bytes:
    """A described document as bytes; lone surrogates survive."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
