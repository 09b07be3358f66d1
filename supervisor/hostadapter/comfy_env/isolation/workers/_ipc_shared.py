"""The second spelling of register_serializer."""

from comfyui_adapter.packcalls import register_serializer

__all__ = ["register_serializer"]
