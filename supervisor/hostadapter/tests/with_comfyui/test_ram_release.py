"""A real RAM-pressure cache whose outputs weigh in a worker."""

from __future__ import annotations

import os
import sys
import types
import unittest
from unittest import mock

TREE = os.environ["TEST_COMFYUI"]
GIB = 1 << 30
sys.argv[1:] = ["--cpu"]
if TREE not in sys.path:
    sys.path.insert(0, TREE)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import execution  # noqa: E402
from comfy_execution import caching  # noqa: E402
from comfy_supervisor.wire.opaque import Handle  # noqa: E402
from comfyui_adapter import ramrelease  # noqa: E402
from comfyui_adapter.hostrole import ComfyRole, Held  # noqa: E402


class Release(unittest.TestCase):
    """Four outputs of 4 GiB each in a worker, on a machine that has 2 GiB free; the worker lets go when it is waited for."""

    def setUp(self) -> None:
        role = ComfyRole(lambda: None)
        self.worker = {number: 4 * GIB for number in range(4)}  # what lives there

        def settle(seconds: float) -> None:
            for drop in role.collect():
                for handle in drop["handles"]:
                    del self.worker[handle["id"]]

        def virtual_memory() -> types.SimpleNamespace:
            return types.SimpleNamespace(available=18 * GIB - sum(self.worker.values()))

        self.addCleanup(setattr, caching, "psutil", caching.psutil)
        self.addCleanup(setattr, caching.RAMPressureCache, "ram_release", caching.RAMPressureCache.ram_release)
        patched = mock.patch("psutil.virtual_memory", virtual_memory)
        patched.start()
        self.addCleanup(patched.stop)
        self.settle = settle
        self.cache = caching.RAMPressureCache(caching.CacheKeySetInputSignature)
        self.cache.generation = 4
        for number in self.worker:
            output = Held(Handle(number, "some.Model", "pack", 1, "w", role._drop), 4 * GIB)
            self.cache.cache[number] = execution.CacheEntry(ui={}, outputs=[[output]])
            # The prompt of the last one runs; the others are older the lower their number.
            self.cache.used_generation[number] = number + 1
            self.cache.timestamps[number] = float(number)

    def test_no_more_is_evicted_than_frees_enough(self) -> None:
        self.assertTrue(ramrelease.install(self.settle))
        for left in ([1, 2, 3], [2, 3]):
            freed = self.cache.ram_release(18 * GIB - 4 * GIB * len(left))
            self.assertEqual((list(self.cache.cache), list(self.worker)), (left, left))
            self.assertAlmostEqual(freed / GIB, 4, 5)
        self.assertEqual(self.cache.ram_release(10 * GIB), 0)

    def test_without_the_wait_all_but_the_running_prompts_go(self) -> None:
        self.cache.ram_release(6 * GIB)
        self.assertEqual((list(self.cache.cache), len(self.worker)), ([3], 4))


if __name__ == "__main__":
    unittest.main()
