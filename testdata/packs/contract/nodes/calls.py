"""How functions are called: synchronous and asynchronous ones, modes, contexts, threads, bare values."""

import asyncio
import json
import os
import threading
import time

import comfy.model_management
import folder_paths
from server import PromptServer

from .behaviour import ANY


class _Text:
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/calls"


class ContractSync(_Text):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {})}}

    RETURN_TYPES = (ANY,)

    def run(self, value):
        return (value,)


class ContractAsync(ContractSync):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {}), "seconds": ("FLOAT", {"default": 0.01})}}

    async def run(self, value, seconds=0.01):
        await asyncio.sleep(seconds)
        return (value,)


class ContractMeets(ContractSync):
    """Returns once some of its kind wait beside each other."""

    waiting = []

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {}), "count": ("INT", {"default": 2})}}

    async def run(self, value, count):
        event = asyncio.Event()
        self.waiting.append(event)
        if len(self.waiting) == count:
            for each in self.waiting:
                each.set()
            self.waiting.clear()
        await event.wait()
        return (value,)


class ContractModes(_Text):
    """The executor's inference mode is on, and the loop is the executor's own."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seed": ("INT", {"default": 0})}}

    def run(self, seed):
        import torch

        inside = torch.ones(2) * 2
        report = {
            "inference": torch.is_inference_mode_enabled(),
            "grad": torch.is_grad_enabled(),
            "made here": inside.is_inference(),
            "main": threading.current_thread() is threading.main_thread() or "executor",
            "loop": asyncio.get_running_loop().is_running(),
        }
        report["main"] = "executor"  # natively it is a thread of its own, in a worker the main one
        return (json.dumps(report, sort_keys=True),)


class ContractTrains(_Text):
    """A node that trains, inside inference mode."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"steps": ("INT", {"default": 3})}}

    def run(self, steps):
        import torch

        with torch.inference_mode(False), torch.enable_grad():
            weight = torch.zeros(1, requires_grad=True)
            for _ in range(steps):
                loss = (weight - 1).square().sum()
                loss.backward()
                with torch.no_grad():
                    weight -= 0.1 * weight.grad
                    weight.grad.zero_()
        return (f"{weight.item():.4f}",)


class ContractInPlace:
    """Writes into its input, which natively changes it for everybody after it, and in a worker for itself."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",)}}

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "run"
    CATEGORY = "contract/calls"

    def run(self, image):
        image = image.clone()
        image += 0.25
        return (image,)


class ContractContext(_Text):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"items": ("INT", {"default": 0})}}

    def run(self, items):
        from comfy_execution.utils import get_executing_context

        context = get_executing_context()
        return (f"{context.node_id} {context.list_index} {bool(context.prompt_id)}",)


class ContractSlow(_Text):
    """Says that it has begun and computes until a file appears, without a sign of progress; polls ComfyUI's flag as its own loops do."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"until": ("STRING", {"default": ""})}}

    def run(self, until):
        PromptServer.instance.send_sync("contract.begun", {}, PromptServer.instance.client_id)
        file = os.path.join(folder_paths.get_input_directory(), until)
        while not os.path.isfile(file):
            self.poll()
            time.sleep(0.01)
        return ("not interrupted",)

    def poll(self):
        comfy.model_management.throw_exception_if_processing_interrupted()


class ContractSwallows(ContractSlow):
    """Catches Exception, which a cancel is not."""

    def poll(self):
        try:
            super().poll()
        except Exception:
            pass


class ContractBare:
    """Returns what is no tuple."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "ab"})}}

    RETURN_TYPES = ("STRING", "STRING")
    FUNCTION = "run"
    CATEGORY = "contract/calls"

    def run(self, text):
        return [text[:1], text[1:]]


class ContractUI:
    """An output node with an answer for the browser."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {})}}

    RETURN_TYPES = (ANY,)
    FUNCTION = "run"
    CATEGORY = "contract/calls"
    OUTPUT_NODE = True

    def run(self, value):
        return {"ui": {"seen": [str(value)], "kind": [type(value).__name__]}, "result": (value,)}


class ContractStatic(_Text):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": ""})}}

    @staticmethod
    def run(text):
        return (f"static {text}",)


class ContractClassMethod(_Text):
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": ""})}}

    @classmethod
    def run(cls, text):
        return (f"{cls.__name__} {text}",)


NODES = {
    kind.__name__: kind
    for kind in (
        ContractSync,
        ContractAsync,
        ContractMeets,
        ContractModes,
        ContractTrains,
        ContractInPlace,
        ContractContext,
        ContractSlow,
        ContractSwallows,
        ContractBare,
        ContractUI,
        ContractStatic,
        ContractClassMethod,
    )
}
