"""A pack that ComfyUI loads through comfy-env; its nodes run in an environment of their own."""

from comfy_env import register_nodes

NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()
