"""Progress of both kinds, previews, text, and messages of the pack's own."""

import asyncio

import comfy.utils
from comfy_api.latest import ComfyAPI, ComfyAPISync
from server import PromptServer

_api = ComfyAPI()
_api_sync = ComfyAPISync()


class _Steps:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"steps": ("INT", {"default": 3})}, "hidden": {"me": "UNIQUE_ID"}}

    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "contract/progress"


class ContractBar(_Steps):
    def run(self, steps, me):
        bar = comfy.utils.ProgressBar(steps)
        for _ in range(steps):
            bar.update(1)
        return (steps,)


class ContractBarAsync(_Steps):
    async def run(self, steps, me):
        bar = comfy.utils.ProgressBar(steps, node_id=me)
        for _ in range(steps):
            bar.update(1)
            await asyncio.sleep(0)
        return (steps,)


class ContractPreview(_Steps):
    def run(self, steps, me):
        from PIL import Image

        bar = comfy.utils.ProgressBar(steps)
        for step in range(steps):
            picture = Image.new("RGB", (16, 16), (step * 10, 20, 30))
            bar.update_absolute(step + 1, steps, ("PNG", picture, None))
        return (steps,)


class ContractSetProgress(_Steps):
    async def run(self, steps, me):
        for step in range(steps):
            await _api.execution.set_progress(value=step + 1, max_value=steps)
        return (steps,)


class ContractSetProgressSync(_Steps):
    def run(self, steps, me):
        for step in range(steps):
            _api_sync.execution.set_progress(value=step + 1, max_value=steps)
        return (steps,)


class ContractMessages(_Steps):
    def run(self, steps, me):
        server = PromptServer.instance
        for step in range(steps):
            server.send_sync("contract.step", {"step": step, "node": me}, server.client_id)
        server.send_sync("contract.all", {"node": me})
        server.send_progress_text("contract text", me)
        return {"ui": {"said": [steps]}, "result": (steps,)}

    OUTPUT_NODE = True


NODES = {
    kind.__name__: kind
    for kind in (
        ContractBar,
        ContractBarAsync,
        ContractPreview,
        ContractSetProgress,
        ContractSetProgressSync,
        ContractMessages,
    )
}
