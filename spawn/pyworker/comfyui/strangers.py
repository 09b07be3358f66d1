"""Inputs that a node got and can not look into: pickles of another environment, which are never opened here.

A node may pass them on, so they are no error in themselves. One that fails with them in its hands says something that
misleads ("the mesh is empty"), because `hasattr` finds nothing on them: its error then names them and where they are from.
"""

from __future__ import annotations

from typing import Any

from ..wire.errors import CannotCross
from ..wire.opaque import Opaque

_KEPT = ("MemoryError", "OutOfMemoryError")  # what a host acts upon by its type


def explained(error: Exception, node: str, inputs: dict[str, Any], here: str) -> Exception:
    """The error to raise for one of a node: itself, or one that tells which of the inputs could not be looked into."""
    if isinstance(error, (CannotCross, ImportError)) or type(error).__name__ in _KEPT:
        return error
    found = [(name, stranger) for name, value in inputs.items() if (stranger := _stranger(value)) is not None]
    if not found:
        return error
    lines = [f"{node} failed ({type(error).__name__}: {error}) with something that it can not look into:"]
    for name, stranger in found:
        home = stranger.environment.partition("/")[0]
        lines.append(
            f"its input {name!r} is a {stranger.type_name} of environment {home!r}, which environment {here!r} does not open."
            f" A serializer for it in both packs (register_serializer) makes it cross"
        )
    return CannotCross("\n".join(lines))


def _stranger(value: Any) -> Opaque | None:
    """The first such object in a value, looked for in lists and dictionaries of one level, as nodes get them."""
    if type(value) is Opaque:
        return value
    parts = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else ()
    return next((part for part in parts if type(part) is Opaque), None)
