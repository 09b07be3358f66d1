"""Nodes for the worker's tests with torch."""

import torch

MADE_AT_IMPORT = torch.ones(3)


class Node:
    RETURN_TYPES = ("*",)
    FUNCTION = "run"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}


class Mode(Node):
    def run(self):
        return (torch.is_inference_mode_enabled(), torch.is_grad_enabled())


class AsyncMode(Node):
    async def run(self):
        return (torch.is_inference_mode_enabled(), torch.is_grad_enabled())


class ImportedTensor(Node):
    def run(self):
        return (MADE_AT_IMPORT.is_inference(),)


class Trains(Node):
    def run(self, data):
        with torch.inference_mode(False), torch.enable_grad():
            layer = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            losses = []
            for _ in range(20):
                loss = (layer(data) - data.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return (losses[0], losses[-1])


class Lazy(Node):
    def __init__(self):
        self.weight = None

    def run(self, value):
        if self.weight is None:
            self.weight = torch.nn.Parameter(torch.full((3,), 2.0))
        return (value * self.weight,)


class WritesInPlace(Node):
    def run(self, value, through):
        kept = value.clone()
        if through == "torch":
            value += 1
        else:
            array = value.numpy()
            array += 1
        return (value, kept)


class Holder:
    def __init__(self, model):
        self.deep = [{"model": model}]


MODEL = torch.nn.Linear(2, 2)
HOLDER = Holder(MODEL)


class Model(Node):
    def run(self):
        return (MODEL, HOLDER)


class UsesModel(Node):
    def run(self, model, holder):
        return (model is MODEL and holder is HOLDER,)


NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in list(globals().values())
    if isinstance(node, type) and issubclass(node, Node)
}
