"""The calls that node packs make: install, setup_env, register_nodes, register_serializer, copy_files.

Packs import this name; what it does is in comfyui_adapter. It stands in front of an installed comfy-env.
"""

from comfyui_adapter.packcalls import copy_files, install, register_nodes, register_serializer, setup_env

__all__ = ["install", "setup_env", "register_nodes", "copy_files", "register_serializer"]
