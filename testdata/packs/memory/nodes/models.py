"""Models that have a size and nothing else, and computing with them."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys

import comfy.memory_management
import comfy.model_management
import comfy.model_patcher

MIB = 1024 * 1024
_addresses = itertools.count(1)


class Weight:
    """One weight: as many bytes as it says."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self._address = next(_addresses)

    def numel(self):
        return self.nbytes

    def element_size(self):
        return 1

    def data_ptr(self):
        return self._address


class Model:
    """So many MiB of weights, in pieces of 64 MiB."""

    def __init__(self, name, size_mib):
        self.name = name
        self.device = None
        pieces = [64] * (size_mib // 64) + ([size_mib % 64] if size_mib % 64 else [])
        self._weights = {f"weight{index}": Weight(piece * MIB) for index, piece in enumerate(pieces)}

    def state_dict(self):
        return self._weights

    def parameters(self):
        return iter(self._weights.values())


def patcher(name, size_mib):
    """A model under the manager that this process uses."""
    load_device = comfy.model_management.get_torch_device()
    offload_device = comfy.model_management._CPU
    return comfy.model_patcher.CoreModelPatcher(Model(name, size_mib), load_device, offload_device)


def use_weights(model):
    """What a forward pass does under the pager: every weight is fetched that is not there."""
    vbars = sys.modules.get("comfy_aimdo.model_vbar")
    missed = 0
    for weight in model.model.parameters():
        if vbars is not None and hasattr(weight, "_v") and vbars.vbar_fault(weight._v) is None:
            missed += weight.nbytes
    return missed


def take_for_computing(size):
    """Takes bytes of the card as torch does; the pager, where it runs, makes room for them."""
    pager = sys.modules.get("comfy_aimdo.control")
    if pager is not None and pager.devctxs:
        pager.hooked_take(0, size)
    elif comfy.model_management._cards:
        comfy.model_management._cards[0].take(size)


def compute(models, activation_mib, estimate_mib, started, until):
    """Loads models, takes what computing takes, and goes on until the pipe `until` is closed by whoever opened it to write.

    `started` is a pipe that is opened for reading by who wants to know that the computation runs. Both may be "".
    """
    with computation(models, activation_mib, estimate_mib):
        wait_for_end(started, until)
        return report(models)


@contextlib.contextmanager
def computation(models, activation_mib, estimate_mib):
    """Loads models and takes what computing takes, as long as it lasts."""
    estimate = (activation_mib if estimate_mib < 0 else estimate_mib) * MIB
    comfy.model_management.load_models_gpu(models, memory_required=estimate)
    for model in models:
        use_weights(model)
    take_for_computing(activation_mib * MIB)
    try:
        yield
    finally:
        if comfy.model_management._cards:
            comfy.model_management._cards[0].give_back(activation_mib * MIB)


def wait_for_end(started, until):
    """Says that the computation runs, and waits for its end."""
    if started:
        with open(started, "w", encoding="ascii") as pipe:
            pipe.write(f"{os.getpid()}\n")
    if until:
        with open(until, encoding="ascii") as pipe:
            pipe.read()


def report(models=()):
    """What this process holds and what limits it, in bytes."""
    management = comfy.model_management
    pager = getattr(sys.modules.get("comfy_aimdo.control"), "lib", None)
    return {
        "pid": os.getpid(),
        "held": management._cards[0].held() if management._cards else 0,
        "free": management.get_free_memory(),
        "reserve": management.EXTRA_RESERVED_VRAM,
        "headroom": getattr(pager, "simple_vram_headroom", None),
        "pinned": management.TOTAL_PINNED_MEMORY,
        "pin_ceiling": management.MAX_PINNED_MEMORY,
        "ram_headroom": comfy.memory_management.RAM_CACHE_HEADROOM,
        "models": {
            entry.model.model.name: entry.model_loaded_memory()
            for entry in management.current_loaded_models
            if entry.model is not None and hasattr(entry.model.model, "name")
        },
        "computed": [model.model.name for model in models],
    }
