"""Where packs written for comfy-env look for register_nodes."""

from comfyui_adapter.packcalls import register_nodes

__all__ = ["register_nodes"]
