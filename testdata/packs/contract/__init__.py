"""A node for every promise of the node contract; the same pack is run inside ComfyUI and in a worker."""

from comfy_env import register_nodes

NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()
