"""A node that touches nothing of ComfyUI until it is told to."""

import sys


class QuietModules:
    FUNCTION = "run"
    RETURN_TYPES = ("LIST",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "optional": {"imports": ("BOOLEAN", {})}}

    def run(self, imports=False):
        if imports:
            import comfy.model_management  # noqa: F401
        return (sorted(name.rpartition(".")[2] for name in sys.modules if name.startswith("comfy_supervisor_worker.comfyui.")),)


NODE_CLASS_MAPPINGS = {"QuietModules": QuietModules}
