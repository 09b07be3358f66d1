"""What this process holds: as ComfyUI's list of models, torch's allocator and the pager count it. Only read, never changed.

torch sees no page of the pager and the pager sees nothing of torch's, and in part they count the same bytes, so a card's
`held` is the larger of the two. Where neither counts (a card that torch does not know), the list of models is all there is.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Iterator

MOVED = 16 << 20  # bytes that are worth a report


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


def label(device: Any) -> str:
    """A device as messages name it: "cuda:0", "cpu"."""
    kind, index = str(getattr(device, "type", device)), getattr(device, "index", None)
    return kind if is_processor(device) or kind == "mps" else f"{kind}:{index or 0}"


def is_processor(device: Any) -> bool:
    """Whether a device is the processor: no card, nothing to share."""
    return getattr(device, "type", None) == "cpu"


class Names:
    """Names of models: the class and a number, the same for every patcher of a model for as long as the model lives."""

    def __init__(self) -> None:
        self._count = 0
        self._names: dict[int, tuple[Any, str]] = {}  # by the model's id

    def of(self, patcher: Any) -> str:
        """The name of a patcher's model."""
        model = getattr(patcher, "model", patcher)
        key = id(model)
        known = self._names.get(key)
        if known is None:
            self._count += 1
            name = f"{type(model).__name__}#{self._count}"
            known = self._names[key] = weakref.ref(model, lambda _: self._names.pop(key, None)), name
        return known[1]


class Sizes:
    """The largest weight of each model, looked for once, and how large each model is that was seen."""

    def __init__(self) -> None:
        self._largest: dict[int, tuple[Any, int, int]] = {}

    def tensor(self, patcher: Any) -> int:
        """Bytes of a model's largest weight."""
        return self._known(patcher)[1]

    def model(self) -> int:
        """Bytes of the largest model that lives."""
        return max((size for _, _, size in list(self._largest.values())), default=0)

    def see(self, patcher: Any) -> None:
        """Takes note of a model before it is loaded."""
        self._known(patcher)

    def _known(self, patcher: Any) -> tuple[Any, int, int]:
        model = patcher.model
        key = id(model)
        known = self._largest.get(key)
        if known is None:
            try:
                largest = max((weight.numel() * weight.element_size() for weight in model.parameters()), default=0)
            except Exception:  # a model of a pack's own making, or weights that can not say
                largest = 0
            reference = weakref.ref(model, lambda _: self._largest.pop(key, None))
            known = self._largest[key] = reference, largest, int(patcher.model_size())
        return known


class Census:
    """Reads what there is. `last` is the report that was sent last, None before the first."""

    def __init__(self, management: Any) -> None:
        """`management` is comfy.model_management."""
        self._management = management
        self.names = Names()
        self.sizes = Sizes()
        self.last: dict[str, Any] | None = None
        self._sequence = 0
        self._identities: dict[str, str] = {}

    # ---- devices -------------------------------------------------------------------------------------------------

    def devices(self) -> list[Any]:
        """Every card, and the processor if models compute on it."""
        found: dict[str, Any] = {}
        every = getattr(self._management, "get_all_torch_devices", None)
        for device in every() if every is not None else [self._management.get_torch_device()]:
            if not is_processor(device):
                found.setdefault(label(device), device)
        for entry in self.entries():
            found.setdefault(label(entry.device), entry.device)
        return list(found.values())

    def device(self, name: str) -> Any:
        """The device of a name; None for one that is not there."""
        return next((device for device in self.devices() if label(device) == name), None)

    def identity(self, device: Any) -> str:
        """What the driver calls a card, whatever CUDA_VISIBLE_DEVICES makes of its number; "" if it can not be told."""
        name = label(device)
        if name not in self._identities:
            self._identities[name] = _identity(device)
        return self._identities[name]

    def entries(self) -> Iterator[Any]:
        """The entries of ComfyUI's list whose models live."""
        for entry in list(self._management.current_loaded_models):
            if entry.model is not None:
                yield entry

    # ---- figures of one device, in bytes -------------------------------------------------------------------------

    def held(self, device: Any) -> int:
        """What the process holds of a card. 0 for the processor."""
        if is_processor(device):
            return 0
        counted = [figure for figure in (torch_reserved(device), pager_bytes(device)) if figure is not None]
        if torch_reserved(device) is None:
            counted.append(self.loaded(device))
        return max(counted, default=0)

    def loaded(self, device: Any) -> int:
        """What of the listed models is on a device, as their patchers say."""
        return sum(int(entry.model_loaded_memory()) for entry in self.entries() if label(entry.device) == label(device))

    def reading(self, device: Any) -> tuple[int, int]:
        """(free, total) as the process itself reads its device; zeros if it can not."""
        if is_processor(device):
            return 0, 0
        try:
            backend = torch_backend(device)
            if backend is not None and hasattr(backend, "mem_get_info"):
                free, total = backend.mem_get_info(device)
            else:
                with_cache, cache = self._management.get_free_memory(device, torch_free_too=True)
                free, total = with_cache - cache, self._management.get_total_memory(device)
            return int(free), int(total)
        except Exception:
            return 0, 0

    def process_local(self, device: Any) -> bool:
        """Whether that reading shows the process's own bytes alone, as under Windows."""
        return bool(getattr(self._management, "WINDOWS", False)) and not is_processor(device)

    def context(self, device: Any) -> bool:
        """Whether the process has a context on a card."""
        return not is_processor(device) and (torch_backend(device) is not None or "torch" not in sys.modules)

    def cast_buffers(self, device: Any) -> int:
        """What is committed for casting."""
        total = 0
        for buffer in list(getattr(self._management, "STREAM_CAST_BUFFERS", {}).values()):
            if label(buffer.device) == label(device):
                total += buffer.numel() * buffer.element_size()
        for buffer in list(getattr(self._management, "STREAM_AIMDO_CAST_BUFFERS", {}).values()):
            if buffer.device == (device.index or 0):
                total += buffer.size()
        return total

    def pinned(self) -> int:
        """What the process has locked in RAM."""
        return int(getattr(self._management, "TOTAL_PINNED_MEMORY", 0))

    # ---- reports -------------------------------------------------------------------------------------------------

    def read(self) -> dict[str, Any]:
        """A new report, with the next number."""
        self._sequence += 1
        return {
            "sequence": self._sequence,
            "devices": [self._device(device) for device in self.devices()],
            "pinned": self.pinned(),
            "pin_ceiling": float(getattr(self._management, "MAX_PINNED_MEMORY", -1)),
            "largest_model": self.sizes.model(),
            "resident": resident(),
            "attention": self._attention(),
        }

    def _device(self, device: Any) -> dict[str, Any]:
        name, models, largest = label(device), [], 0
        for entry in self.entries():
            if label(entry.device) == name:
                largest = max(largest, self.sizes.tensor(entry.model))
                models.append(
                    {
                        "name": self.names.of(entry.model),
                        "size": int(entry.model_memory()),
                        "resident": int(entry.model_loaded_memory()),
                        "paged": bool(entry.model.is_dynamic()),
                    }
                )
        held, (free, total) = self.held(device), self.reading(device)
        local = self.process_local(device)
        return {
            "device": name,
            "identity": self.identity(device),
            "held": held,
            # A reading of one's own bytes alone shows what no allocator counts; elsewhere it can not be told apart.
            "overhead": max(0, total - free - held) if local and total else 0,
            "context": self.context(device),
            "models": models,
            "largest_tensor": largest,
            "cast_buffers": self.cast_buffers(device),
            "streams": int(getattr(self._management, "NUM_STREAMS", 0)) if not is_processor(device) else 0,
            "torch_idle": torch_idle(device),
            "own_free": free,
            "own_total": total,
            "process_local": local,
        }

    def _attention(self) -> dict[str, Any]:
        name = getattr(_attribute("comfy.ldm.modules.attention", "optimized_attention"), "__name__", "")
        compact = False  # which of upstream's two formulas estimates activations
        for question in ("xformers_enabled", "pytorch_attention_flash_attention"):
            answer = getattr(self._management, question, None)
            compact = compact or (answer is not None and bool(answer()))
        return {"name": name.removeprefix("attention_"), "compact": compact}

    def own(self) -> list[dict[str, Any]]:
        """What the process reads of its cards now, where it has a context."""
        found = []
        for device in self.devices():
            if self.context(device):
                free, total = self.reading(device)  # zeros rather than an error
                described = {"device": label(device), "identity": self.identity(device), "own_free": free, "own_total": total}
                found.append({**described, "process_local": self.process_local(device)})
        return found


def moved(before: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Whether two reports differ by what is worth telling."""
    if before is None or abs(before["pinned"] - now["pinned"]) > MOVED or before["pin_ceiling"] != now["pin_ceiling"]:
        return True
    old, new = _figures(before), _figures(now)
    return any(abs(old.get(key, 0) - new.get(key, 0)) > MOVED for key in old.keys() | new.keys())


def _figures(report: dict[str, Any]) -> dict[tuple[str, ...], int]:
    figures: dict[tuple[str, ...], int] = {}
    for device in report["devices"]:
        for name in ("held", "cast_buffers", "torch_idle"):
            figures[device["device"], name] = device[name]
        for model in device["models"]:
            figures[device["device"], "model", model["name"]] = model["resident"]
    return figures


# ---- torch and the pager ---------------------------------------------------------------------------------------------


def torch_backend(device: Any) -> Any:
    """torch's module for a kind of device, once it has a context; None else."""
    backend = getattr(sys.modules.get("torch"), str(getattr(device, "type", "")), None)
    initialized = getattr(backend, "is_initialized", None)
    return backend if initialized is not None and initialized() else None


def torch_reserved(device: Any) -> int | None:
    """What torch's allocator holds of a card; None where it does not count."""
    backend = torch_backend(device)
    return int(backend.memory_reserved(device)) if hasattr(backend, "memory_reserved") else None


def torch_idle(device: Any) -> int:
    """What of that nothing uses."""
    backend = torch_backend(device)
    if not hasattr(backend, "memory_reserved") or not hasattr(backend, "memory_allocated"):
        return 0
    return max(0, int(backend.memory_reserved(device)) - int(backend.memory_allocated(device)))


def pager_bytes(device: Any) -> int | None:
    """What the pager holds of a card; None where it does not run."""
    control = sys.modules.get("comfy_aimdo.control")
    library, contexts = getattr(control, "lib", None), getattr(control, "devctxs", None)
    if library is None or not contexts or is_processor(device):
        return None
    try:
        if len(contexts) == 1:
            return int(control.get_total_vram_usage())  # type: ignore[union-attr]
        return int(library.get_total_vram_usage(control.get_devctx(device.index or 0)))  # type: ignore[union-attr]
    except Exception:  # a device that it was not started on
        return None


def _identity(device: Any) -> str:
    properties = getattr(torch_backend(device), "get_device_properties", None)
    if properties is None:
        return ""
    try:
        found = properties(device)
        uuid = str(getattr(found, "uuid", "") or "")
        if uuid:
            return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        return f"{found.pci_domain_id:08x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    except Exception:  # an older torch, or another maker's card
        return ""


def resident() -> int:
    """Bytes of RAM that this process has, 0 if it can not be told."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):
        pass
    psutil = sys.modules.get("psutil")
    return int(psutil.Process().memory_info().rss) if psutil is not None else 0
