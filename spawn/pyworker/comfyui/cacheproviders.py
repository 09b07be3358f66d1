"""Providers of cached outputs, which ComfyUI's executor asks: there is no executor in a worker.

| module | name | without it |
|---|---|---|
| comfy_execution.cache_provider | register_cache_provider | a pack's provider is kept here and never asked, without a word |
"""

from __future__ import annotations

import logging
from typing import Any


def refuse(module: Any) -> None:
    """The post-import hook: registering a provider says that it is of no use here."""
    if not hasattr(module, "register_cache_provider"):
        return

    def register_cache_provider(provider: Any) -> None:
        kind = type(provider)
        logging.warning(
            "the cache provider %s.%s is not used: ComfyUI's executor, which would ask it, runs in another process. Register"
            " it from a folder of the pack that has no comfy-env.toml",
            kind.__module__,
            kind.__qualname__,
        )

    module.register_cache_provider = register_cache_provider
