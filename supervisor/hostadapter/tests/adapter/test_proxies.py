"""Proxy classes: ComfyUI finds on them what it would find on the pack's, and calls arrive as it made them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import unittest
from typing import Any

from comfyui_adapter.nodecall import NodeCall
from comfyui_adapter.proxy_v1 import make_v1
from comfyui_adapter.shapes import Builder

SELF = ["self", "pk", False]


class Bridge:
    """Keeps what proxies ask for."""

    environment = "e"
    pack = "p"

    def __init__(self) -> None:
        self.calls: list[NodeCall] = []
        self.dropped: list[str] = []

    def call(self, call: NodeCall) -> Any:
        self.calls.append(call)
        if call.instance is not None:
            call.instance.generation = 1
        return "sync"

    async def call_async(self, call: NodeCall) -> Any:
        self.calls.append(call)
        return "async"

    async def validate(self, call: NodeCall) -> Any:
        self.calls.append(call)
        return True

    def inputs(self, node: str) -> Any:
        return {"required": {node: ("INT",)}}

    def drop(self, token: str) -> None:
        self.dropped.append(token)


def contract(**methods: Any) -> dict[str, Any]:
    return {
        "name": "Node",
        "module": "custom_nodes.pack.nodes",
        "class": "NodeClass",
        "doc": "Doc.",
        "kind": "v1",
        "attributes": {"FUNCTION": "run", "RETURN_TYPES": {"$tuple": {"items": ["INT"]}}, "OWN": 1},
        "methods": {"run": {"kind": "instance", "async": False, "signature": [SELF, ["a", "pk", False], ["b", "pk", True]]}, **methods},
    }


class V1(unittest.TestCase):
    def setUp(self) -> None:
        self.bridge = Bridge()

    def make(self, **methods: Any) -> Any:
        return make_v1(contract(**methods), Builder([]), self.bridge)

    def test_attributes_names_and_inputs(self) -> None:
        made = self.make()
        self.assertEqual((made.RETURN_TYPES, made.OWN, made.__doc__), (("INT",), 1, "Doc."))
        self.assertEqual((made.__module__, made.__name__), ("custom_nodes.pack.nodes", "NodeClass"))
        self.assertEqual(made.INPUT_TYPES(), {"required": {"Node": ("INT",)}})

    def test_presence_decides(self) -> None:
        made = self.make()
        for name in ("IS_CHANGED", "VALIDATE_INPUTS", "check_lazy_status", "OUTPUT_NODE"):
            self.assertFalse(hasattr(made, name))
            self.assertIsNone(getattr(made(), name, None))

    def test_signatures_are_those_of_the_pack(self) -> None:
        validate = {"kind": "class", "async": False, "signature": [["cls", "pk", False], ["x", "pk", True], ["rest", "vk", False]]}
        made = self.make(VALIDATE_INPUTS=validate)
        spec = inspect.getfullargspec(made.VALIDATE_INPUTS)
        self.assertEqual((spec.args, spec.varkw), (["cls", "x"], "rest"))
        self.assertEqual(inspect.getfullargspec(made.run).args, ["self", "a", "b"])

    def test_synchronous_stays_synchronous_and_asynchronous_asynchronous(self) -> None:
        later = {"kind": "instance", "async": True, "signature": [SELF]}
        made = self.make(later=later, IS_CHANGED={"kind": "class", "async": False, "signature": [["cls", "pk", False]]})
        self.assertFalse(inspect.iscoroutinefunction(made.run))
        self.assertTrue(inspect.iscoroutinefunction(made.later))
        self.assertFalse(inspect.iscoroutinefunction(made.IS_CHANGED))
        self.assertEqual((made().run(a=1), asyncio.run(made().later())), ("sync", "async"))

    def test_validation_never_blocks_the_servers_loop(self) -> None:
        for kind in ("class", "static"):
            made = self.make(VALIDATE_INPUTS={"kind": kind, "async": False, "signature": [["x", "pk", False]]})
            self.assertTrue(inspect.iscoroutinefunction(made.VALIDATE_INPUTS))
            self.assertTrue(asyncio.run(made.VALIDATE_INPUTS(x=1)))
            self.assertEqual(self.bridge.calls[-1].inputs, {"x": 1})

    def test_positional_arguments_get_their_names(self) -> None:
        made = self.make()
        made().run(1, b=2)
        self.assertEqual(self.bridge.calls[-1].inputs, {"a": 1, "b": 2})
        for arguments, named in (((1, 2, 3), {}), ((1,), {"a": 1})):
            with self.assertRaisesRegex(TypeError, "Node.run"):
                made().run(*arguments, **named)

    def test_an_input_may_be_called_anything(self) -> None:
        made = self.make(run={"kind": "instance", "async": False, "signature": [SELF, ["rest", "vk", False]]})
        made().run(owner=1, positional=2, named=3, call=4)
        self.assertEqual(set(self.bridge.calls[-1].inputs), {"owner", "positional", "named", "call"})

    def test_instances_have_tokens_and_are_dropped_when_comfyui_drops_them(self) -> None:
        made = self.make()
        one, two = made(), made()
        one.run(a=1)
        two.run(a=1)
        tokens = [call.instance.token for call in self.bridge.calls]
        self.assertEqual(len(set(tokens)), 2)
        self.assertTrue(self.bridge.calls[0].runs_node)
        del one
        self.bridge.calls.clear()
        gc.collect()
        self.assertEqual(self.bridge.dropped, [tokens[0]])

    def test_a_method_of_the_class_has_no_instance(self) -> None:
        made = self.make(IS_CHANGED={"kind": "class", "async": False, "signature": [["cls", "pk", False]]})
        made.IS_CHANGED()
        self.assertIsNone(self.bridge.calls[-1].instance)
        self.assertFalse(self.bridge.calls[-1].runs_node)


if __name__ == "__main__":
    unittest.main()
