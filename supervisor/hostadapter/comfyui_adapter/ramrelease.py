"""ComfyUI's RAM-pressure cache waits a moment for what its evictions free in workers.

The cache evicts outputs one after the other and reads the free RAM after each. What an output holds in a worker goes a moment
after its handle: without a wait the reading comes too early, and more is evicted than is needed.

| module | name | when it is missing |
| --- | --- | --- |
| comfy_execution.caching | RAMPressureCache.ram_release | cached outputs may go that need not |
| comfy_execution.caching | psutil.virtual_memory | cached outputs may go that need not |
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from typing import Any, Callable

LOOK_SECONDS = 0.5  # that one reading waits at most
RELEASE_SECONDS = 2.0  # that all readings of one release wait together


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


class _Patience(threading.local):
    left = 0.0  # seconds that the release on this thread may still wait; 0 outside of one


class _Psutil:
    """Stands for psutil in the cache's module: reads no sooner than workers have let go."""

    def __init__(self, original: Any, before: Callable[[], None]) -> None:
        self._original = original
        self._before = before

    def virtual_memory(self) -> Any:
        """psutil's own, a moment later."""
        self._before()
        return self._original.virtual_memory()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def install(settle: Callable[[float], Any], clock: Callable[[], float] = time.monotonic) -> bool:
    """Has the cache call `settle(seconds)` before each reading of a release; it waits for as long at most. `clock` is in
    seconds. False where this ComfyUI has no such cache; more than once is once."""
    cache, psutil = _attribute("comfy_execution.caching", "RAMPressureCache"), _attribute("comfy_execution.caching", "psutil")
    original = getattr(cache, "ram_release", None)
    if original is None or not hasattr(psutil, "virtual_memory"):
        return False
    if isinstance(psutil, _Psutil):
        return True
    patience = _Patience()

    def wait() -> None:
        seconds = min(LOOK_SECONDS, patience.left)
        if seconds <= 0:
            return
        began = clock()
        try:
            settle(seconds)
        except Exception:
            logging.exception("comfy-supervisor: free RAM is read without waiting for workers")
        patience.left -= clock() - began

    @functools.wraps(original)
    def ram_release(self: Any, *arguments: Any, **named: Any) -> Any:
        before, patience.left = patience.left, patience.left or RELEASE_SECONDS
        try:
            return original(self, *arguments, **named)
        finally:
            patience.left = before

    cache.ram_release = ram_release
    sys.modules["comfy_execution.caching"].psutil = _Psutil(psutil, wait)  # type: ignore[attr-defined]
    return True
