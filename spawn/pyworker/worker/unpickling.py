"""Opening pickles: in workers alone, and only those of their own environment or of their host."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any


class _Unpickler(pickle.Unpickler):
    """Finds the arrays that travelled beside the pickle."""

    def __init__(self, data: bytes, arrays: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._arrays = arrays

    def find_class(self, module: str, name: str) -> Any:
        """A class. ComfyUI's modules of extra nodes are named after their files, by a host as well
        as here; where they are not loaded they are importable all the same.
        """
        if module not in sys.modules:
            folder, _, file = module.replace("\\", "/").rpartition("/")
            if folder.rpartition("/")[2] == "comfy_extras":
                module = f"comfy_extras.{file}"
        return super().find_class(module, name)

    def persistent_load(self, number: Any) -> Any:
        return self._arrays[number]


def load(data: bytes, arrays: list[Any]) -> Any:
    """The object of a pickle. Raises whatever its parts raise."""
    return _Unpickler(data, arrays).load()
