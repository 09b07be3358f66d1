"""A node that waits, as nodes do that ask a server."""

from __future__ import annotations

import asyncio
import time


class DemoWait:
    """Waits without keeping others from running; returns when it began and ended."""

    CATEGORY = "demo"
    FUNCTION = "wait"
    RETURN_TYPES = ("FLOAT", "FLOAT")
    RETURN_NAMES = ("began", "ended")

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seconds": ("FLOAT", {"default": 0.5, "min": 0.0, "max": 60.0})}}

    async def wait(self, seconds):
        began = time.monotonic()
        await asyncio.sleep(seconds)
        return (began, time.monotonic())
