"""The pager of fake cards: the part of comfy-aimdo 0.4 that ComfyUI's memory management uses, on bytes of a shared file."""
