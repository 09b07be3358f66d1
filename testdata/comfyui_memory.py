"""Print, as JSON, what the memory management of a ComfyUI tree does with the same loads on the same pretended card.

    comfyui_memory.py TREE

The card has 24 GiB, the models are doubles that take what they are given; nothing is computed.
"""

from __future__ import annotations

import json
import sys
import uuid

tree = sys.argv[1]
sys.argv = ["main.py", "--cpu"]
sys.path.insert(0, tree)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.model_management as management  # noqa: E402

GIB = 1024**3
steps: list[object] = []


def device(kind, index=None):
    """A device as this tree has them."""
    torch = sys.modules.get("torch")
    return torch.device(kind, index) if torch is not None else management._Device(kind, index)


CARD, PROCESSOR = device("cuda", 0), device("cpu")


class Weights:
    """A model without weights."""

    def __init__(self):
        self.pins = 0
        self.dynamic_pins = {CARD: {"active": False, "current_prompt": False}}


class Patcher:
    """What lists and loaders touch of a patcher."""

    def __init__(self, name, gib, paged=False):
        self.name, self.size, self.paged, self.loaded = name, int(gib * GIB), paged, 0
        self.model = Weights()
        self.load_device, self.offload_device, self.parent = CARD, PROCESSOR, None
        self.clone_base_uuid = uuid.uuid4()

    def is_dynamic(self):
        return self.paged

    def is_clone(self, other):
        return self.model is getattr(other, "model", None)

    def model_size(self):
        return self.size

    def loaded_size(self):
        return self.loaded

    def loaded_ram_size(self):
        return 0

    def current_loaded_device(self):
        return CARD if self.loaded else PROCESSOR

    def model_patches_models(self):
        return []

    def model_patches_to(self, target):
        pass

    def model_dtype(self):
        return None

    def partially_load(self, target, extra=0, force_patch_weights=False):
        steps.append([self.name, "load", round(extra) if extra < 1e30 else "all"])
        before, self.loaded = self.loaded, min(self.size, int(min(self.loaded + extra, 1 << 60)))
        return self.loaded - before

    def partially_unload(self, target, size=0, force_patch_weights=False):
        steps.append([self.name, "unload", round(size) if size < 1e29 else "all"])
        freed = min(self.loaded, -int(-size // 1)) if size < 1e29 else self.loaded
        self.loaded -= freed
        return freed

    def detach(self, unpatch_all=True):
        steps.append([self.name, "detach", unpatch_all])
        if unpatch_all:
            self.loaded = 0
        return self.model

    def pinned_memory_size(self):
        return self.model.pins

    def unregister_inactive_pins(self, size, subsets=()):
        return self.partially_unload_ram(size, subsets)

    def partially_unload_ram(self, size, subsets=()):
        steps.append([self.name, "pins", round(size) if size < 1e29 else "all", list(subsets)])
        freed = min(self.model.pins, int(min(size, 1 << 60)))
        self.model.pins -= freed
        management.TOTAL_PINNED_MEMORY -= freed
        return freed


def free(dev=None, torch_free_too=False):
    """What is free on the pretended card."""
    left = 24 * GIB - sum(entry.model.loaded for entry in management.current_loaded_models if entry.model is not None)
    return (left, 0) if torch_free_too else left


def state():
    """The list, the newest first, with what of each is on the card, and what happened since the last look."""
    listed = [[entry.model.name, entry.model.loaded] for entry in management.current_loaded_models]
    happened, steps[:] = list(steps), []
    return {"list": listed, "happened": happened}


def ledger(limit):
    """Loads under the ledger, in a VRAM state."""
    management.vram_state = management.VRAMState[limit]
    a, b, c, large = (Patcher(name, gib) for name, gib in (("a", 10), ("b", 8), ("c", 9), ("large", 40)))
    seen = []
    for models, named in (
        ([a], {}),
        ([b], {"memory_required": 2 * GIB}),
        ([c], {"memory_required": GIB, "minimum_memory_required": GIB // 2}),
        ([a, c], {}),
        ([large], {"force_full_load": False}),
        ([b], {"force_full_load": True}),
    ):
        management.load_models_gpu(models, **named)
        seen.append(state())
    seen.append(len(management.free_memory(6 * GIB, CARD, keep_loaded=[])))
    seen.append(state())
    management.unload_all_models()
    seen.append(state())
    return seen


def paged():
    """Loads under the pager, and an ask that is for a model of the ledger."""
    management.vram_state = management.VRAMState.NORMAL_VRAM
    a, b, old = Patcher("a", 14, True), Patcher("b", 14, True), Patcher("old", 4)
    seen = []
    for models in ([a], [b], [old]):
        management.load_models_gpu(models)
        seen.append(state())
    management.unload_all_models()
    seen.append(state())
    return seen


def pins():
    """Whose pins go, and what the ceiling says."""
    kept, used = Patcher("kept", 1, True), Patcher("used", 1, True)
    management.current_loaded_models[:] = [management.LoadedModel(each) for each in (kept, used)]
    used.model.dynamic_pins[CARD]["current_prompt"] = True
    management.MAX_PINNED_MEMORY = 10 * GIB
    seen = []
    for question in (
        lambda: management.free_pins(3 * GIB),
        lambda: management.free_pins(GIB, evict_active=True),
        lambda: management.ensure_pin_registerable(3 * GIB),
        lambda: management.ensure_pin_registerable(30 * GIB),
        lambda: management.free_registrations(0),
        lambda: management.pinned_hostbuf_size(30 * GIB),
    ):
        for each in (kept, used):
            each.model.pins = 4 * GIB
        management.TOTAL_PINNED_MEMORY = 8 * GIB
        seen.append([question(), management.TOTAL_PINNED_MEMORY, state()["happened"]])
    management.current_loaded_models.clear()
    management.MAX_PINNED_MEMORY, management.TOTAL_PINNED_MEMORY = -1, 0
    return seen


def main():
    management.get_free_memory = free
    management.get_all_torch_devices = lambda exclude_current=False: [CARD]
    answers = {f"ledger {limit}": ledger(limit) for limit in ("NORMAL_VRAM", "LOW_VRAM", "NO_VRAM", "HIGH_VRAM")}
    print(json.dumps({**answers, "paged": paged(), "pins": pins()}))


if __name__ == "__main__":
    main()
