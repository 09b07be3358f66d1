"""Nodes that have real models of ComfyUI, on whatever it computes with."""

from __future__ import annotations

import comfy.model_management
import comfy.model_patcher
import comfy.ops
import torch


class RealModel:
    """Loads a model of so many MiB through ComfyUI's own manager and uses it."""

    FUNCTION = "use"
    RETURN_TYPES = ("INT",)

    kept = {}

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": ("STRING", {}), "size_mib": ("INT", {})}}

    def use(self, name, size_mib):
        patcher = self.kept.get(name)
        if patcher is None:
            # In pieces of 16 MiB, of layers that the pager can fetch one by one; 4 bytes a weight.
            layers = (comfy.ops.manual_cast.Linear(1024, 4096, bias=False) for _ in range(size_mib // 16))
            module = torch.nn.ModuleList(layers)
            device = comfy.model_management.get_torch_device()
            patcher = comfy.model_patcher.CoreModelPatcher(module, load_device=device, offload_device=torch.device("cpu"))
            self.kept[name] = patcher
        comfy.model_management.load_models_gpu([patcher], memory_required=64 << 20)
        inputs = torch.ones((1024, 1024), device=patcher.load_device)
        for layer in patcher.model:
            assert layer(inputs).shape == (1024, 4096)
        return (patcher.loaded_size(),)


class RawModel:
    """Keeps a plain torch module on itself."""

    FUNCTION = "use"
    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def __init__(self):
        self.module = torch.nn.Linear(16, 16)

    def use(self):
        return (sum(weight.nbytes for weight in self.module.parameters()),)


NODE_CLASS_MAPPINGS = {"RealModel": RealModel, "RawModel": RawModel}
