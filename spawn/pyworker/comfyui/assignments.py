"""What is written into ComfyUI's memory management and its pager while a worker lives: the reserve, the pager's headroom,
and what a cap on pinned RAM takes. Nothing else; the mirrored flags and the pager's start have files of their own.

    EXTRA_RESERVED_VRAM     what the loader leaves alone, read at every load
    vram_state              read before the first load
    free_model_pins         wrapped: counts what each model lost, and decides nothing
    MAX_PINNED_MEMORY       a cap binds where something registers pins; never 0 or less, or every pin would leak
    RAM_CACHE_HEADROOM      the host's, through ComfyUI's own setter: the floor of RAM under which pins go
    pin_memory              wrapped: declines beyond the ceiling, whose verdict 0.30 does not look at
    simple_vram_headroom    of the pager, through its setter or the native library's
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from .headroom import FLOOR, set_headroom
from .pager import Pager
from .pins import bind_pins, cap_pins


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


class Assignments:
    """Everything runs on the main thread."""

    def __init__(self, pager: Pager, seed: int | None = None) -> None:
        """`seed` is the headroom that the pager was started with, in bytes; its own if None."""
        self._pager = pager
        self._seed = FLOOR if seed is None else seed
        self._management: Any = None
        self._wanted: dict[str, Any] = {}
        self.base: float = 0.0  # the reserve before anybody assigned one, in bytes
        self.vram_cap = 0  # bytes on any one card; 0: none
        self.evicted: dict[str, int] = {}  # pinned bytes that models lost, by model

    def arrived(self, management: Any, name_of: Any) -> None:
        """ComfyUI's memory management is there, with the host's reserve; `name_of(patcher)` names a model."""
        self._management = management
        self.base = float(getattr(management, "EXTRA_RESERVED_VRAM", 0))
        bind_pins(management)
        self._wrap_evictions(management, name_of)

    # ---- assignments ---------------------------------------------------------------------------------------------

    def take(self, params: dict[str, Any]) -> dict[str, Any]:
        """Serves an assignment: {applied: values read back, missing: names that could not be}."""
        known = {name: value for name, value in params.items() if name in _SETTERS and value is not None}
        self._wanted.update(known)
        return self.apply(known)

    def apply(self, values: dict[str, Any]) -> dict[str, Any]:
        """Writes values and reads them back."""
        applied, missing = {}, []
        for name, value in values.items():
            try:
                read_back = _SETTERS[name](self, value)
            except (AttributeError, TypeError, ValueError, RuntimeError) as error:
                logging.debug("%s could not be set to %r: %s", name, value, error)
                read_back = None
            if read_back is None:
                missing.append(name)
            else:
                applied[name] = read_back
        return {"applied": applied, "missing": missing}

    def _reserve(self, value: Any) -> float | None:
        if not hasattr(self._management, "EXTRA_RESERVED_VRAM"):
            return None
        self._management.EXTRA_RESERVED_VRAM = float(value)
        return float(self._management.EXTRA_RESERVED_VRAM)

    def _vram_state(self, value: Any) -> str | None:
        state = getattr(self._management, "VRAMState").__members__.get(str(value))
        if state is None:
            return None
        self._management.vram_state = state
        return str(self._management.vram_state.name)

    def _headroom(self, value: Any) -> int | None:
        if self._pager.outcome == "":
            return int(value)  # it starts later, and gets the value then
        if self._pager.outcome != "paged":
            return None
        return int(value) if set_headroom(max(int(value), self._cap_headroom())) else None

    def _vram_cap(self, value: Any) -> int | None:
        self.vram_cap = max(0, int(value))
        if self._pager.outcome == "paged" and not set_headroom(max(self.headroom(), self._cap_headroom())):
            return None
        return self.vram_cap  # under the ledger it counts at each load

    def _pin_cap(self, value: Any) -> float | None:
        return cap_pins(self._management, float(value))

    def _ram_headroom(self, value: Any) -> int | None:
        setter = _attribute("comfy.memory_management", "set_ram_cache_release_state")
        if setter is None:
            return None
        setter(_attribute("comfy.memory_management", "extra_ram_release_callback"), int(value))
        return int(_attribute("comfy.memory_management", "RAM_CACHE_HEADROOM", 0))

    def pager_started(self) -> None:
        """The pager's outcome is known: it gets what has been assigned."""
        self.apply({name: self._wanted[name] for name in ("headroom", "vram_cap") if name in self._wanted})

    # ---- for one load --------------------------------------------------------------------------------------------

    def reserve(self) -> float:
        """The reserve between loads."""
        return float(self._wanted.get("reserve", self.base))

    def headroom(self) -> int:
        """The pager's headroom between computations."""
        return int(self._wanted.get("headroom", self._seed))

    def set_for_load(self, reserve: Any, free: int, held: int) -> None:
        """The reserve for one load: what the lease says, and what keeps the process under its cap (the ledger loads what
        is free less the reserve)."""
        wanted = self.reserve() if reserve is None else float(reserve)
        if self.vram_cap and free:
            wanted = max(wanted, float(free - max(0, self.vram_cap - held)))
        self._reserve(wanted)

    def set_after_load(self) -> None:
        """The reserve between loads again."""
        self._reserve(self.reserve())

    def set_for_computing(self, headroom: Any) -> None:
        """The pager's headroom until the computation has ended; None: as between computations."""
        if self._pager.outcome == "paged":
            wanted = self.headroom() if headroom is None else int(headroom)
            set_headroom(max(wanted, self._cap_headroom()))

    def _cap_headroom(self) -> int:
        """What the pager must leave alone for the process to stay under its cap: its limit is the card less that."""
        if not self.vram_cap:
            return 0
        return max(0, int(self._management.get_total_memory(self._management.get_torch_device())) - self.vram_cap)

    # ---- wrappers ------------------------------------------------------------------------------------------------

    def _wrap_evictions(self, management: Any, name_of: Any) -> None:
        original = getattr(management, "free_model_pins", None)
        if original is None:
            return

        @functools.wraps(original)
        def free_model_pins(*arguments: Any, **named: Any) -> Any:
            before = self._pinned_by_model()
            freed = original(*arguments, **named)
            for key, (patcher, size) in before.items():
                lost = size - int(patcher.pinned_memory_size())
                if lost > 0:
                    name = name_of(patcher)
                    self.evicted[name] = self.evicted.get(name, 0) + lost
            return freed

        management.free_model_pins = free_model_pins

    def _pinned_by_model(self) -> dict[int, tuple[Any, int]]:
        found = {}
        for entry in list(self._management.current_loaded_models):
            patcher = entry.model
            if patcher is not None and patcher.is_dynamic():
                found[id(patcher.model)] = patcher, int(patcher.pinned_memory_size())
        return found


_SETTERS: dict[str, Any] = {
    "reserve": Assignments._reserve,
    "vram_state": Assignments._vram_state,
    "headroom": Assignments._headroom,
    "vram_cap": Assignments._vram_cap,
    "pin_cap": Assignments._pin_cap,
    "ram_headroom": Assignments._ram_headroom,
}
