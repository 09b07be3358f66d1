"""Tests that hold for numpy arrays and torch tensors alike; a subclass says how to make and compare
one.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import comfy_supervisor
from comfy_supervisor import Opaque
from support import LIMIT, PACKS, BrokerCase


class Sharing:
    """Mixed into a BrokerCase."""

    session: Any
    broker: Any

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()  # type: ignore[misc]
        nodes = os.path.join(PACKS, "arrays", "nodes")
        for name in ("one", "two"):
            cls.broker.environments[name] = (sys.executable, nodes, "", {})

    def make(self, count: int) -> Any:
        raise NotImplementedError

    def copy(self, array: Any) -> Any:
        raise NotImplementedError

    def same(self, one: Any, two: Any) -> bool:
        raise NotImplementedError

    def made(self) -> int:
        """How many memory files this process has filled."""
        return self.session.memory.pool._next

    def test_arrays_of_every_size_cross_and_come_back(self) -> None:
        for count in (0, 1, 1000, 20_000, 300_000, 5_000_000):
            given = self.make(count)
            self.assertTrue(self.same(self.session.call("one", "Echo", value=given)[0], given))
            self.assertTrue(
                self.same(self.session.call("one", "AddOne", value=given)[0], given + 1)
            )

    def test_writes_in_place_are_the_writers_alone(self) -> None:
        given = self.make(1_000_000)
        before = self.copy(given)
        result = self.session.call("one", "AddInPlace", value=given)[0]
        self.assertTrue(self.same(given, before))
        self.assertTrue(self.same(result, before + 1))
        result += 5
        self.assertAlmostEqual(
            self.session.call("one", "SumOfKept")[0] / float((before + 1).sum()), 1, 4
        )
        changed = self.copy(result)
        again = self.session.call("two", "AddInPlace", value=result)[0]
        self.assertTrue(self.same(result, changed))
        self.assertTrue(self.same(again, changed + 1))
        self.session.call("two", "SumOfKept")

    def test_an_array_that_came_from_a_worker_goes_into_another_without_a_copy(self) -> None:
        given = self.make(1_000_000)
        there = self.session.call("one", "AddOne", value=given)[0]
        made = self.made()
        for _ in range(3):
            self.assertTrue(
                self.same(self.session.call("two", "Echo", value=[there, there])[0][1], given + 1)
            )
        self.assertEqual(self.made(), made, "nothing was copied")
        there[7] = 99
        self.assertEqual(self.session.call("two", "Echo", value=there)[0][7], 99)
        self.assertEqual(self.made(), made + 1, "a write was noticed")

    def test_results_outlive_the_worker_that_made_them(self) -> None:
        given = self.make(1_000_000)
        result = self.session.call("one", "AddOne", value=given)[0]
        self.broker.workers["one"].kill()
        self.assertTrue(self.same(result, given + 1))
        self.assertTrue(
            self.same(self.session.call("two", "AddOne", value=result)[0], given + 2),
            "and can be sent on",
        )
        self.assertTrue(self.same(self.session.call("one", "AddOne", value=result)[0], given + 2))

    def test_arrays_inside_opaque_objects_travel_in_memory_files(self) -> None:
        given = self.make(1_000_000)
        holder = self.session.call("one", "MakesHolder", value=given)[0]
        self.assertIs(type(holder), Opaque)
        self.assertLess(len(holder.data), 2000)
        made = self.made()
        whole, shared, array = self.session.call("one", "ReadsHolder", value=holder)
        self.assertEqual((whole, shared), (True, True))
        self.assertTrue(self.same(array, given))
        self.assertEqual(self.made(), made)

    def test_nothing_stays_when_nobody_refers_to_anything(self) -> None:
        for _ in range(3):
            given = self.make(1_000_000)
            result = self.session.call("one", "AddOne", value=given)
            self.session.call("two", "Echo", value=result)
        del given, result
        files = self.broker.files
        for _ in range(int(LIMIT / 0.05)):
            self.session.call("one", "SumOfKept")
            self.session.call("two", "SumOfKept")
            if not files.open:
                break
            threading.Event().wait(0.05)
        self.assertEqual(list(files.open), [])
        self.assertEqual(self.session.memory.pool.sizes()["lent_bytes"], 0)
        for name in ("one", "two"):
            census = self.broker.workers[name].channel.request("census", {})[0]["result"][
                "memory_files"
            ]
            self.assertEqual((census["lent_bytes"], census["mapped_bytes"]), (0, 0))

    def test_the_pool_is_used_again(self) -> None:
        given = self.make(2_000_000)
        for _ in range(3):
            self.session.call("one", "AddOne", value=given)
        reserved = dict(self.broker.files.reserved)
        for _ in range(20):
            self.session.call("one", "AddOne", value=given)
        self.assertLessEqual(
            sum(self.broker.files.reserved.values()), sum(reserved.values()) + (16 << 20)
        )

    def test_a_quota_that_is_used_up_is_an_error_and_nothing_is_lost(self) -> None:
        given = self.make(1_000_000)
        kept = [self.session.call("one", "AddOne", value=given)[0] for _ in range(2)]
        self.broker.files.quota = sum(self.broker.files.reserved.values())
        try:
            with self.assertRaises(comfy_supervisor.QuotaExceeded):
                for _ in range(50):
                    kept.append(self.session.call("one", "AddOne", value=given)[0])
        finally:
            self.broker.files.quota = 4 << 30
        for each in kept:
            self.assertTrue(self.same(each, given + 1))
        self.assertTrue(self.same(self.session.call("one", "AddOne", value=given)[0], given + 1))


__all__ = ["BrokerCase", "Sharing"]
