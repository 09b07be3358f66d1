"""Nodes that have real models of ComfyUI on the processor."""

from __future__ import annotations

import comfy.model_management
import comfy.model_patcher
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
            module = torch.nn.Linear(1024, size_mib * 256, bias=False)  # 4 bytes each
            device = comfy.model_management.get_torch_device()
            patcher = comfy.model_patcher.CoreModelPatcher(module, load_device=device, offload_device=torch.device("cpu"))
            self.kept[name] = patcher
        comfy.model_management.load_models_gpu([patcher], memory_required=1 << 20)
        assert patcher.model(torch.ones(1024)).shape == (size_mib * 256,)
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
