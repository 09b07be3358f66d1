"""Readings of free RAM wait for workers, and for how long at most."""

from __future__ import annotations

import logging
import sys
import types
import unittest
from typing import Any

from comfyui_adapter import ramrelease
from fakecomfy import modules


class Readings(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.takes: list[float] = []  # what each wait takes; inf: until its time is up
        self.waited: list[float] = []
        self.readings = 0
        psutil = types.SimpleNamespace(virtual_memory=self.read, cpu_count=lambda: 7)

        class RAMPressureCache:
            def ram_release(self, target: int, free_active: bool = False, min_entry_size: int = 0) -> Any:
                """ComfyUI's."""
                looks = [sys.modules["comfy_execution.caching"].psutil.virtual_memory() for _ in range(target)]
                if free_active:
                    raise MemoryError
                return looks, min_entry_size

        held = modules(comfy_execution__caching={"RAMPressureCache": RAMPressureCache, "psutil": psutil})
        held.__enter__()
        self.addCleanup(held.__exit__, None, None, None)
        self.assertTrue(ramrelease.install(self.settle, lambda: self.now))
        self.psutil = sys.modules["comfy_execution.caching"].psutil
        self.cache = RAMPressureCache()

    def read(self) -> int:
        self.readings += 1
        return len(self.waited)

    def settle(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += min(seconds, self.takes.pop(0) if self.takes else 0.0)

    def test_each_reading_of_a_release_comes_after_a_wait(self) -> None:
        self.assertEqual(self.cache.ram_release(3, min_entry_size=5), ([1, 2, 3], 5))
        self.assertEqual(self.waited, [ramrelease.LOOK_SECONDS] * 3)

    def test_workers_that_never_answer_hold_up_a_reading_and_a_release_for_so_long_and_no_longer(self) -> None:
        self.takes = [float("inf")] * 10
        self.cache.ram_release(10)
        self.assertEqual((self.now, self.waited, self.readings), (2.0, [0.5] * 4, 10))
        self.takes = [0.3, 0.5, 0.5, 0.5, float("inf")]
        self.cache.ram_release(10)
        self.assertEqual(len(self.waited), 9)
        self.assertAlmostEqual(self.waited[-1], 0.2)
        self.assertAlmostEqual(self.now, 4.0)

    def test_outside_of_a_release_nothing_waits(self) -> None:
        self.assertEqual(self.psutil.virtual_memory(), 0)
        with self.assertRaises(MemoryError):
            self.cache.ram_release(1, free_active=True)
        self.psutil.virtual_memory()
        self.assertEqual(len(self.waited), 1)
        self.assertEqual(self.psutil.cpu_count(), 7)

    def test_a_wait_that_fails_is_said_and_the_release_goes_on(self) -> None:
        self.takes = ["no number"]  # type: ignore[list-item]
        with self.assertLogs(level=logging.ERROR):
            self.assertEqual(self.cache.ram_release(2)[0], [1, 2])

    def test_twice_is_once_and_without_such_a_cache_it_is_off(self) -> None:
        self.assertTrue(ramrelease.install(self.settle))
        self.cache.ram_release(1)
        self.assertEqual(len(self.waited), 1)
        for names in ({}, {"psutil": self.psutil}, {"RAMPressureCache": type(self.cache)}):
            with modules(comfy_execution__caching=names):
                self.assertFalse(ramrelease.install(self.settle))


if __name__ == "__main__":
    unittest.main()
