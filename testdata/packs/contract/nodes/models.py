"""Objects that never leave their process."""

import threading


class Engine:
    """Holds a lock, so it can not be copied."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()

    def answer(self):
        with self.lock:
            return f"engine {self.name}"


class ContractMakesEngine:
    loaded = 0

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"name": ("STRING", {"default": "a"})}}

    RETURN_TYPES = ("CONTRACT_ENGINE",)
    FUNCTION = "run"
    CATEGORY = "contract/models"

    def run(self, name):
        type(self).loaded += 1
        return (Engine(name),)


class ContractUsesEngine:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"engine": ("CONTRACT_ENGINE",), "seed": ("INT", {"default": 0})}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/models"

    def run(self, engine, seed):
        return (engine.answer(),)


class ContractMakesModel:
    """A torch module, which never crosses as a copy."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"size": ("INT", {"default": 4})}}

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "run"
    CATEGORY = "contract/models"

    def run(self, size):
        import torch

        model = torch.nn.Linear(size, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        return (model,)


class ContractUsesModel:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",), "seed": ("INT", {"default": 0})}}

    RETURN_TYPES = ("FLOAT",)
    FUNCTION = "run"
    CATEGORY = "contract/models"

    def run(self, model, seed):
        import torch

        return (float(model(torch.ones(model.in_features)).item()),)


NODES = {
    kind.__name__: kind for kind in (ContractMakesEngine, ContractUsesEngine, ContractMakesModel, ContractUsesModel)
}
