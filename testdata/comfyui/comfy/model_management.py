"""Interruption and memory of a ComfyUI that has no torch: it computes on the processor, or on a fake card.

A fake card (testdata/fakecard) is there when FAKECARD_FILE names one and its module lies beside this tree. Models then
take bytes of it and give them back under the rules that the real module has.
"""

import enum
import gc
import os
import platform
import sys
import threading
import weakref
from typing import NamedTuple

import comfy.memory_management
from comfy.cli_args import args


class VRAMState(enum.Enum):
    """How much of the models may lie on the card."""

    DISABLED = 0
    NO_VRAM = 1
    LOW_VRAM = 2
    NORMAL_VRAM = 3
    HIGH_VRAM = 4
    SHARED = 5


class CPUState(enum.Enum):
    """What computes."""

    GPU = 0
    CPU = 1
    MPS = 2


class _Device(NamedTuple):
    """What torch.device is elsewhere."""

    type: str
    index: int | None = None

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


_CPU = _Device("cpu")
_cards = []  # by index, as CUDA_VISIBLE_DEVICES has them
if os.environ.get("FAKECARD_FILE") and not args.cpu:
    import fakecard

    _cards = fakecard.visible()
    for _card in _cards:  # a CUDA context, which no allocator counts
        _card.take(int(os.environ.get("FAKECARD_CONTEXT", "0")))

cpu_state = CPUState.GPU if _cards else CPUState.CPU
OOM_EXCEPTION = fakecard.OutOfMemoryError if _cards else MemoryError

MIN_WEIGHT_MEMORY_RATIO = 0.0 if _cards else 0.4
WINDOWS = any(platform.win32_ver()) or os.environ.get("FAKECARD_LOCAL") == "1"
DISABLE_SMART_MEMORY = args.disable_smart_memory

vram_state = VRAMState.NORMAL_VRAM
if args.lowvram:
    vram_state = VRAMState.LOW_VRAM
elif args.novram:
    vram_state = VRAMState.NO_VRAM
elif args.highvram or args.gpu_only:
    vram_state = VRAMState.HIGH_VRAM
if cpu_state != CPUState.GPU:
    vram_state = VRAMState.DISABLED


def get_torch_device():
    """What computes by default."""
    return _Device("cuda", 0) if _cards else _CPU


def get_all_torch_devices(exclude_current=False):
    """Every card, or the processor."""
    devices = [_Device("cuda", index) for index in range(len(_cards))] or [_CPU]
    return devices[1:] if exclude_current else devices


def is_device_cpu(device):
    """Whether a device is the processor."""
    return getattr(device, "type", None) == "cpu"


def is_device_cuda(device):
    """Whether a device is a card."""
    return getattr(device, "type", None) == "cuda"


def cpu_mode():
    """Whether the processor computes."""
    return cpu_state == CPUState.CPU


def is_nvidia():
    """Whether a card computes; the fake one passes for NVIDIA's."""
    return bool(_cards)


def _ram(name):
    """A line of /proc/meminfo in bytes; 0 where there is none."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def get_total_memory(dev=None, torch_total_too=False):
    """Bytes that a device has; there is no second figure, for nothing caches."""
    dev = get_torch_device() if dev is None else dev
    total = _ram("MemTotal") if is_device_cpu(dev) else _cards[dev.index].memory()[1]
    return (total, total) if torch_total_too else total


def get_free_memory(dev=None, torch_free_too=False):
    """Bytes that are free on a device, and what of them is in a cache: nothing."""
    dev = get_torch_device() if dev is None else dev
    if is_device_cpu(dev):
        free = _ram("MemAvailable")
        return (free, free) if torch_free_too else free
    free = _cards[dev.index].memory()[0]
    return (free, 0) if torch_free_too else free


total_ram = get_total_memory(_CPU) / (1024 * 1024)
total_vram = get_total_memory(get_torch_device()) / (1024 * 1024)

EXTRA_RESERVED_VRAM = 400 * 1024 * 1024
if WINDOWS:
    EXTRA_RESERVED_VRAM = (700 if total_vram > 15 * 1024 else 600) * 1024 * 1024
if args.reserve_vram is not None:
    EXTRA_RESERVED_VRAM = args.reserve_vram * 1024 * 1024 * 1024

# ---- pinned memory: counted, since there is nothing to lock ---------------------------------------------------------

PINNED_MEMORY = {}
TOTAL_PINNED_MEMORY = 0
MAX_PINNED_MEMORY = -1
if _cards and not args.disable_pinned_memory:
    MAX_PINNED_MEMORY = get_total_memory(_CPU) * (0.40 if WINDOWS else 0.90)

PIN_SUBSETS = ["weights", "patches"]
LOADED_PIN_SUBSETS = ["weights-loaded", "patches-loaded"]
PIN_PRESSURE_HYSTERESIS = 256 * 1024 * 1024
REGISTERABLE_PIN_HYSTERESIS = 2048 * 1024 * 1024

NUM_STREAMS = args.async_offload if args.async_offload is not None else (2 if _cards else 0)
if args.disable_async_offload:
    NUM_STREAMS = 0
STREAM_CAST_BUFFERS = {}
STREAM_AIMDO_CAST_BUFFERS = {}
DIRTY_MMAPS = set()


def models_for_pin_eviction(active, current_prompt=None):
    """The paged models whose pins may go: of this kind, in the order of the list."""
    for loaded in current_loaded_models:
        model = loaded.model
        if model is not None and model.is_dynamic():
            state = model.model.dynamic_pins[model.load_device]
            if active in (None, state["active"]) and current_prompt in (None, state["current_prompt"]):
                yield model


def free_model_pins(size, subsets, current_prompt, active, registrations=False):
    """Unpins about so many bytes of such models; returns how many."""
    freed = 0
    for model in models_for_pin_eviction(active, current_prompt=current_prompt):
        if freed >= size:
            break
        free = model.unregister_inactive_pins if registrations else model.partially_unload_ram
        freed += free(size - freed, subsets=subsets)
    return freed


def pin_eviction_tiers(loaded, evict_active):
    """Whose pins go first: (subsets, of this prompt, active)."""
    tiers = [
        (PIN_SUBSETS, False, None),
        (LOADED_PIN_SUBSETS, False, None),
        (LOADED_PIN_SUBSETS, True, None),
    ]
    if not loaded:
        tiers += [(PIN_SUBSETS, True, False), (PIN_SUBSETS, True, True)][: 2 if evict_active else 1]
    return tiers


def registration_eviction_tiers(evict_active):
    """Whose registrations go first: (subsets, of this prompt, active)."""
    subsets = PIN_SUBSETS + LOADED_PIN_SUBSETS
    return [(subsets, prompt, active) for active in (False, True)[: 2 if evict_active else 1] for prompt in (False, True)]


def free_pins(size, evict_active=False, loaded=False):
    """Unpins about so many bytes; returns how many."""
    freed = 0
    for subsets, current_prompt, active in pin_eviction_tiers(loaded, evict_active):
        freed += free_model_pins(size - freed, subsets, current_prompt, active)
    return freed


def ensure_pin_budget(size, evict_active=False, loaded=False):
    """Whether so many bytes may be pinned as far as RAM goes, after freeing what it takes."""
    if args.high_ram:
        return True
    floor = max(comfy.memory_management.RAM_CACHE_HEADROOM / 2, 2048 * 1024**2)
    shortfall = size + floor - _ram("MemAvailable")
    if args.fast_disk:
        shortfall = TOTAL_PINNED_MEMORY + size - MAX_PINNED_MEMORY
    if shortfall <= 0:
        return True
    return free_pins(shortfall + PIN_PRESSURE_HYSTERESIS, evict_active, loaded) >= shortfall


def free_registrations(shortfall, evict_active=True):
    """Unregisters so many bytes of pins; whether that many could be had."""
    if MAX_PINNED_MEMORY <= 0:
        return False
    if shortfall <= 0:
        return True
    left = shortfall + REGISTERABLE_PIN_HYSTERESIS
    for subsets, current_prompt, active in registration_eviction_tiers(evict_active):
        left -= free_model_pins(left, subsets, current_prompt, active, registrations=True)
    return left <= REGISTERABLE_PIN_HYSTERESIS


def ensure_pin_registerable(size, evict_active=True):
    """Whether so many bytes more stay within the ceiling, after freeing what it takes."""
    return free_registrations(TOTAL_PINNED_MEMORY + size - MAX_PINNED_MEMORY, evict_active=evict_active)


def pinned_hostbuf_size(size):
    """How large the host buffer of a paged model may get."""
    return max(0, int((size if args.high_ram else min(size, MAX_PINNED_MEMORY)) * 2))


def pin_memory(tensor):
    """Pins a weight, whatever the ceiling says: 0.30 does not look at the answer."""
    global TOTAL_PINNED_MEMORY
    if MAX_PINNED_MEMORY <= 0 or tensor.data_ptr() in PINNED_MEMORY:
        return False
    ensure_pin_registerable(tensor.nbytes)
    PINNED_MEMORY[tensor.data_ptr()] = tensor.nbytes
    TOTAL_PINNED_MEMORY += tensor.nbytes
    return True


def unpin_memory(tensor):
    """Takes that back; does nothing once pinning is off."""
    global TOTAL_PINNED_MEMORY
    if MAX_PINNED_MEMORY <= 0 or tensor.data_ptr() not in PINNED_MEMORY:
        return False
    TOTAL_PINNED_MEMORY -= PINNED_MEMORY.pop(tensor.data_ptr())
    return True


# ---- the list of loaded models --------------------------------------------------------------------------------------

current_loaded_models = []


def module_size(module):
    """Bytes of a model's weights."""
    return sum(weight.nbytes for weight in module.state_dict().values())


class LoadedModel:
    """An entry of the list of loaded models. It keeps no model alive."""

    def __init__(self, model):
        self._set_model(model)
        self.device = model.load_device
        self.real_model = None
        self.currently_used = True
        self.model_finalizer = None
        self._patcher_finalizer = None

    def _set_model(self, model):
        self._model = weakref.ref(model)
        if model.parent is not None:
            self._parent_model = weakref.ref(model.parent)
            self._patcher_finalizer = weakref.finalize(model, self._switch_parent)
            self._patcher_finalizer.atexit = False

    def _switch_parent(self):
        model = self._parent_model()
        if model is not None:
            self._set_model(model)
            self.device = model.load_device

    @property
    def model(self):
        """The patcher, or None once it is gone."""
        return self._model()

    def model_memory(self):
        """Bytes of all weights."""
        return self.model.model_size()

    def model_loaded_memory(self):
        """Bytes of those on the device."""
        return self.model.loaded_size()

    def model_offloaded_memory(self):
        """Bytes of the others."""
        return self.model.model_size() - self.model.loaded_size()

    def model_memory_required(self, device):
        """Bytes that loading takes."""
        here = device == self.model.current_loaded_device()
        return self.model_offloaded_memory() if here else self.model_memory()

    def model_load(self, lowvram_model_memory=0, force_patch_weights=False):
        """Loads as many bytes; 0 stands for all."""
        self.model_use_more_vram(lowvram_model_memory or 1e32, force_patch_weights=force_patch_weights)
        real_model = self.model.model
        self.real_model = weakref.ref(real_model)
        self.model_finalizer = weakref.finalize(real_model, cleanup_models)
        self.model_finalizer.atexit = False
        return real_model

    def should_reload_model(self, force_patch_weights=False):
        """Whether patches have to be applied anew."""
        return bool(force_patch_weights and self.model.lowvram_patch_counter() > 0)

    def model_unload(self, memory_to_free=None, unpatch_weights=True):
        """Unloads a part, if that is enough, or everything. Whether everything went."""
        if memory_to_free is not None and memory_to_free < self.model.loaded_size():
            if self.model.partially_unload(self.model.offload_device, memory_to_free) >= memory_to_free:
                return False
        self.model.detach(unpatch_weights)
        self.model_finalizer.detach()
        self.model_finalizer = None
        self.real_model = None
        return True

    def model_use_more_vram(self, extra_memory, force_patch_weights=False):
        """Loads so many bytes more."""
        return self.model.partially_load(self.device, extra_memory, force_patch_weights=force_patch_weights)

    def __eq__(self, other):
        return self.model is other.model

    def __del__(self):
        if self._patcher_finalizer is not None:
            self._patcher_finalizer.detach()

    def is_dead(self):
        """Whether the weights outlive their patcher."""
        return self.real_model() is not None and self.model is None


def extra_reserved_memory():
    """Bytes of the card that are left alone."""
    return EXTRA_RESERVED_VRAM


def minimum_inference_memory():
    """Bytes that computing needs besides weights."""
    return (1024 * 1024 * 1024) * 0.8 + extra_reserved_memory()


def free_memory(memory_required, device, keep_loaded=[], for_dynamic=False, pins_required=0, ram_required=0):
    """Unloads models until so many bytes are free on a device; returns the entries that went altogether."""
    cleanup_models_gc()
    candidates = []
    for index in range(len(current_loaded_models) - 1, -1, -1):
        entry = current_loaded_models[index]
        if (device is None or entry.device == device) and entry not in keep_loaded and not entry.is_dead():
            order = -entry.model_offloaded_memory(), sys.getrefcount(entry.model), entry.model_memory(), index
            candidates.append(order)
            entry.currently_used = False
    gone = []
    for *_, index in sorted(candidates):
        entry = current_loaded_models[index]
        wanted = 1e32
        if not DISABLE_SMART_MEMORY or device is None:
            wanted = 0 if device is None else memory_required - get_free_memory(device)
            if for_dynamic and entry.model.is_dynamic():
                memory_required -= entry.model.loaded_size()  # the pager yields by itself
                wanted = 0
        if wanted > 0 and entry.model_unload(wanted):
            gone.append(index)
    unloaded = [current_loaded_models.pop(index) for index in sorted(gone, reverse=True)]
    if not for_dynamic and pins_required > 0:
        ensure_pin_budget(pins_required)
        ensure_pin_registerable(pins_required)
    if unloaded:
        soft_empty_cache()
    return unloaded


def load_models_gpu(
    models, memory_required=0, force_patch_weights=False, minimum_memory_required=None, force_full_load=False
):
    """Loads models, whole or in part, after making room for them and for computing."""
    cleanup_models_gc()
    inference = minimum_inference_memory()
    extra = max(inference, memory_required + extra_reserved_memory())
    least = extra
    if minimum_memory_required is not None:
        least = max(inference, minimum_memory_required + extra_reserved_memory())
    wanted = list(dict.fromkeys(each for model in models for each in (model, *model.model_patches_models())))
    wanted.reverse()
    entries = []
    for model in wanted:
        entry = LoadedModel(model)
        if entry in current_loaded_models:
            entry = current_loaded_models[current_loaded_models.index(entry)]
            entry.currently_used = True
        entries.append(entry)
    for entry in entries:
        for index in range(len(current_loaded_models) - 1, -1, -1):
            if entry.model.is_clone(current_loaded_models[index].model):
                other = current_loaded_models.pop(index)
                other.model.detach(unpatch_all=False)
                other.model_finalizer.detach()
    paged = all(model.is_dynamic() for model in wanted)
    required, pins = {}, {}
    for entry in entries:
        required[entry.device] = required.get(entry.device, 0) + entry.model_memory_required(entry.device)
        if not entry.model.is_dynamic():
            pins[entry.device] = pins.get(entry.device, 0) + entry.model_memory()
    for device, size in required.items():
        if not is_device_cpu(device):
            free_memory(size * 1.1 + extra, device, for_dynamic=paged, pins_required=pins.get(device, 0))
    for device in required:
        if not is_device_cpu(device) and get_free_memory(device) < least:
            free_memory(least, device, for_dynamic=paged)
    for entry in entries:
        entry.model_load(_budget(entry, least, force_full_load), force_patch_weights=force_patch_weights)
        current_loaded_models.insert(0, entry)


def _budget(entry, least, force_full_load):
    """Bytes of a model that may be loaded; 0 stands for all."""
    state = VRAMState.DISABLED if is_device_cpu(entry.device) else vram_state
    if state == VRAMState.NO_VRAM:
        return 0.1
    if state not in (VRAMState.LOW_VRAM, VRAMState.NORMAL_VRAM) or force_full_load:
        return 0
    loaded = entry.model_loaded_memory()
    free = get_free_memory(entry.device) + loaded
    return max(0, free - least, min(free * MIN_WEIGHT_MEMORY_RATIO, free - minimum_inference_memory())) - loaded or 0.1


def load_model_gpu(model):
    """Loads one model."""
    return load_models_gpu([model])


def loaded_models(only_currently_used=False):
    """The patchers of the list."""
    return [entry.model for entry in current_loaded_models if entry.currently_used or not only_currently_used]


def cleanup_models_gc():
    """Collects garbage when weights outlive their patcher."""
    if any(entry.is_dead() for entry in current_loaded_models):
        gc.collect()
        soft_empty_cache()


def cleanup_models():
    """Drops the entries whose weights are gone."""
    for index in range(len(current_loaded_models) - 1, -1, -1):
        if current_loaded_models[index].real_model() is None:
            del current_loaded_models[index]


def reset_cast_buffers():
    """Gives back what casting took, and what computing had locked."""
    for entry in current_loaded_models:
        model = entry.model
        if model is not None and model.is_dynamic():
            model.model.dynamic_pins[model.load_device]["active"] = False
    for mapping in DIRTY_MMAPS:
        mapping.bounce()
    DIRTY_MMAPS.clear()
    STREAM_CAST_BUFFERS.clear()
    STREAM_AIMDO_CAST_BUFFERS.clear()
    soft_empty_cache()


def soft_empty_cache(force=False):
    """Gives an allocator's cache back to the driver; the fake card has no such cache."""


def synchronize():
    """Waits for the card, which computes at once."""


def unload_all_models():
    """Unloads everything."""
    for device in get_all_torch_devices():
        free_memory(1e30, device)


def is_oom(e):
    """Whether an error says that the card is full."""
    return isinstance(e, OOM_EXCEPTION)


# ---- interruption ---------------------------------------------------------------------------------------------------


class InterruptProcessingException(BaseException):
    """Ends a node when the user cancels; no ``except Exception`` of a node stops it."""


interrupt_processing_mutex = threading.RLock()
interrupt_processing = False


def interrupt_current_processing(value=True):
    """Ask whatever computes to stop, or take that back."""
    global interrupt_processing
    with interrupt_processing_mutex:
        interrupt_processing = value


def processing_interrupted():
    """Whether stopping was asked for; changes nothing."""
    with interrupt_processing_mutex:
        return interrupt_processing


def throw_exception_if_processing_interrupted():
    """Raise when stopping was asked for, and forget that it was."""
    global interrupt_processing
    with interrupt_processing_mutex:
        if interrupt_processing:
            interrupt_processing = False
            raise InterruptProcessingException()
