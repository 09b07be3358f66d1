"""numpy arrays cross exactly, share what they shared, and are sent by reference only while
untouched.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import unittest
import warnings
from typing import Any

import numpy as np
from comfy_supervisor_worker.role import WorkerRole
from comfy_supervisor_worker.wire import decode, plain, values
from comfy_supervisor_worker.wire.errors import CannotCross
from comfy_supervisor_worker.wire.opaque import Opaque
from generate import mutated
from harness import Pair, WorkerProcess

PLAIN_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble"
    " complex64 complex128 clongdouble >f4 >i8 <u2 >c16 S5 S0 U3 >U7 U0 V6 M8[ns] M8[D]"
    " >M8[us] m8[s] m8 M8"
).split()


def exact(left: Any, right: Any) -> bool:
    """The same dtype, shape, strides and bytes."""
    return (
        type(left) is type(right)
        and left.dtype == right.dtype
        and left.dtype.str == right.dtype.str
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
        and left.flags.writeable == right.flags.writeable
    )


def filled(shape: Any, dtype: Any, seed: int = 0) -> Any:
    """An array of random bytes."""
    dtype = np.dtype(dtype)
    array = np.zeros(shape, dtype)
    if dtype.itemsize and array.size:
        raw = np.random.default_rng(seed).integers(
            0, 2 if dtype.kind == "b" else 100, array.nbytes, dtype=np.uint8
        )
        if dtype.kind == "U":
            raw = (
                np.random.default_rng(seed)
                .integers(1, 100, array.nbytes // 4)
                .astype(dtype.byteorder + "u4")
            )
            array = raw.view(dtype).reshape(shape)
        else:
            array = raw.view(dtype).reshape(shape)
    return array


class Arrays(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def check(self, array: Any) -> Any:
        arrived = self.pair.cross(array)
        self.assertTrue(exact(array, arrived), f"{array.dtype} {array.shape} {array.strides}")
        return arrived

    def test_every_plain_dtype_in_every_size_class(self) -> None:
        for dtype in PLAIN_DTYPES:
            for shape in ((), (0,), (1,), (3, 5), (7, 0, 2), (300_000,)):
                with self.subTest(dtype=dtype, shape=shape):
                    self.check(filled(shape, dtype))

    def test_views_of_every_kind(self) -> None:
        for scale in (1, 100):  # inline, and in a memory file
            base = filled((6 * scale, 8, 10), "f4", scale)
            for view in (
                base.T,
                np.asfortranarray(base),
                base[::2],
                base[::-1],
                base[:, ::-3, 1::2],
                base[2:3],
                base[0],
                base[..., 4],
                base.transpose(1, 0, 2),
                np.broadcast_to(base[0], (5, 8, 10)),
                base[::-1, ::-1, ::-1].T,
                np.lib.stride_tricks.as_strided(base, (4, 4), (40, 4)),
                base[1:1],
                base.view("u1")[:, :, 3::7],
                np.lib.stride_tricks.sliding_window_view(base[0, 0], 3),
                base.reshape(-1)[1:].view("f4"),
                base.real[()],
            ):
                with self.subTest(shape=view.shape, strides=view.strides):
                    self.check(view)

    def test_unaligned_and_read_only_arrays(self) -> None:
        raw = filled((100_001,), "u1")
        self.check(raw[1:].view("f4"))
        locked = filled((10,), "f4")
        locked.flags.writeable = False
        self.assertFalse(self.check(locked).flags.writeable)
        with self.assertRaises(ValueError):
            self.check(locked)[0] = 1

    def test_random_views(self) -> None:
        draw = random.Random(5)
        for seed in range(300):
            shape = [draw.randrange(1, 9) for _ in range(draw.randrange(1, 5))]
            array = filled(shape, draw.choice(("u1", "f4", ">i2", "c16")), seed)
            if draw.random() < 0.3:
                array = np.asfortranarray(array)
            array = array.transpose(draw.sample(range(len(shape)), len(shape)))
            for axis in range(array.ndim):
                index: list[Any] = [slice(None)] * array.ndim
                index[axis] = slice(
                    draw.choice((None, 0, 1)), None, draw.choice((1, 1, 2, -1, -2, 3))
                )
                array = array[tuple(index)]
            self.check(array)

    def test_scalars_keep_their_type(self) -> None:
        for value in (
            np.float32(1.5),
            np.float64("nan"),
            np.int8(-3),
            np.bool_(True),
            np.complex64(1j),
            np.str_("é"),
            np.bytes_(b"ab"),
            np.datetime64("2020-01-01"),
            np.timedelta64(3, "s"),
            np.longdouble(1) / 3,
            np.str_(""),
        ):
            arrived = self.pair.cross([value])[0]
            self.assertIs(type(arrived), type(value))
            self.assertTrue(arrived == value or (value != value and arrived != arrived))

    def test_object_and_structured_dtypes_are_refused_with_the_path(self) -> None:
        for array, word in (
            (np.array([object()]), "object"),
            (np.zeros(2, "f4,i4"), "structured"),
            (np.zeros(2, [("a", "O")]), "structured"),
        ):
            with self.assertRaises(CannotCross) as caught:
                self.pair.send({"images": [1, array]})
            self.assertIn("at value['images'][1]: ", str(caught.exception))
            self.assertIn(word, str(caught.exception))

    def test_subclasses_stay_themselves_in_their_environment_and_are_opaque_elsewhere(self) -> None:
        role, elsewhere = WorkerRole(), WorkerRole()
        role.environment, elsewhere.environment = "here", "elsewhere"
        for value in (
            np.ma.masked_array([1, 2, 3], [0, 1, 0]),
            np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        ):
            encoded = values.encode({"x": [value]}, self.pair.left, role, "result")
            encoded.lend()
            message = {**encoded.fields}
            same = decode.decode(message, encoded.body, self.pair.right, role, "result")["x"][0]
            other = decode.decode(message, encoded.body, self.pair.right, elsewhere, "result")["x"][0]
            self.assertIs(type(same), type(value))
            self.assertEqual(same.tolist(), value.tolist())
            self.assertIs(type(other), Opaque)

    def test_an_array_that_is_mapped_from_a_file_crosses_as_an_array(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "array.npy")
            np.save(path, filled((300_000,), "f4"))
            arrived = self.pair.cross(np.load(path, mmap_mode="r"))
            self.assertIs(type(arrived), np.ndarray)
            self.assertEqual(arrived.tobytes(), filled((300_000,), "f4").tobytes())

    def test_what_was_shared_stays_shared_and_nothing_else(self) -> None:
        for count in (100, 1_000_000):
            base = filled((count,), "f4")
            views = {
                "base": base,
                "again": base,
                "half": base[: count // 2],
                "bytes": base.view("u1"),
                "back": base[::-1],
                "even": base[::2],
                "odd": base[1::2],
                "other": base.copy(),
            }
            arrived = self.pair.cross(views)
            self.assertIs(arrived["base"], arrived["again"])
            arrived["base"][0] = -7.0
            self.assertEqual(arrived["half"][0], -7.0)
            self.assertEqual(arrived["back"][-1], -7.0)
            self.assertEqual(arrived["even"][0], -7.0)
            self.assertEqual(arrived["bytes"][:4].view("f4")[0], -7.0)
            self.assertNotEqual(arrived["other"][0], -7.0)
            arrived["odd"][0] = -8.0
            self.assertEqual(arrived["base"][1], -8.0)
            self.assertNotEqual(base[0], -7.0)

    def test_a_small_part_of_a_large_array_sends_only_itself(self) -> None:
        base = filled((4000, 4000), "f4")
        for view in (base[:10, :10], base[::100, ::100], base[5], base[:, 3]):
            arrived = self.check(view)
            del arrived
            sent = sum(file.size for file in self.pair.last.layout.taken)
            self.assertLess(sent, 1 << 20, view.strides)

    def test_arrays_arrive_writable_and_alone(self) -> None:
        for count in (10, 1_000_000):
            array = filled((count,), "f4")
            arrived = self.pair.cross(array)
            arrived += 1
            self.assertTrue(np.array_equal(arrived, array + 1))
            self.assertFalse(np.array_equal(arrived, array))

    def test_an_unchanged_array_goes_on_by_reference(self) -> None:
        array = filled((1_000_000,), "f4")
        here = self.pair.cross(array)
        there = self.pair.back({"a": here, "b": here[100:], "c": here[::2]})
        self.assertEqual(self.pair.last.layout.taken, [], "nothing was copied")
        self.assertTrue(
            np.array_equal(there["a"], array) and np.array_equal(there["c"], array[::2])
        )
        there["a"][100] = 5
        self.assertEqual(there["b"][0], 5)
        self.assertEqual(here[100], array[100])

    def test_a_changed_array_is_copied_and_everybody_sees_what_they_should(self) -> None:
        array = filled((1_000_000,), "f4")
        here = self.pair.cross(array)
        here[500_000] = -1
        there = self.pair.back(here)
        self.assertEqual(len(self.pair.last.layout.taken), 1)
        self.assertEqual(there[500_000], -1)
        self.assertNotEqual(array[500_000], -1)
        untouched = self.pair.back(here[:100_000])
        self.assertEqual(self.pair.last.layout.taken, [], "this part was not written to")
        self.assertTrue(np.array_equal(untouched, array[:100_000]))

    def test_the_sender_may_change_its_array_after_sending(self) -> None:
        array = filled((1_000_000,), "f4")
        message = self.pair.send(array)
        before = array.copy()
        array[:] = 0
        self.assertTrue(np.array_equal(self.pair.receive(message), before))

    def test_a_receiver_that_writes_changes_neither_the_file_nor_a_later_receiver(self) -> None:
        array = filled((1_000_000,), "f4")
        message = self.pair.send(array)
        first = self.pair.receive(message)
        first[:] = 0
        second = self.pair.receive(message)
        self.assertTrue(np.array_equal(second, array))

    def test_random_writes_are_always_seen(self) -> None:
        draw = random.Random(9)
        mine = filled((200_000,), "f4")
        kept: list[tuple[Any, Any]] = []
        for _ in range(60):
            action = draw.randrange(4)
            if action == 0:
                at = draw.randrange(mine.size)
                mine[at : at + draw.choice((1, 10, 5000))] = draw.random()
            elif action == 1:
                expected = mine.copy()
                arrived = self.pair.cross(mine)
                self.assertTrue(np.array_equal(arrived, expected))
                kept.append((arrived, expected))
                mine = self.pair.back(arrived)
                self.assertTrue(np.array_equal(mine, expected))
            elif action == 2 and kept:
                array, expected = draw.choice(kept)
                at = draw.randrange(array.size)
                array[at] = expected[at] = draw.random()
            else:
                low = draw.randrange(mine.size - 30_000)
                part = self.pair.back(
                    self.pair.cross(mine[low : low + 30_000 : draw.choice((1, 3))])
                )
                self.assertEqual(part[0], mine[low])
            for array, expected in kept:
                self.assertTrue(np.array_equal(array, expected))

    def test_everything_is_released(self) -> None:
        message = self.pair.send(
            [filled((1_000_000,), "f4"), filled((100_000,), "f4"), filled((90_000,), "f4")]
        )
        self.assertEqual(len(message["files"]), 2)
        arrived = self.pair.receive(message)
        view = arrived[0][5:6]
        del arrived
        gc.collect()
        large, small = (
            (file["id"] for file in message["files"])
            if message["files"][0]["size"] > 2_000_000
            else reversed([file["id"] for file in message["files"]])
        )
        supervisor = self.pair.right_supervisor
        supervisor.wait(lambda: supervisor.released() == {small: 1})
        self.assertEqual([hold["id"] for hold in self.pair.right.mappings.holds()], [large])
        del view
        supervisor.wait(lambda: supervisor.released() == {large: 1, small: 1})

    def test_small_arrays_of_one_message_share_one_file(self) -> None:
        message = self.pair.send([filled((50_000,), "f4", seed) for seed in range(20)])
        self.assertEqual(len(message["files"]), 1)
        for seed, arrived in enumerate(self.pair.receive(message)):
            self.assertTrue(exact(arrived, filled((50_000,), "f4", seed)))
            self.assertEqual(arrived.__array_interface__["data"][0] % 64, 0)

    def test_very_many_large_arrays_cross(self) -> None:
        parts = [filled((262_144,), "f4", seed) for seed in range(3)] * 400
        arrived = self.pair.cross([part + 0 for part in parts[:600]])
        self.assertTrue(all(np.array_equal(one, two) for one, two in zip(arrived, parts)))

    def test_descriptions_that_do_not_fit_are_refused(self) -> None:
        import json
        import struct

        good = {"k": "numpy", "d": "<f4", "s": [4], "t": [4], "x": 0, "o": 0}
        for change in (
            {"s": [5]},
            {"s": [-1]},
            {"t": [8]},
            {"t": [-4]},
            {"o": 4},
            {"o": -4},
            {"d": "O"},
            {"d": "f8"},
            {"d": "nonsense"},
            {"d": "O,f4"},
            {"s": [4, 4]},
            {"s": "4"},
            {"t": [1 << 62]},
            {"s": [1 << 62], "t": [0], "d": "<f8,<f8"},
            {"x": 3},
            {"x": -2},
            {"d": "f4,O"},
            {"s": [True]},
            {"d": ["f4"]},
            {"d": None},
            {"d": {"names": ["a"], "formats": ["O"]}},
        ):
            text = json.dumps({"v": {"a": {**good, **change}}, "s": [{"i": [0, 16]}]}).encode()
            with self.subTest(change=change), self.assertRaises(CannotCross):
                self.pair.receive({"body": struct.pack("<I", len(text)) + text + bytes(16)})

    def test_mutated_descriptions_raise_nothing_else(self) -> None:
        draw = random.Random(19)
        dtypes = ("f4", "S5", "U3", "M8[s]", ">c16", "?")
        seeds = [
            self.pair.send([filled((3, 4), dtype).T, {"a": filled((20_000,), dtype)[::-2]}])
            for dtype in dtypes
        ]
        refused = 0
        for _ in range(int(os.environ.get("COMFY_SUPERVISOR_TEST_FUZZ", "4000"))):
            message = dict(draw.choice(seeds))
            message["body"] = mutated(
                draw, message["body"][:2000] if draw.random() < 0.5 else message["body"]
            )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of dtype names that numpy does not like
                    self.pair.receive(message)
            except CannotCross:
                refused += 1
        self.assertGreater(refused, 0)

    def test_arrays_as_json(self) -> None:
        import base64
        import json

        small, large = filled((2, 3), ">f4").T, filled((400, 300), "u2")[::2]
        encoded = plain.encode_result(
            (small, large, np.float32(1.5), np.datetime64("2020")), self.pair.left
        )
        encoded.lend()
        first, second, number, date = json.loads(encoded.body)
        self.assertEqual((first["$array"]["dtype"], first["$array"]["shape"]), (">f4", [3, 2]))
        self.assertEqual(base64.b64decode(first["$array"]["base64"]), small.tobytes())
        place = second["$array"]
        mapping = self.pair.right.mappings.receive(encoded.fields["files"])[place["file"]].mapping
        self.assertEqual(
            mapping[place["offset"] : place["offset"] + place["length"]], large.tobytes()
        )
        self.assertEqual((number, date["$array"]["dtype"]), (1.5, "<M8[Y]"))
        again = plain.decode_inputs(json.dumps({"a": first}).encode())["a"]
        self.assertTrue(np.array_equal(again, small))


class InAWorker(unittest.TestCase):
    def test_arrays_come_back_from_a_real_worker(self) -> None:
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        worker.load()
        for array in (
            filled((10,), "f4"),
            filled((1000, 1000), "f8").T,
            filled((3000, 1000), "u1")[::-3],
        ):
            arrived = worker.call("Echo", {"value": {"a": array, "b": array[1:]}})[0]
            self.assertTrue(exact(arrived["a"], array))
            arrived["a"][1] = 9
            self.assertTrue((arrived["b"][0] == 9).all())

    def test_a_worker_imports_numpy_only_when_an_array_arrives(self) -> None:
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        worker.load()

        def mapped() -> bool:
            with open(f"/proc/{worker.process.pid}/maps") as file:
                return "_multiarray_umath" in file.read()

        worker.call("Echo", {"value": [1, "x"]})
        self.assertFalse(mapped())
        worker.call("Echo", {"value": np.zeros(3)})
        self.assertTrue(mapped())


if __name__ == "__main__":
    unittest.main()
