"""What makes a ComfyUI host use workers: `comfy_env` calls in here, and ComfyUI's node mappings get classes from here.

Standard library only. ComfyUI, torch and aiohttp are those of the host; each is looked up where it is needed, and what
is missing there switches one thing off and nothing else. The one object of the process is adapter.Adapter.
"""
