"""PROMPT and EXTRA_PNGINFO are live objects: what a node writes into them is seen by the nodes after it.

A worker works on a copy and sends it back when it changed; the change is made in the live object in place, so that
every reference to a part of it sees it too.
"""

from __future__ import annotations

from typing import Any


def apply_change(live: Any, changed: Any) -> None:
    """Makes a live dict or list equal to a changed copy of it, in place; other values are left alone."""
    if isinstance(live, dict) and isinstance(changed, dict):
        for key in [key for key in live if key not in changed]:
            del live[key]
        for key, value in changed.items():
            if key in live and _mutable_pair(live[key], value):
                apply_change(live[key], value)
            elif key not in live or not _same(live[key], value):
                live[key] = value
    elif isinstance(live, list) and isinstance(changed, list):
        del live[len(changed) :]
        for index, value in enumerate(changed):
            if index >= len(live):
                live.append(value)
            elif _mutable_pair(live[index], value):
                apply_change(live[index], value)
            elif not _same(live[index], value):
                live[index] = value


def _mutable_pair(live: Any, changed: Any) -> bool:
    return (isinstance(live, dict) and isinstance(changed, dict)) or (
        isinstance(live, list) and isinstance(changed, list)
    )


def _same(live: Any, changed: Any) -> bool:
    """Whether two plain values are the same; values that can not be compared are not."""
    if live is changed:
        return True
    try:
        return type(live) is type(changed) and bool(live == changed)
    except Exception:  # arrays and packs' own classes
        return False
