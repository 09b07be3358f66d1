"""Hostile bodies: whatever arrives, decoding ends soon, with a value or with CannotCross."""

from __future__ import annotations

import json
import os
import random
import struct
import unittest
from typing import Any

from comfy_supervisor_worker.wire.errors import CannotCross
from generate import mutated, value
from harness import Pair

EXECUTIONS = int(os.environ.get("COMFY_SUPERVISOR_TEST_FUZZ", "6000"))  # raise it for a long search


def body(envelope: Any, blob: bytes = b"") -> bytes:
    text = (envelope if isinstance(envelope, str) else json.dumps(envelope)).encode()
    return struct.pack("<I", len(text)) + text + blob


class Decoder(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def refused(self, given: bytes, **fields: Any) -> str:
        with self.assertRaises(CannotCross) as caught:
            self.pair.receive({"body": given, **fields})
        return str(caught.exception)

    def test_malformed_bodies_are_refused_with_a_reason(self) -> None:
        cases: dict[str, bytes] = {
            "without its length": b"",
            "claims": struct.pack("<I", 100) + b"{}",
            "can not be read": body("{not json"),
            "has no value": body({"w": 1}),
            "2 tags": body({"v": {"t": [], "m": {}}}),
            "0 tags": body({"v": {}}),
            "unknown tag 'zz'": body({"v": {"zz": 1}}),
            "an index 5": body({"v": {"r": 5}}),
            "an index -1": body({"v": [{"r": -1}]}),
            "contains itself": body({"v": {"t": [{"r": 0}]}}),
            "bytes at 0": body({"v": {"b": [0, 10]}}, b"abc"),
            "bytes at -1": body({"v": {"b": [-1, 1]}}, b"abc"),
            "bytes at True": body({"v": {"b": [True, 1]}}, b"abc"),
            "where there are 0": body({"v": {"b": {"s": 0}}}),
            "an index 0 where there are 0": body({"v": {"b": {"s": 0}}, "s": [{"f": [0, 0, 4]}]}),
            "of kind": body({"v": {"a": {"k": "other", "x": -1}}}),
        }
        for reason, given in cases.items():
            with self.subTest(reason=reason):
                self.assertIn(reason, self.refused(given))

    def test_deep_bodies_end_with_an_error(self) -> None:
        for opening in ("[", '{"t":[', '{"d":[[1,', '{"S":['):
            self.refused(body('{"v":' + opening * 50_000))
            closing = {"[": "]", '{"t":[': "]}", '{"d":[[1,': "]]}", '{"S":[': "]}"}[opening]
            self.refused(body('{"v":' + opening * 2000 + "1" + closing * 2000 + "}"))

    def test_file_references_are_checked(self) -> None:
        for file in (
            {},
            {"id": 5, "size": 1},
            {"id": "x-1", "size": "1"},
            {"id": "x-1", "size": 4, "pid": 0, "fd": -4},
            {"id": "x-1", "size": 4, "pid": "../..", "fd": 1},
            {"id": "x-1", "size": 4, "pid": os.getpid(), "fd": 9999},
            {"id": "x-1", "size": 4, "pid": os.getpid(), "fd": 0},
            {"id": "x-1", "size": 4, "path": "/no/such"},
            {"id": "x-1", "size": 4, "path": 7},
            7,
            None,
        ):
            with self.subTest(file=file):
                self.refused(body({"v": [{"b": {"s": 0}}], "s": [{"f": [0, 0, 4]}]}), files=[file])
        self.refused(body({"v": 1}), files="no list")
        self.refused(b"", files=[], body_file={"index": 0, "offset": 0, "length": 4})
        self.refused(b"", body_file="x")

    def test_a_reference_that_can_not_be_opened_is_reported_as_released(self) -> None:
        self.refused(
            body({"v": 1}), files=[{"id": "gone-1", "size": 4, "pid": os.getpid(), "fd": 9999}]
        )
        supervisor = self.pair.right_supervisor
        supervisor.wait(lambda: supervisor.released().get("gone-1") == 1)

    def test_mutated_bodies_raise_nothing_else(self) -> None:
        draw = random.Random(7)
        seeds = []
        for seed in range(300):
            message = self.pair.send(
                [value(random.Random(seed)), b"x" * 70_000, {"k": bytearray(b"y" * 10)}]
            )
            seeds.append(message)
        outcomes = {"value": 0, "refused": 0}
        for _ in range(EXECUTIONS):
            message = dict(draw.choice(seeds))
            message["body"] = mutated(draw, message["body"])
            try:
                self.pair.receive(message)
                outcomes["value"] += 1
            except CannotCross:
                outcomes["refused"] += 1
        self.assertGreater(outcomes["value"], 0)
        self.assertGreater(outcomes["refused"], 0)

    def test_generated_trees_raise_nothing_else(self) -> None:
        draw = random.Random(11)
        tags = "mtdSFbBiuclgeanrohk"

        def tree(depth: int) -> Any:
            kind = draw.randrange(6) if depth else 0
            if kind == 0:
                return draw.choice(
                    (None, 0, -1, 1 << 70, 1.5, "x", "ff", "torch", "<f4", True, [], {})
                )
            if kind == 1:
                return [tree(depth - 1) for _ in range(draw.randrange(4))]
            if kind == 2:
                return {
                    draw.choice(("k", "d", "s", "t", "x", "o", "p", "e", "b", "id", "a")): tree(
                        depth - 1
                    )
                    for _ in range(draw.randrange(8))
                }
            return {draw.choice(tags): tree(depth - 1)}

        for _ in range(EXECUTIONS):
            storages = [
                {draw.choice("if"): [draw.randrange(-1, 9), draw.randrange(9), draw.randrange(9)]}
                for _ in range(3)
            ]
            try:
                self.pair.receive({"body": body({"v": tree(5), "s": storages}, b"0123456789")})
            except CannotCross:
                pass


if __name__ == "__main__":
    unittest.main()
