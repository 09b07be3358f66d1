"""The core nodes that live in comfy_extras: 138 of them, imported natively at every start, here when asked for.

Packs look other nodes up in nodes.NODE_CLASS_MAPPINGS. The mapping stays a dict; the first question that the nodes of
nodes.py alone can not answer loads the rest.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, ContextManager, Coroutine, Iterator


class LazyMapping(dict):
    """NODE_CLASS_MAPPINGS, completed on demand."""

    def __init__(self, known: dict[str, Any], load: Any) -> None:
        super().__init__(known)
        self._load = load
        self._complete = False
        self._lock = threading.RLock()

    def complete(self) -> None:
        """Loads the rest, once; the nodes that fail to load are missing, as natively."""
        with self._lock:
            if self._complete:
                return
            self._complete = True  # first: loading itself looks into the mapping
            self._load()

    def __missing__(self, key: Any) -> Any:
        if self._complete:
            raise KeyError(key)
        self.complete()
        return self[key]

    def __contains__(self, key: object) -> bool:
        if not dict.__contains__(self, key):
            self.complete()
        return dict.__contains__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        """The class of a node."""
        return self[key] if key in self else default

    def __iter__(self) -> Iterator[Any]:
        self.complete()
        return dict.__iter__(self)

    def __len__(self) -> int:
        self.complete()
        return dict.__len__(self)

    def keys(self) -> Any:
        """The names of all nodes."""
        self.complete()
        return dict.keys(self)

    def values(self) -> Any:
        """The classes of all nodes."""
        self.complete()
        return dict.values(self)

    def items(self) -> Any:
        """Names and classes."""
        self.complete()
        return dict.items(self)


def hook_nodes(module: Any, quietly: Callable[[], ContextManager[None]]) -> None:
    """The post-import hook of ComfyUI's nodes.py. What the core nodes register while they are loaded, the host has
    registered itself: `quietly` keeps it from being repeated."""
    init = getattr(module, "init_builtin_extra_nodes", None)
    mapping = getattr(module, "NODE_CLASS_MAPPINGS", None)
    if init is None or type(mapping) is not dict:
        return

    def load() -> None:
        public = getattr(module, "init_public_apis", None)
        with quietly():
            if public is not None:
                finish(public())
            failed = finish(init())
        if failed:
            logging.warning("core nodes that could not be imported in this worker: %s", ", ".join(failed))

    module.NODE_CLASS_MAPPINGS = LazyMapping(mapping, load)


def add_own(nodes: dict[str, type], module: Any) -> None:
    """Adds the pack's own classes to nodes.NODE_CLASS_MAPPINGS, where they are natively."""
    mapping = getattr(module, "NODE_CLASS_MAPPINGS", None)
    if isinstance(mapping, dict):
        for name, kind in nodes.items():
            if not dict.__contains__(mapping, name):
                dict.__setitem__(mapping, name, kind)


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that waits for nothing, whether or not a loop runs on this thread. Raises RuntimeError else."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a core node waits for something while it is loaded; that is not possible in a worker")
