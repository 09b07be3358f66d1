"""A pack that imports torch only when a node runs."""

import sys


class Mode:
    RETURN_TYPES = ("BOOLEAN", "BOOLEAN")
    FUNCTION = "run"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    def run(self):
        loaded = "torch" in sys.modules
        import torch

        return (loaded, torch.is_inference_mode_enabled())


NODE_CLASS_MAPPINGS = {"Mode": Mode}
