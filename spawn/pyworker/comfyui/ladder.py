"""Letting go of memory, rung by rung, each with its own outcome. What a receipt says was measured before and after.

    partial_release   bytes of a card: idle cache, pages of paged models, whole models in upstream's order. Models stay usable.
    full_release      everything that can be had again: models, cast buffers, prefetched weights, the pager's watermarks,
                      garbage, the allocator's cache, and last torch's pinned cache, which sweeps what the others returned
    release_pins      locked bytes of RAM, by upstream's own tiers; the pinned cache last, so that they really return

No rung stops the ones after it. Plain torch modules that a node keeps on itself can not be moved from here without breaking
the node: the receipt says how much is left (`stuck`) and which nodes have such modules (`raw`).
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import Any, Callable, Iterable, Iterator

from .census import Census, is_processor, label

STUCK = 512 << 20  # bytes of a card that are worth ending an idle process for
_EVERYTHING = 1e30  # more than any card has, as upstream asks for it


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


class Ladder:
    """The rungs of one worker. Everything runs on the main thread, never while a node computes."""

    def __init__(self, management: Any, census: Census, nodes: Callable[[], Iterable[Any]], handles: Callable[[], int]) -> None:
        """`nodes` returns the node objects that are kept, `handles` how many objects others hold."""
        self._management = management
        self._census = census
        self._nodes = nodes
        self._handles = handles

    def release(self, params: dict[str, Any], keep: Iterable[str] = ()) -> dict[str, Any]:
        """Serves one request and returns its receipt. `keep` names models that stay whatever the request says."""
        kind = str(params.get("kind"))
        kept = {str(name) for name in params.get("keep") or ()} | set(keep)
        climb = Climb(kind, self._management, self._census, kept)
        wanted = int(params.get("bytes") or 0)
        with outside_inference_mode():
            if kind == "full_release":
                self._everything(climb)
            elif kind == "partial_release":
                name = str(params.get("device") or "")
                devices = self._census.devices() if not name else [self._census.device(name)]
                for device in devices:
                    if device is not None:
                        self._part(climb, device, wanted)
            elif kind == "release_pins":
                self._pins(climb, wanted)
            else:
                raise ValueError(f"there is no release of the kind {kind!r}")
        return climb.receipt(self._raw() if kind == "full_release" else None, self._handles())

    # ---- a part --------------------------------------------------------------------------------------------------

    def _part(self, climb: Climb, device: Any, wanted: int) -> None:
        management = self._management
        before = climb.on(device)

        def left() -> int:
            return wanted - (before - climb.on(device))

        climb.step("device_cache", lambda: management.soft_empty_cache())
        for entry in self._in_order(device, climb.kept):
            patcher = entry.model
            if left() > 0 and patcher.is_dynamic():
                climb.step(f"pages of {self._census.names.of(patcher)}", _pages(patcher, left()))
        if left() > 0:
            climb.step("models", lambda: self._models(climb, device, left()))

    def _models(self, climb: Climb, device: Any, size: int) -> None:
        """Has upstream's own manager unload, until so much more is free than now."""
        management = self._management
        stay = [entry for entry in self._census.entries() if self._census.names.of(entry.model) in climb.kept]
        if is_processor(device):
            free = 0  # RAM comes back when the last reference goes; the list is what can be shortened
            size = int(_EVERYTHING) if size > 0 else 0
        else:
            free = int(management.get_free_memory(device))
        management.free_memory(free + size, device, keep_loaded=stay)

    def _in_order(self, device: Any, kept: set[str]) -> list[Any]:
        """The entries on a device in upstream's order of eviction."""
        candidates = []
        for index, entry in enumerate(list(self._management.current_loaded_models)):
            if entry.model is None or label(entry.device) != label(device) or self._census.names.of(entry.model) in kept:
                continue
            order = -int(entry.model_offloaded_memory()), sys.getrefcount(entry.model), int(entry.model_memory()), index
            candidates.append((order, entry))
        return [entry for _, entry in sorted(candidates, key=lambda candidate: candidate[0])]

    # ---- everything ----------------------------------------------------------------------------------------------

    def _everything(self, climb: Climb) -> None:
        management = self._management
        climb.step("models", lambda: management.unload_all_models())
        climb.step("cast_buffers", lambda: management.reset_cast_buffers())
        climb.step("prefetched", forget_prefetched)
        climb.step("watermarks", reset_watermarks)
        climb.step("garbage", lambda: gc.collect())
        climb.step("device_cache", lambda: management.soft_empty_cache(True))
        climb.step("pinned_cache", empty_pinned_cache)

    def _raw(self) -> dict[str, int]:
        """Bytes of plain torch modules on cards, by the class of the node that keeps them."""
        module = _attribute("torch", "nn")
        found: dict[str, int] = {}
        for node in self._nodes():
            values = list(vars(node).values()) if module is not None and hasattr(node, "__dict__") else []
            for value in values:
                if isinstance(value, module.Module):
                    size = sum(
                        weight.numel() * weight.element_size() for weight in value.parameters() if not is_processor(weight.device)
                    )
                    if size:
                        found[type(node).__name__] = found.get(type(node).__name__, 0) + size
        return found

    # ---- pins ----------------------------------------------------------------------------------------------------

    def _pins(self, climb: Climb, wanted: int) -> None:
        management, census = self._management, self._census
        before = census.pinned()

        def left() -> int:
            return wanted - (before - census.pinned())

        climb.step("tiers", lambda: management.free_pins(left(), evict_active=True))
        for entry in list(census.entries()):
            if left() > 0 and not entry.model.is_dynamic():
                climb.step(f"pins of {census.names.of(entry.model)}", lambda: entry.model.unpin_all_weights())
        if left() > 0:
            # With REGISTERABLE_PIN_HYSTERESIS more, as upstream does it: each such pass waits for the card.
            climb.step("registrations", lambda: management.free_registrations(left(), evict_active=True))
        climb.step("pinned_cache", empty_pinned_cache)


class Climb:
    """One release under way: what was there at its beginning, and what each step gave."""

    def __init__(self, kind: str, management: Any, census: Census, kept: set[str]) -> None:
        self.kept = kept
        self._kind = kind
        self._census = census
        self._devices = census.devices()
        self._before = {label(device): self.on(device) for device in self._devices}
        self._pins_before = census.pinned()
        self._steps: list[dict[str, Any]] = []

    def on(self, device: Any) -> int:
        """What can be freed on a device: what is held of a card; what is loaded, on the processor."""
        return self._census.loaded(device) if is_processor(device) else self._census.held(device)

    def step(self, name: str, rung: Callable[[], Any]) -> None:
        """Climbs one rung; what goes wrong is its outcome."""
        before, pins = self._total(), self._census.pinned()
        outcome: dict[str, Any] = {"name": name}
        try:
            rung()
        except Exception as error:
            outcome["error"] = f"{type(error).__name__}: {error}"
        gave_pins = max(0, pins - self._census.pinned())
        outcome["freed"] = max(0, before - self._total())
        if gave_pins:
            outcome["pins_freed"] = gave_pins
        self._steps.append(outcome)

    def _total(self) -> int:
        return sum(self.on(device) for device in self._devices)

    def receipt(self, raw: dict[str, int] | None, handles: int) -> dict[str, Any]:
        """What was measured."""
        after = {label(device): self.on(device) for device in self._devices}
        receipt: dict[str, Any] = {
            "kind": self._kind,
            "freed": {name: max(0, before - after[name]) for name, before in self._before.items()},
            "pins_freed": max(0, self._pins_before - self._census.pinned()),
            "steps": self._steps,
            "handles": handles,
        }
        if raw is not None:
            left = sum(self.on(device) for device in self._devices if not is_processor(device))
            receipt["stuck"] = left if left > STUCK else 0
            receipt["raw"] = raw
        return receipt


def _pages(patcher: Any, size: int) -> Callable[[], Any]:
    return lambda: patcher.partially_unload(patcher.offload_device, size)


def forget_prefetched() -> None:
    """Drops weights that were fetched ahead of their use."""
    cleanup = _attribute("comfy.model_prefetch", "cleanup_prefetch_queues")
    if cleanup is not None:
        cleanup()


def reset_watermarks() -> None:
    """Lets pages come back that the pager has been keeping away."""
    reset = _attribute("comfy_aimdo.model_vbar", "vbars_reset_watermark_limits")
    if reset is not None and _attribute("comfy_aimdo.control", "devctxs"):
        reset()


def empty_pinned_cache() -> None:
    """Gives back the locked memory that torch keeps for copies."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    empty = getattr(getattr(torch, "_C", None), "_host_emptyCache", None)
    if empty is not None and cuda is not None and cuda.is_initialized():
        empty()


@contextlib.contextmanager
def outside_inference_mode() -> Iterator[None]:
    """Releases run outside the mode that nodes run in, as ComfyUI's own do."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "inference_mode"):
        yield
        return
    with torch.inference_mode(False):
        yield
