"""torch tensors through real workers, in ComfyUI's inference mode."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from sharing import BrokerCase, Sharing


class Weights(unittest.TestCase):
    def test_a_handle_weighs_what_its_object_holds_and_takes_a_byte(self) -> None:
        from comfy_supervisor.wire.opaque import Handle
        from comfyui_adapter.hostrole import Held

        for weight in (8 << 30, 0):
            held = Held(Handle(1, "pack.Model", "env", 1, "worker"), weight)
            self.assertIsInstance(held, tuple)  # where ComfyUI's cache looks for tensors
            self.assertEqual(sum(part.numel() * part.element_size() for part in held), weight)
            self.assertLessEqual(sum(part.untyped_storage().nbytes() for part in held), 1)


class Tensors(Sharing, BrokerCase):
    def make(self, count: int) -> Any:
        return torch.rand(count, generator=torch.Generator().manual_seed(count))

    def copy(self, array: Any) -> Any:
        return array.clone()

    def same(self, one: Any, two: Any) -> bool:
        return torch.equal(one, two) and one.dtype == two.dtype

    def test_writes_through_numpy_are_seen_too(self) -> None:
        given = self.make(1_000_000)
        before = given.clone()
        result = self.session.call("one", "AddInPlace", value=given, through="numpy")[0]
        self.assertTrue(torch.equal(given, before) and torch.equal(result, before + 1))
        result.numpy()[:] = 3
        again = self.session.call("one", "AddInPlace", value=result, through="numpy")[0]
        self.assertTrue(bool((result == 3).all()) and bool((again == 4).all()))
        self.session.call("one", "SumOfKept")

    def test_inference_tensors_of_the_host_cross_as_well(self) -> None:
        with torch.inference_mode():
            given = self.make(1_000_000) * 2
            result = self.session.call("one", "AddOne", value=given)[0]
            result += 1
            again = self.session.call("two", "AddOne", value=result)[0]
        self.assertTrue(torch.equal(again, given + 3))

    def test_a_result_can_be_trained_on(self) -> None:
        result = self.session.call("one", "AddOne", value=self.make(100))[0].requires_grad_()
        (result * result).sum().backward()
        self.assertTrue(torch.equal(result.grad, 2 * result.detach()))


if __name__ == "__main__":
    unittest.main()
