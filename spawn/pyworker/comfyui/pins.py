"""A cap on the RAM that a process locks. The worker and the host have this file in common.

The cap is ComfyUI's own ceiling, MAX_PINNED_MEMORY. It binds where something asks `ensure_pin_registerable` and looks at the
answer; `pin_memory` of 0.30 asks and does not look.
"""

from __future__ import annotations

import functools
from typing import Any

_LEAST = 1 << 20  # bytes: what a cap of nothing becomes, for at 0 `unpin_memory` does nothing and every pin leaks


def cap_pins(management: Any, value: float) -> float | None:
    """Sets the ceiling, in bytes, and reads it back; None where pinning is off or ComfyUI has none."""
    if getattr(management, "MAX_PINNED_MEMORY", -1) <= 0:
        return None
    management.MAX_PINNED_MEMORY = max(float(_LEAST), value)
    return float(management.MAX_PINNED_MEMORY)


def bind_pins(management: Any) -> None:
    """Has `pin_memory` decline what does not fit under the ceiling."""
    original = getattr(management, "pin_memory", None)
    if original is None or not hasattr(management, "ensure_pin_registerable"):
        return

    @functools.wraps(original)
    def pin_memory(tensor: Any) -> Any:
        ceiling, size = management.MAX_PINNED_MEMORY, getattr(tensor, "nbytes", 0)
        if ceiling > 0 and management.TOTAL_PINNED_MEMORY + size > ceiling:
            if not management.ensure_pin_registerable(size):
                return False
        return original(tensor)

    management.pin_memory = pin_memory
