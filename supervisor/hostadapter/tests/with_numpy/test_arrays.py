"""numpy arrays through real workers."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
from sharing import BrokerCase, Sharing


class Arrays(Sharing, BrokerCase):
    def make(self, count: int) -> Any:
        return np.random.default_rng(count).random(count, dtype=np.float32)

    def copy(self, array: Any) -> Any:
        return array.copy()

    def same(self, one: Any, two: Any) -> bool:
        return bool(np.array_equal(one, two)) and one.dtype == two.dtype


if __name__ == "__main__":
    unittest.main()
