"""A worker as ComfyUI sees it: what a pack may use of ComfyUI, and how ComfyUI's executor runs nodes.

Nothing here imports ComfyUI, torch or aiohttp by itself: what the pack imports is completed by hooks after its import.
`adapter` ties it to the worker; everything else knows neither lanes nor connections.
"""
