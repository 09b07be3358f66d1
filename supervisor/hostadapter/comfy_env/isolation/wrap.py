"""Where packs written for comfy-env look for register_nodes. There is no pool of workers here to be found."""

from comfyui_adapter.packcalls import register_nodes

__all__ = ["register_nodes"]
