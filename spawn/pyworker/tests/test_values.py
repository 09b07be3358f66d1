"""Values survive the crossing exactly; what can not cross is refused with its place."""

from __future__ import annotations

import json
import random
import unittest
from typing import Any

from comfy_supervisor_worker.wire import decode, plain, values
from comfy_supervisor_worker.wire.errors import CannotCross
from comfy_supervisor_worker.wire.opaque import Handle
from generate import same, value
from harness import Pair


class Values(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def check(self, given: Any) -> Any:
        arrived = self.pair.cross(given)
        if not same(given, arrived):  # the texts only then: of some ints there is none
            self.fail(f"{given!r:.300} arrived as {arrived!r:.300}")
        return arrived

    def test_random_values_arrive_exactly(self) -> None:
        for seed in range(1500):
            with self.subTest(seed=seed):
                self.check(value(random.Random(seed)))

    def test_what_a_json_reader_would_change(self) -> None:
        for given in (
            10**5000,
            -(10**5000),
            "\ud83d\ude00",
            "\ud83d",
            "😀",
            -0.0,
            float("nan"),
            (),
            [],
            {},
            {1: 2, True + 1: 3},
        ):
            self.check(given)
        self.check({"m": 1})  # looks like a tag
        self.check([{"t": [1]}, {"r": 0}, {"unknown": {"b": [0, 1]}}])
        self.check({"\ud800": 1, "\ud83d\ude00": 2})

    def test_the_same_object_twice_arrives_as_one(self) -> None:
        part = [1, [2]]
        arrived = self.pair.cross({"a": part, "b": (part, part[1])})
        self.assertIs(arrived["a"], arrived["b"][0])
        self.assertIs(arrived["a"][1], arrived["b"][1])

    def test_shared_parts_do_not_multiply(self) -> None:
        given: Any = ["leaf"]
        for _ in range(60):  # written out, this is 2**60 leaves
            given = [given, given]
        message = self.pair.send(given)
        self.assertLess(len(message["body"]), 10_000)
        arrived = self.pair.receive(message)
        for _ in range(60):
            self.assertIs(arrived[0], arrived[1])
            arrived = arrived[0]
        self.assertEqual(arrived, ["leaf"])

    def test_a_hundred_thousand_small_values_cross_in_one_call(self) -> None:
        for given in (
            [{"i": i} for i in range(20_000)],
            list(range(100_000)),
            [float(i) for i in range(100_000)],
            [str(i) for i in range(100_000)],
            [(i, None) for i in range(50_000)],
        ):
            self.check(given)

    def test_long_bytes_travel_in_a_memory_file(self) -> None:
        given = {
            "a": b"x" * 3_000_000,
            "b": bytearray(b"y" * 100_000),
            "c": b"z" * 70_000,
            "d": b"short",
        }
        message = self.pair.send(given)
        self.assertLess(len(message["body"]), 1000)
        self.assertEqual(
            len(message["files"]), 2, "one of its own for the long one, one for the others"
        )
        self.assertTrue(same(given, self.pair.receive(message)))

    def test_cycles_are_refused_with_the_path(self) -> None:
        one: dict[str, Any] = {"list": [0, 1]}
        one["list"].append((2, one))
        two: list[Any] = []
        two.append(two)
        three: dict[Any, Any] = {}
        three[4] = {"k": three}
        for given, path in (
            (one, "value['list'][2][1]"),
            (two, "value[0]"),
            (three, "value[4]['k']"),
        ):
            with self.assertRaises(CannotCross) as caught:
                self.pair.send(given)
            self.assertIn(f"at {path}: ", str(caught.exception))
            self.assertIn("contains itself", str(caught.exception))

    def test_values_nested_too_deeply_are_refused_with_a_reason(self) -> None:
        given: Any = 0
        for _ in range(values.MAX_DEPTH - 1):
            given = [given]
        self.check(given)
        for _ in range(100_000):
            given = (given,)
        with self.assertRaises(CannotCross) as caught:
            self.pair.send(given)
        self.assertIn("levels deep", str(caught.exception))
        while given:  # CPython frees nested tuples recursively
            given = given[0]

    def test_an_object_without_a_form_is_refused_with_the_path(self) -> None:
        with self.assertRaises(CannotCross) as caught:
            self.pair.send({"x": [1, {"deep": object()}]})
        self.assertTrue(
            str(caught.exception).startswith("at value['x'][1]['deep']: "), str(caught.exception)
        )

    def test_a_handle_crosses_as_itself(self) -> None:
        arrived = self.pair.cross([Handle(4, "comfy.sd.VAE", "sam", 2, "ff")])[0]
        self.assertEqual(arrived.fields(), Handle(4, "comfy.sd.VAE", "sam", 2, "ff").fields())
        with self.assertRaisesRegex(AttributeError, "lives in the worker of environment 'sam'"):
            arrived.decode

    def test_the_quota_is_a_clear_error_and_takes_nothing(self) -> None:
        self.pair.left_supervisor.quota = 1 << 20
        with self.assertRaises(CannotCross) as caught:
            self.pair.send([b"x" * 600_000, b"y" * 2_000_000])
        self.assertEqual(caught.exception.kind, "quota")
        self.assertIn("do not fit", str(caught.exception))
        sizes = self.pair.left.pool.sizes()
        self.assertEqual((sizes["filling_bytes"], sizes["lent_bytes"]), (0, 0))
        self.check([b"x" * 600_000])


class PlainJson(unittest.TestCase):
    """The encoding for callers that are not Python."""

    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def result(self, given: Any) -> Any:
        encoded = plain.encode_result(given, self.pair.left)
        encoded.lend()
        return json.loads(decode.read_body(encoded.fields, encoded.body, self.pair.right))

    def test_results_are_json_that_every_reader_reads(self) -> None:
        given = (
            1,
            2.5,
            float("nan"),
            10**30,
            b"ab",
            complex(1, 2),
            {"a": None},
            {1: 2},
            "\ud800",
            {3},
            object,
        )
        self.assertEqual(
            self.result(given),
            [
                1,
                2.5,
                {"$float": "nan"},
                {"$int": hex(10**30)},
                {"$bytes": "YWI="},
                {"$complex": [1.0, 2.0]},
                {"a": None},
                {"$dict": [[1, 2]]},
                "\ud800",
                [3],
                {"$repr": "<class 'object'>", "$type": "builtins.type"},
            ],
        )

    def test_inputs_are_revived(self) -> None:
        text = (
            '{"a": {"$float": "-inf"}, "b": {"$bytes": "YWI="}, "c": [{"$int": "0xff"}],'
            ' "d": {"x": 1}, "e": {"$dict": [[1, 2]]}}'
        )
        self.assertEqual(
            plain.decode_inputs(text.encode()),
            {"a": float("-inf"), "b": b"ab", "c": [255], "d": {"x": 1}, "e": {1: 2}},
        )
        for wrong in (
            b"[1]",
            b"{",
            b'{"a": {"$bytes": "!"}}',
            b'{"a": {"$float": "x"}}',
            b"\xff",
            b'{"a":' * 100_000,
        ):
            with self.assertRaises(CannotCross):
                plain.decode_inputs(wrong)

    def test_long_results_travel_in_a_memory_file(self) -> None:
        self.assertEqual(self.result(["x" * 2_000_000]), ["x" * 2_000_000])

    def test_cycles_are_refused_with_the_path(self) -> None:
        given: dict[str, Any] = {"a": [1]}
        given["a"].append(given)
        with self.assertRaises(CannotCross) as caught:
            plain.encode_result(given, self.pair.left)
        self.assertIn("at result['a'][1]: ", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
