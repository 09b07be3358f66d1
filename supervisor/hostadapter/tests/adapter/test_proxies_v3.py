"""Proxies of nodes of the third kind, against the part of comfy_api that they are built from."""

from __future__ import annotations

import asyncio
import inspect
import types
import unittest
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from comfyui_adapter.proxy_v3 import make_v3
from comfyui_adapter.shapes import Builder
from fakecomfy import modules
from test_proxies import Bridge

CLS = ["cls", "pk", False]


@dataclass
class Schema:
    """What a node says of itself."""

    node_id: str
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    hidden: list[Any] = field(default_factory=list)
    enable_expand: bool = False
    finalized: bool = False

    def finalize(self) -> None:
        self.finalized = True


@dataclass
class NodeInfoV1:
    """The same as ComfyUI's server sends it."""

    input: Any = None
    python_module: Any = None


class Hidden(str, Enum):
    """Values that a node may ask for."""

    unique_id = "UNIQUE_ID"
    prompt = "PROMPT"


class ComfyNode:
    """The base of all such nodes; the executor calls `execute` on a class with its own `hidden`."""

    SCHEMA: Any = None
    hidden: Any = None


class Custom:
    """A type of inputs and outputs."""

    def __init__(self, io_type: str) -> None:
        self.io_type = io_type

    def Input(self, name: str, optional: bool, extra_dict: dict[str, Any]) -> Any:
        return types.SimpleNamespace(name=name, io_type=self.io_type, optional=optional, extra_dict=extra_dict)

    def Output(self, name: Any, display_name: str, tooltip: str, is_output_list: bool) -> Any:
        return types.SimpleNamespace(id=name, io_type=self.io_type, display_name=display_name, is_output_list=is_output_list)


IO = types.SimpleNamespace(Schema=Schema, NodeInfoV1=NodeInfoV1, Hidden=Hidden, ComfyNode=ComfyNode, Custom=Custom)


def method(asynchronous: bool = False, *parameters: str) -> dict[str, Any]:
    return {"async": asynchronous, "signature": [CLS, *([name, "pk", False] for name in parameters)]}


class V3(unittest.TestCase):
    def setUp(self) -> None:
        self.bridge = Bridge()
        inputs = {"required": {"a": ["INT", {"min": 1}]}, "optional": {"b": ["MODE"]}}
        self.bridge.inputs = lambda node: {"input": inputs}  # type: ignore[method-assign]

    def make(self, **methods: Any) -> Any:
        contract = {
            "name": "Node", "module": "custom_nodes.pack.nodes", "class": "NodeClass", "doc": None, "kind": "v3",
            "attributes": {"OWN": 1}, "properties": {}, "methods": {"execute": method(False, "a", "b"), **methods},
            "schema": {
                "node_id": "Node", "hidden": ["unique_id", "of_a_later_version"], "enable_expand": True,
                "outputs": [{"id": "o", "io_type": "INT", "display_name": "out", "tooltip": None, "is_output_list": True}],
            },
        }  # fmt: skip
        with modules(comfy_api__latest={"io": IO}):
            return make_v3(contract, Builder([]), self.bridge)  # type: ignore[arg-type]

    def test_synchronous_stays_synchronous_and_asynchronous_asynchronous(self) -> None:
        self.assertFalse(inspect.iscoroutinefunction(self.make().execute))
        made = self.make(execute=method(True, "a"))
        self.assertTrue(inspect.iscoroutinefunction(made.execute))
        self.assertEqual(asyncio.run(made.execute(a=1)), "async")

    def test_presence_decides(self) -> None:
        optional = ("fingerprint_inputs", "validate_inputs", "check_lazy_status")
        self.assertEqual([name for name in optional if hasattr(self.make(), name)], [])
        made = self.make(**{name: method(False, "a") for name in optional})
        self.assertEqual([name for name in optional if name in vars(made)], list(optional))
        self.assertEqual([name for name in optional if inspect.iscoroutinefunction(getattr(made, name))], ["validate_inputs"])
        self.assertEqual(inspect.getfullargspec(made.validate_inputs).args, ["cls", "a"])

    def test_hidden_values_are_those_of_the_class_that_is_called(self) -> None:
        made = self.make()
        made.execute(a=1, b={"nested": [1]})
        locked = type("Locked", (made,), {"hidden": types.SimpleNamespace(unique_id="7", of_a_later_version=None)})
        locked.execute(1, b=2)
        seen = [(call.inputs, call.hidden) for call in self.bridge.calls]
        self.assertEqual(
            seen, [({"a": 1, "b": {"nested": [1]}}, {}), ({"a": 1, "b": 2}, {"unique_id": "7", "of_a_later_version": None})]
        )

    def test_a_schema_is_what_the_worker_described_with_the_inputs_of_the_moment(self) -> None:
        schema = self.make().define_schema()
        self.assertEqual((schema.node_id, schema.hidden, schema.finalized), ("Node", [Hidden.unique_id], False))
        self.assertEqual(
            [(each.name, each.io_type, each.optional, each.extra_dict) for each in schema.inputs],
            [("a", "INT", False, {"min": 1}), ("b", "MODE", True, {})],
        )
        self.assertEqual([(each.id, each.display_name, each.is_output_list) for each in schema.outputs], [("o", "out", True)])

    def test_there_is_a_schema_before_anybody_has_asked_for_it(self) -> None:
        made = self.make()
        locked = type("Locked", (made,), dict(vars(made)))
        self.assertTrue(locked.SCHEMA.enable_expand and locked.SCHEMA.finalized)
        made.SCHEMA = "ComfyUI's"
        self.assertEqual(made.SCHEMA, "ComfyUI's")


if __name__ == "__main__":
    unittest.main()
