"""Patchers of models without torch: they move a model's weights to a card and back, whole or in part.

A model has `state_dict()` and `parameters()`, whose weights have `nbytes` and `data_ptr()`.
"""

import uuid
import weakref

import comfy.model_management as model_management


class PromptModelTracker:
    """Marks the paged models that a prompt uses."""

    def __init__(self):
        self.models = {}

    def start(self):
        """Begins with a prompt that has none yet."""
        self.end()

    def add(self, outputs):
        """Marks the models among a node's outputs."""
        if isinstance(outputs, dict):
            outputs = list(outputs.values())
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            if isinstance(output, (dict, list, tuple)):
                self.add(output)
            elif isinstance(output, ModelPatcher) and output.is_dynamic():
                self.models[id(output.model), output.load_device] = output
                output.set_in_use_by_current_prompt(True)

    def end(self):
        """Takes the marks back."""
        for model in self.models.values():
            model.set_in_use_by_current_prompt(False)
        self.models.clear()


class ModelPatcher:
    """A model under the ledger: its weights are on the card because somebody put them there."""

    def __init__(self, model, load_device, offload_device, size=0, weight_inplace_update=False):
        self.size = size
        self.model = model
        if getattr(model, "device", None) is None:
            self.model.device = offload_device
        self.load_device = load_device
        self.offload_device = offload_device
        self.weight_inplace_update = weight_inplace_update
        self.patches_uuid = uuid.uuid4()
        self.parent = None
        self.pinned = set()
        self.model_options = {"transformer_options": {}}
        if not hasattr(model, "model_loaded_weight_memory"):
            self.model.model_loaded_weight_memory = 0
            self.model.model_lowvram = False

    def is_dynamic(self):
        """Whether the pager moves the weights."""
        return False

    def model_size(self):
        """Bytes of all weights."""
        self.size = self.size or model_management.module_size(self.model)
        return self.size

    def loaded_size(self):
        """Bytes of those on the device."""
        return self.model.model_loaded_weight_memory

    def lowvram_patch_counter(self):
        """Patches that wait for their weights."""
        return 0

    def get_free_memory(self, device):
        """Bytes that a computation could use."""
        return model_management.get_free_memory(device)

    def clone(self, disable_dynamic=False, model_override=None, force_deepcopy=False):
        """Another patcher of the same model."""
        kind = ModelPatcher if disable_dynamic else type(self)
        made = kind(self.model, self.load_device, self.offload_device, self.model_size())
        made.parent = self
        return made

    def is_clone(self, other):
        """Whether another patcher has the same model."""
        return hasattr(other, "model") and self.model is other.model

    def model_patches_models(self):
        """Models that patches bring along."""
        return []

    def get_nested_additional_models(self):
        """Models that come with this one."""
        return []

    def current_loaded_device(self):
        """Where the model is."""
        return self.model.device

    def _card(self):
        if model_management.is_device_cpu(self.load_device):
            return None
        return model_management._cards[self.load_device.index]

    def _loaded(self):
        """The weights on the card, by key; they leave it with the model at the latest."""
        loaded = self.model.__dict__.get("_loaded")
        if loaded is None:
            loaded = self.model._loaded = {}
            card = self._card()
            if card is not None:
                weakref.finalize(self.model, lambda: card.give_back(sum(loaded.values()))).atexit = False
        return loaded

    def _load(self, budget):
        """Loads weights, the largest first, within so many bytes."""
        self.model.device = self.load_device
        weights = sorted(self.model.state_dict().items(), key=lambda item: -item[1].nbytes)
        card, loaded = self._card(), self._loaded()
        self.model.model_lowvram = False
        for key, weight in weights:
            if key in loaded:
                continue
            if self.model.model_loaded_weight_memory + weight.nbytes > budget:
                self.model.model_lowvram = True
                self.pin_weight_to_device(key)
                continue
            if card is not None:
                card.take(weight.nbytes)
            self.unpin_weight(key)
            loaded[key] = weight.nbytes
            self.model.model_loaded_weight_memory += weight.nbytes

    def partially_load(self, device_to, extra_memory=0, force_patch_weights=False):
        """Loads so many bytes more; returns how many came."""
        before = self.model.model_loaded_weight_memory
        if extra_memory < 0:
            self.partially_unload(self.offload_device, -extra_memory)
            return 0
        if not self.model.model_lowvram and before:
            return 0
        try:
            self._load(before + extra_memory)
        except Exception:
            self.detach()
            raise
        return self.model.model_loaded_weight_memory - before

    def partially_unload(self, device_to, memory_to_free=0, force_patch_weights=False):
        """Unloads at least so many bytes, the smallest weights first; returns how many went."""
        freed = 0
        loaded, card = self._loaded(), self._card()
        for key, size in sorted(loaded.items(), key=lambda item: item[1]):
            if freed >= memory_to_free:
                break
            if card is not None:
                card.give_back(size)
            del loaded[key]
            self.model.model_loaded_weight_memory -= size
            freed += size
            ModelPatcher.pin_weight_to_device(self, key)
        self.model.model_lowvram = True
        return freed

    def unpatch_model(self, device_to=None, unpatch_weights=True):
        """Moves the weights away and unpins them."""
        if unpatch_weights:
            ModelPatcher.partially_unload(self, device_to, 1e32)
            self.unpin_all_weights()
            self.model.model_lowvram = False
            self.model.device = self.offload_device

    def detach(self, unpatch_all=True):
        """Lets go of the model; of its weights too, unless another patcher goes on with them."""
        if unpatch_all:
            self.unpatch_model(self.offload_device, unpatch_weights=unpatch_all)
        return self.model

    def pin_weight_to_device(self, key):
        """Pins a weight that is not on the card."""
        if self._card() is not None and model_management.pin_memory(self.model.state_dict()[key]):
            self.pinned.add(key)

    def unpin_weight(self, key):
        """Takes that back."""
        if key in self.pinned:
            model_management.unpin_memory(self.model.state_dict()[key])
            self.pinned.remove(key)

    def unpin_all_weights(self):
        """Unpins every weight."""
        for key in list(self.pinned):
            self.unpin_weight(key)

    def pinned_memory_size(self):
        """Not counted by model under the ledger."""
        return 0

    def __del__(self):
        self.unpin_all_weights()

    def loaded_ram_size(self):
        """Not counted under the ledger."""
        return 0

    def partially_unload_ram(self, ram_to_unload):
        """Nothing to unload under the ledger."""
        return 0


class ModelPatcherDynamic(ModelPatcher):
    """A model under the pager: its pages come when they are used and go when others need them."""

    def __new__(cls, model=None, load_device=None, offload_device=None, size=0, weight_inplace_update=False):
        if load_device is not None and model_management.is_device_cpu(load_device):
            return ModelPatcher(model, load_device, offload_device, size, weight_inplace_update)
        return super().__new__(cls)

    def __init__(self, model, load_device, offload_device, size=0, weight_inplace_update=False):
        super().__init__(model, load_device, offload_device, size, weight_inplace_update)
        if not hasattr(model, "dynamic_vbars"):
            self.model.dynamic_vbars = {}
        if not hasattr(model, "dynamic_pins"):
            self.model.dynamic_pins = {}
        self.register_load_device(load_device)

    def register_load_device(self, device):
        """Makes sure that pins are counted for a device."""
        state = {"keys": [], "registered": 0, "active": False, "current_prompt": False}
        self.model.dynamic_pins.setdefault(device, state)

    def is_dynamic(self):
        return True

    def set_in_use_by_current_prompt(self, in_use):
        """Marks the model as one of the present prompt's."""
        self.model.dynamic_pins[self.load_device]["current_prompt"] = in_use

    def _vbar_get(self, create=False):
        vbar = self.model.dynamic_vbars.get(self.load_device)
        if vbar is None and create:
            import comfy_aimdo.model_vbar

            vbar = comfy_aimdo.model_vbar.ModelVBAR(self.model_size() * 10, self.load_device.index)
            self.model.dynamic_vbars[self.load_device] = vbar
        return vbar

    def loaded_size(self):
        vbar = self._vbar_get()
        return vbar.loaded_size() if vbar is not None else 0

    def partially_load(self, device_to, extra_memory=0, force_patch_weights=False):
        """Gives the weights addresses and the model priority; pages come when they are used."""
        vbar = self._vbar_get(create=True)
        self.model.device = self.load_device
        for key, weight in self.model.state_dict().items():
            if not hasattr(weight, "_v"):
                weight._v = vbar.alloc(weight.nbytes)
            self._pin(key, weight)
        self.model.dynamic_pins[self.load_device]["active"] = True
        vbar.prioritize()

    def _pin(self, key, weight):
        state = self.model.dynamic_pins[self.load_device]
        if key in state["keys"] or model_management.MAX_PINNED_MEMORY <= 0:
            return
        size = weight.nbytes
        if sum(self.model.state_dict()[each].nbytes for each in state["keys"]) + size > model_management.pinned_hostbuf_size(
            self.model_size()
        ):
            return
        if model_management.ensure_pin_budget(size) and model_management.ensure_pin_registerable(size):
            state["keys"].append(key)
            state["registered"] += size
            model_management.TOTAL_PINNED_MEMORY += size

    def partially_unload(self, device_to, memory_to_free=0, force_patch_weights=False):
        vbar = self._vbar_get()
        return vbar.free_memory(memory_to_free) if vbar is not None else 0

    def unregister_inactive_pins(self, ram_to_unload, subsets=["weights-loaded", "patches-loaded", "weights", "patches"]):
        """Unlocks pins that nothing computes with."""
        return self.partially_unload_ram(ram_to_unload, subsets)

    def partially_unload_ram(self, ram_to_unload, subsets=["weights-loaded", "patches-loaded", "weights", "patches"]):
        """Drops pins of the subsets; all that are here are weights."""
        state, freed = self.model.dynamic_pins[self.load_device], 0
        while "weights" in subsets and state["keys"] and freed < ram_to_unload:
            size = self.model.state_dict()[state["keys"].pop()].nbytes
            state["registered"] -= size
            model_management.TOTAL_PINNED_MEMORY -= size
            freed += size
        return freed

    def pinned_memory_size(self):
        """Bytes that are pinned."""
        return self.model.dynamic_pins[self.load_device]["registered"]

    def loaded_ram_size(self):
        """Bytes in host buffers."""
        return self.pinned_memory_size()

    def pin_weight_to_device(self, key):
        """Pinning follows use, not loading."""
        raise RuntimeError("weights of a paged model are not pinned one by one")

    def unpin_weight(self, key):
        """The same."""
        raise RuntimeError("weights of a paged model are not unpinned one by one")

    def unpin_all_weights(self):
        self.partially_unload_ram(1e32)

    def unpatch_model(self, device_to=None, unpatch_weights=True):
        if unpatch_weights:
            self.partially_unload_ram(1e32)
            self.partially_unload(None, 1e32)
            self.model.device = self.offload_device


CoreModelPatcher = ModelPatcher
