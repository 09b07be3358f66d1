"""Opening pickles: in workers alone, and only those of their own environment or of their host."""

from __future__ import annotations

import io
import pickle
from typing import Any


class _Unpickler(pickle.Unpickler):
    """Finds the arrays that travelled beside the pickle."""

    def __init__(self, data: bytes, arrays: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._arrays = arrays

    def persistent_load(self, number: Any) -> Any:
        return self._arrays[number]


def load(data: bytes, arrays: list[Any]) -> Any:
    """The object of a pickle. Raises whatever its parts raise."""
    return _Unpickler(data, arrays).load()
