"""Fingerprints of plain values, to see cheaply whether a node has changed one."""

from __future__ import annotations

import hashlib
import marshal
from typing import Any

# The newest format that writes equal values the same: later ones depend on interning and reference
# counts.
_FORMAT = 2


def is_plain(value: Any, most_bytes: int) -> bytes | None:
    """The bytes of a value that consists of plain builtins alone; None for another one, or one that
    is too large.
    """
    try:
        data = marshal.dumps(value, _FORMAT)
    except (ValueError, TypeError, OverflowError):
        return None
    return data if len(data) <= most_bytes else None


def mark(value: Any) -> str:
    """A hash of a plain value. Equal values have the same; "" for what is not plain."""
    try:
        return hashlib.blake2b(marshal.dumps(value, _FORMAT), digest_size=16).hexdigest()
    except (ValueError, TypeError, OverflowError):
        return ""
