"""Nodes that load models and compute with them."""

from __future__ import annotations

import asyncio

from . import models

_COMPUTING = {
    "activation_mib": ("INT", {"default": 0}),
    "estimate_mib": ("INT", {"default": -1, "tooltip": "the model's own estimate; -1: exactly what is taken"}),
    "started": ("STRING", {"default": ""}),
    "until": ("STRING", {"default": ""}),
}


class MemoryLoad:
    """Makes a model of a size; it goes to the card when somebody computes with it."""

    CATEGORY = "memory"
    FUNCTION = "load"
    RETURN_TYPES = ("MODEL",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": ("STRING", {"default": "a"}), "size_mib": ("INT", {"default": 64})}}

    def load(self, name, size_mib):
        return (models.patcher(name, size_mib),)


class MemoryCompute:
    """Computes with one model or two."""

    CATEGORY = "memory"
    FUNCTION = "compute"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",)}, "optional": {"other": ("MODEL",), **_COMPUTING}}

    def compute(self, model, other=None, activation_mib=0, estimate_mib=-1, started="", until=""):
        loaded = [model] if other is None else [model, other]
        return (models.compute(loaded, activation_mib, estimate_mib, started, until),)


class MemoryWork:
    """Loads and computes in one call, for callers that can not hold a model: it is kept here under its name."""

    CATEGORY = "memory"
    FUNCTION = "work"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    kept = {}

    @classmethod
    def INPUT_TYPES(cls):
        size = {"name": ("STRING", {"default": "a"}), "size_mib": ("INT", {"default": 64})}
        return {"required": size, "optional": dict(_COMPUTING)}

    def work(self, name, size_mib, activation_mib=0, estimate_mib=-1, started="", until=""):
        model = self.kept.get(name)
        if model is None:
            model = self.kept[name] = models.patcher(name, size_mib)
        return (models.compute([model], activation_mib, estimate_mib, started, until),)


class MemoryWorkBeside:
    """The same beside other nodes: while it computes, its worker's loop runs on."""

    CATEGORY = "memory"
    FUNCTION = "work"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    INPUT_TYPES = MemoryWork.INPUT_TYPES

    async def work(self, name, size_mib, activation_mib=0, estimate_mib=-1, started="", until=""):
        model = MemoryWork.kept.get(name)
        if model is None:
            model = MemoryWork.kept[name] = models.patcher(name, size_mib)
        with models.computation([model], activation_mib, estimate_mib):
            await asyncio.get_running_loop().run_in_executor(None, models.wait_for_end, started, until)
            return (models.report([model]),)


class MemoryForget:
    """Drops a model that MemoryWork keeps."""

    CATEGORY = "memory"
    FUNCTION = "forget"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": ("STRING", {"default": "a"})}}

    def forget(self, name):
        MemoryWork.kept.pop(name, None)
        return (models.report(),)
