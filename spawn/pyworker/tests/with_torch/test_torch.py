"""torch tensors cross exactly, share what they shared, and are sent by reference only while
untouched.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import unittest
import unittest.mock
import warnings
from typing import Any

import numpy as np
import torch
from comfy_supervisor_worker.role import WorkerRole
from comfy_supervisor_worker.wire import decode, plain, values
from comfy_supervisor_worker.wire.errors import CannotCross
from comfy_supervisor_worker.wire.opaque import Opaque
from generate import mutated
from harness import Pair, WorkerProcess

DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    - {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4},
    key=str,
)


class Marked(torch.Tensor):
    """A subclass, as packs have them."""


def filled(shape: Any, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A tensor of random bytes."""
    item = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for size in shape:
        count *= size
    raw = torch.from_numpy(
        np.random.default_rng(seed).integers(
            0, 2 if dtype is torch.bool else 100, count * item, dtype=np.uint8
        )
    )
    return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def raw(tensor: torch.Tensor) -> bytes:
    """The elements' bytes in C order."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dim() == 0:
        plain = plain.unsqueeze(0)
    item = plain.element_size()
    stand_in = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(item)
    if stand_in is None:
        return (
            plain.contiguous()
            .view(torch.float64 if plain.dtype is torch.complex128 else plain.dtype)
            .numpy()
            .tobytes()
        )
    # A copy through an integer of the same size: some dtypes can not be copied themselves.
    return plain.view(stand_in).contiguous().numpy().tobytes()


def exact(left: Any, right: Any) -> bool:
    """The same type, dtype, shape, bytes and need of gradients."""
    return (
        type(left) is type(right)
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.requires_grad == right.requires_grad
        and raw(left) == raw(right)
    )


class Tensors(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "ComplexHalf|Sparse CSR|.*quantiz|.*nested tensors", UserWarning)

    def check(self, tensor: Any) -> Any:
        arrived = self.pair.cross(tensor)
        self.assertTrue(exact(tensor, arrived), f"{tensor.dtype} {tensor.shape} {tensor.stride()}")
        return arrived

    def test_every_dtype_in_every_size_class(self) -> None:
        self.assertIn(torch.bfloat16, DTYPES)
        self.assertIn(torch.float8_e4m3fn, DTYPES)
        for dtype in DTYPES:
            for shape in ((), (0,), (1,), (3, 5), (7, 0, 2), (100_000,), (1_200_000,)):
                with self.subTest(dtype=dtype, shape=shape):
                    self.check(filled(shape, dtype))

    def test_views_of_every_kind(self) -> None:
        for scale in (1, 100):
            base = filled((6 * scale, 8, 10), torch.float32, scale)
            for view in (
                base.t() if base.dim() == 2 else base.transpose(0, 2),
                base[::2],
                base[:, ::3, 1::2],
                base[2:3],
                base[0],
                base[..., 4],
                base.permute(1, 0, 2),
                base[0].expand(5, 8, 10),
                base[1:1],
                base.view(torch.uint8)[:, :, 3::7],
                base.unfold(0, 3, 1),
                base.as_strided((4, 4), (10, 1), 5),
                base.to(memory_format=torch.contiguous_format).mT,
                base.select(1, 3),
                base.diagonal(dim1=1, dim2=2),
                base[0, 0, 0],
            ):
                with self.subTest(shape=view.shape, strides=view.stride()):
                    arrived = self.check(view)
                    self.assertEqual(
                        arrived.stride(),
                        (
                            view.stride()
                            if arrived.stride() == view.stride()
                            else arrived.contiguous().stride()
                        ),
                    )

    def test_an_image_in_channels_last_keeps_its_strides(self) -> None:
        image = filled((2, 3, 64, 64), torch.float32).to(memory_format=torch.channels_last)
        self.assertEqual(self.check(image).stride(), image.stride())

    def test_gradients_parameters_and_flags(self) -> None:
        leaf = filled((4,), torch.float32).requires_grad_()
        self.assertTrue(self.check(leaf).is_leaf)
        arrived = self.pair.cross(leaf * 2)
        self.assertTrue(
            arrived.requires_grad
            and arrived.is_leaf
            and torch.equal(arrived.detach(), leaf.detach() * 2)
        )
        parameter = torch.nn.Parameter(filled((4,), torch.float32))
        self.assertIs(type(self.check(parameter)), torch.nn.Parameter)
        self.check(torch.nn.Parameter(filled((4,), torch.int64), requires_grad=False))
        numbers = torch.tensor([1 + 2j, 3 - 4j])
        self.assertTrue(torch.equal(self.pair.cross(numbers.conj()), numbers.conj()))
        self.assertTrue(torch.equal(self.pair.cross(numbers.conj().imag), numbers.conj().imag))

    def test_tensors_arrive_usable_for_training_whatever_the_mode(self) -> None:
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                sent = filled((1000,), torch.float32) + 0
                arrived = self.pair.cross(sent)
                self.assertEqual(torch.is_inference_mode_enabled(), mode is torch.inference_mode)
            self.assertFalse(arrived.is_inference())
            arrived.requires_grad_()
            (arrived * arrived).sum().backward()
            self.assertTrue(torch.equal(arrived.grad, 2 * arrived.detach()))

    def test_layouts_without_plain_memory_are_refused_with_the_path(self) -> None:
        for tensor, word in (
            (torch.eye(3).to_sparse(), "sparse_coo"),
            (torch.eye(3).to_sparse_csr(), "sparse_csr"),
            (torch.empty(3, device="meta"), "meta"),
            (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantised"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        ):
            with self.assertRaises(CannotCross) as caught:
                self.pair.send({"samples": (tensor,)})
            self.assertIn("at value['samples'][0]: ", str(caught.exception))
            self.assertIn(word, str(caught.exception))

    def test_subclasses_stay_themselves_in_their_environment_and_are_opaque_elsewhere(self) -> None:
        role, elsewhere = WorkerRole(), WorkerRole()
        role.environment, elsewhere.environment = "here", "elsewhere"
        for value in (torch.ones(3).as_subclass(Marked), torch.nn.UninitializedParameter()):
            encoded = values.encode({"x": [value]}, self.pair.left, role, "result")
            encoded.lend()
            message = {**encoded.fields}
            same = decode.decode(message, encoded.body, self.pair.right, role, "result")["x"][0]
            other = decode.decode(message, encoded.body, self.pair.right, elsewhere, "result")["x"][0]
            self.assertIs(type(same), type(value))
            self.assertIs(type(other), Opaque)

    def test_a_view_without_strides_sends_one_element(self) -> None:
        message = self.pair.send(torch.ones(1).expand(40_000, 50_000))
        self.assertLess(len(message["body"]), 1000)
        arrived = self.pair.receive(message)
        self.assertEqual((arrived.shape, arrived.stride()), ((40_000, 50_000), (0, 0)))

    def test_four_gibibytes_cross(self) -> None:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) >> 20 for line in file if "MemAvailable" in line)
        if free < 12:
            self.skipTest(f"this takes 9 GiB of memory, and {free} are available")
        tensor = torch.empty((1 << 32) + 3, dtype=torch.uint8)
        marks = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 2)
        for number, place in enumerate(marks):
            tensor[place] = number + 1
        arrived = self.pair.cross(tensor)
        self.assertEqual(arrived.numel(), tensor.numel())
        self.assertEqual([int(arrived[place]) for place in marks], list(range(1, 8)))

    def test_what_was_shared_stays_shared_and_nothing_else(self) -> None:
        for count in (100, 1_000_000):
            base = filled((count,), torch.float32)
            given = {
                "base": base,
                "again": base,
                "half": base[count // 2 :],
                "bytes": base.view(torch.uint8),
                "even": base[::2],
                "numpy": base.numpy(),
                "other": base.clone(),
            }
            arrived = self.pair.cross(given)
            self.assertIs(arrived["base"], arrived["again"])
            arrived["base"][count // 2] = -7.0
            self.assertEqual(arrived["half"][0], -7.0)
            self.assertEqual(arrived["even"][count // 4], -7.0)
            self.assertEqual(arrived["numpy"][count // 2], -7.0)
            arrived["numpy"][0] = -8.0
            self.assertEqual(arrived["base"][0], -8.0)
            self.assertEqual(arrived["bytes"][:4].view(torch.float32)[0], -8.0)
            self.assertNotEqual(arrived["other"][0], -8.0)
            self.assertNotEqual(base[0], -8.0)

    def test_a_small_part_of_a_large_tensor_sends_only_itself(self) -> None:
        base = filled((4000, 4000), torch.float32)
        for view in (base[:10, :10], base[::100, ::100], base[5], base[:, 3], base[7, 7]):
            self.check(view)
            sent = sum(file.size for file in self.pair.last.layout.taken)
            self.assertLess(sent, 1 << 20, view.stride())

    def test_an_unchanged_tensor_goes_on_by_reference(self) -> None:
        tensor = filled((1_000_000,), torch.float32)
        here = self.pair.cross(tensor)
        there = self.pair.back([here, here[100:], here.view(1000, 1000).t()])
        self.assertEqual(self.pair.last.layout.taken, [], "nothing was copied")
        self.assertTrue(
            torch.equal(there[0], tensor) and torch.equal(there[2], tensor.view(1000, 1000).t())
        )
        there[0][100] = 5
        self.assertEqual((there[1][0], here[100]), (5, tensor[100]))

    def test_writes_are_seen_whoever_makes_them(self) -> None:
        tensor = filled((1_000_000,), torch.float32)
        for write in (
            lambda t: t.add_(1),
            lambda t: t.numpy().__setitem__(3, 4.0),
            lambda t: t[999_999].fill_(2),
            lambda t: t.zero_(),
            lambda t: t.detach().mul_(2),
            lambda t: t.view(torch.uint8)[17].fill_(3),
            lambda t: t.untyped_storage().__setitem__(40_000, 9),
            lambda t: torch.add(t, 1, out=t),
            lambda t: t.data.__setitem__(5, 6.0),
        ):
            for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
                here = self.pair.cross(tensor)
                with mode():
                    write(here)
                    there = self.pair.back(here)
                self.assertTrue(torch.equal(there, here))
                self.assertFalse(torch.equal(there, tensor))
                self.assertEqual(len(self.pair.last.layout.taken), 1)

    def test_without_numpy_torch_copies_alone(self) -> None:
        base = filled((1_000_000,), torch.float32)
        with unittest.mock.patch.dict(sys.modules, {"numpy": None}):
            for tensor in (
                base,
                base[::2],
                base[5:],
                base.view(1000, 1000).t(),
                base[::5000],
                base[:10],
                base[3],
            ):
                self.check(tensor)
            arrived = self.pair.cross([base, base[1::2], base.view(torch.uint8)[1:]])
        arrived[1].fill_(3)
        self.assertEqual(arrived[0][1], 3)

    def test_the_sender_may_change_its_tensor_after_sending(self) -> None:
        tensor = filled((1_000_000,), torch.float32)
        before = tensor.clone()
        message = self.pair.send(tensor)
        tensor.zero_()
        first = self.pair.receive(message)
        self.assertTrue(torch.equal(first, before))
        first.zero_()
        self.assertTrue(torch.equal(self.pair.receive(message), before))

    def test_random_writes_and_crossings(self) -> None:
        draw = random.Random(13)
        mine = filled((300_000,), torch.float32)
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _ in range(80):
            action = draw.randrange(5)
            if action == 0:
                at = draw.randrange(mine.numel())
                mine[at : at + draw.choice((1, 10, 5000))] = draw.random()
            elif action == 1:
                mine.numpy()[draw.randrange(mine.numel())] = draw.random()
            elif action == 2:
                arrived, expected = self.pair.cross(mine), mine.clone()
                self.assertTrue(torch.equal(arrived, expected))
                kept.append((arrived, expected))
                mine = self.pair.back(arrived)
            elif action == 3 and kept:
                tensor, expected = draw.choice(kept)
                at, value = draw.randrange(tensor.numel()), draw.random()
                tensor.numpy()[at] = value
                expected[at] = value
            else:
                low = draw.randrange(mine.numel() - 50_000)
                part = mine[low : low + 50_000 : draw.choice((1, 3))]
                self.assertTrue(torch.equal(self.pair.back(self.pair.cross(part)), part))
            for tensor, expected in kept:
                self.assertTrue(torch.equal(tensor, expected))

    def test_everything_is_released_with_the_last_view(self) -> None:
        message = self.pair.send(filled((1_000_000,), torch.float32))
        view = self.pair.receive(message)[5:6].detach()
        gc.collect()
        self.assertEqual(len(self.pair.right.mappings.holds()), 1)
        array = view.numpy()
        del view
        gc.collect()
        self.assertEqual(len(self.pair.right.mappings.holds()), 1)
        del array
        gc.collect()
        supervisor = self.pair.right_supervisor
        supervisor.wait(lambda: supervisor.released() == {message["files"][0]["id"]: 1})

    def test_a_dtype_that_is_unknown_here_is_named(self) -> None:
        import json
        import struct

        good = {"k": "torch", "d": "float32", "s": [4], "t": [4], "x": 0, "o": 0}
        for change in (
            {"d": "float3"},
            {"d": "nn"},
            {"s": [5]},
            {"t": [2]},
            {"o": 2},
            {"s": [-1]},
            {"s": [1 << 62], "t": [0], "o": 14},
            {"t": [-4]},
            {"d": None},
            {"g": 1, "d": "int8", "t": [1]},
        ):
            text = json.dumps({"v": {"a": {**good, **change}}, "s": [{"i": [0, 16]}]}).encode()
            with self.subTest(change=change), self.assertRaises(CannotCross):
                self.pair.receive({"body": struct.pack("<I", len(text)) + text + bytes(16)})

    def test_mutated_descriptions_raise_nothing_else(self) -> None:
        warnings.simplefilter("ignore")
        draw = random.Random(23)
        seeds = [
            self.pair.send([filled((3, 4), dtype).t(), {"a": filled((20_000,), dtype)[::2]}])
            for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64)
        ]
        refused = 0
        for _ in range(int(os.environ.get("COMFY_SUPERVISOR_TEST_FUZZ", "3000"))):
            message = dict(draw.choice(seeds))
            message["body"] = mutated(draw, message["body"][:2000])
            try:
                self.pair.receive(message)
            except CannotCross:
                refused += 1
        self.assertGreater(refused, 0)

    def test_tensors_as_json(self) -> None:
        import json

        encoded = plain.encode_result(filled((2, 3), torch.bfloat16).t(), self.pair.left)
        content = json.loads(encoded.body)["$array"]
        self.assertEqual(
            (content["kind"], content["dtype"], content["shape"]), ("torch", "bfloat16", [3, 2])
        )


class InAWorker(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.workers = {}
        for choice in ("inference_mode", "no_grad", "off"):
            worker = cls.workers[choice] = WorkerProcess()
            cls.addClassCleanup(worker.close)
            worker.load("torchy", options={"inference": choice})

    def test_node_calls_run_in_the_mode_that_was_chosen(self) -> None:
        for choice, expected in (
            ("inference_mode", (True, False)),
            ("no_grad", (False, False)),
            ("off", (False, True)),
        ):
            worker = self.workers[choice]
            self.assertEqual(worker.call("Mode"), expected)
            self.assertEqual(worker.call("AsyncMode"), expected)
            self.assertEqual(worker.call("Mode"), expected)

    def test_what_the_pack_makes_at_import_is_made_outside_inference_mode(self) -> None:
        self.assertEqual(self.workers["inference_mode"].call("ImportedTensor"), (False,))

    def test_a_node_can_train(self) -> None:
        for worker in self.workers.values():
            before, after = worker.call("Trains", {"data": torch.rand(64, 4)})
            self.assertLess(after, before)

    def test_a_parameter_made_lazily_in_one_call_is_used_in_the_next(self) -> None:
        for worker in self.workers.values():
            first = worker.call("Lazy", {"value": torch.ones(3)})[0]
            self.assertTrue(torch.equal(first, worker.call("Lazy", {"value": torch.ones(3)})[0]))

    def test_writes_in_place_stay_with_the_node_and_come_back_with_its_result(self) -> None:
        worker = self.workers["inference_mode"]
        given = torch.rand(1_000_000)
        before = given.clone()
        for through in ("torch", "numpy"):
            result, kept = worker.call("WritesInPlace", {"value": given, "through": through})
            self.assertTrue(torch.equal(given, before))
            self.assertTrue(torch.equal(result, before + 1))
            self.assertTrue(torch.equal(kept, before))

    def test_models_are_handles(self) -> None:
        from comfy_supervisor_worker.wire.opaque import Handle

        worker = self.workers["inference_mode"]
        model, holder = worker.call("Model")
        self.assertIs(type(model), Handle)
        self.assertIs(
            type(holder), Handle, "an object that holds a model does not cross as a copy either"
        )
        self.assertEqual(worker.call("UsesModel", {"model": model, "holder": holder}), (True,))

    def test_a_node_that_imports_torch_in_mid_call_is_in_the_mode_at_once(self) -> None:
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        worker.load("torchlazy")
        self.assertEqual(worker.call("Mode"), (False, True))
        self.assertEqual(worker.call("Mode"), (True, True))


if __name__ == "__main__":
    unittest.main()
