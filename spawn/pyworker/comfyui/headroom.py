"""The pager's headroom: what it leaves alone on every card. The worker and the host have this file in common."""

from __future__ import annotations

import sys

FLOOR = 256 << 20  # bytes that it leaves alone whatever it is told
MOST = 1 << 60


def set_headroom(headroom: int) -> bool:
    """Sets it, in bytes; it acts at the next fault. False where it can not be set.

    comfy-aimdo has a setter from 0.6 on; before that its native library exports one.
    """
    control = sys.modules.get("comfy_aimdo.control")
    setter = getattr(control, "set_simple_vram_headroom", None)
    library = getattr(control, "lib", None)
    if setter is None:
        setter = getattr(library, "set_simple_vram_headroom", None)
    if setter is None or library is None:
        return False
    setter(min(max(0, int(headroom)), MOST))
    return True
