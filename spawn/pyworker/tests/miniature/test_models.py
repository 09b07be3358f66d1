"""The miniature tree's models on a fake card of 24 GiB, under the manager that TEST_MANAGER names."""

from __future__ import annotations

import gc
import os
import sys
import unittest

TREE, PACK = os.environ["TEST_COMFYUI"], os.environ["TEST_PACK"]
PAGED = os.environ["TEST_MANAGER"] == "pager"
GIB = 1024  # MiB

sys.argv[1:] = []
sys.path[:0] = [TREE, os.path.join(TREE, "comfy"), os.path.join(PACK, "nodes")]

import fakehost  # noqa: E402  # the fake card's

management = fakehost.start(paged=PAGED)
import models  # noqa: E402  # the pack's


class Card(unittest.TestCase):
    def tearDown(self) -> None:
        management.unload_all_models()
        gc.collect()
        self.assertEqual(models.report()["held"], 0)
        self.assertEqual(models.report()["pinned"], 0)

    def test_a_model_is_on_the_card_once_it_is_used(self) -> None:
        model = models.patcher("a", 2 * GIB)
        report = models.compute([model], 1 * GIB, -1, "", "")
        self.assertEqual(report["held"], 3 * GIB * models.MIB)
        self.assertEqual(report["models"], {"a": 2 * GIB * models.MIB})
        self.assertEqual(model.is_dynamic(), PAGED)
        self.assertEqual(models.report()["held"], 2 * GIB * models.MIB)

    def test_a_third_model_makes_the_others_give_way(self) -> None:
        three = [models.patcher(name, 10 * GIB) for name in "abc"]
        for model in three:
            models.compute([model], 1 * GIB, -1, "", "")
        resident = [model.loaded_size() // models.MIB for model in three]
        self.assertLess(sum(resident), 24 * GIB)
        self.assertGreater(resident[2], 8 * GIB)
        self.assertLess(min(resident[:2]), 4 * GIB)

    def test_a_model_that_nobody_has_any_more_leaves_the_card(self) -> None:
        models.compute([models.patcher("a", 4 * GIB)], 0, -1, "", "")
        gc.collect()
        self.assertEqual(models.report()["held"], 0)

    def test_what_is_larger_than_the_card_is_loaded_in_part(self) -> None:
        model = models.patcher("large", 30 * GIB)
        models.compute([model], 1 * GIB, -1, "", "")
        self.assertGreater(model.loaded_size(), 20 * GIB * models.MIB)
        self.assertLess(model.loaded_size(), 24 * GIB * models.MIB)

    def test_a_part_can_be_unloaded(self) -> None:
        model = models.patcher("a", 4 * GIB)
        models.compute([model], 0, -1, "", "")
        freed = model.partially_unload(model.offload_device, 1 * GIB * models.MIB)
        self.assertGreaterEqual(freed, 1 * GIB * models.MIB)
        self.assertEqual(models.report()["held"], 4 * GIB * models.MIB - freed)
        models.compute([model], 0, -1, "", "")
        self.assertEqual(models.report()["held"], 4 * GIB * models.MIB)


if __name__ == "__main__":
    unittest.main()
