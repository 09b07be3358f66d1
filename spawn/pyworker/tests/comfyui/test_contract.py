"""Contracts list what ComfyUI would find on a class, and nothing else."""

from __future__ import annotations

import unittest
from typing import Any

from comfy_supervisor_worker.comfyui import contract, scanning
from comfy_supervisor_worker.comfyui.shapes import Describer


class Base:
    INHERITED = ("a", 1)
    CATEGORY = "base"


class Node(Base):
    """Says something."""

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"x": ("INT", {"default": 1})}}

    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "test"
    UNKNOWN = {"kept": True}
    _private = 1
    code = staticmethod(len)

    async def run(self, x: int, *, y: int = 2, **rest: Any) -> None: ...

    @classmethod
    def VALIDATE_INPUTS(cls, x: int, input_types: Any) -> bool:
        return True

    def IS_CHANGED(x: int) -> int:  # noqa: N805 - called on the class, as some packs do
        return x

    def check_lazy_status(self, x: int) -> list[str]:
        return []


class Broken:
    @classmethod
    def INPUT_TYPES(cls) -> Any:
        raise ValueError("no models")

    RETURN_TYPES = ()
    FUNCTION = "run"

    def run(self) -> None: ...


class Contracts(unittest.TestCase):
    def describe(self, cls: type) -> dict[str, Any]:
        return contract.describe_node("Name", cls, Describer())

    def test_attributes_known_and_unknown_own_and_inherited(self) -> None:
        attributes = self.describe(Node)["attributes"]
        self.assertEqual(attributes["CATEGORY"], "test")
        self.assertEqual(attributes["UNKNOWN"], {"kept": True})
        self.assertEqual(attributes["INHERITED"], {"$tuple": {"items": ["a", 1]}})
        for name in ("_private", "code", "run", "INPUT_TYPES", "VALIDATE_INPUTS"):
            self.assertNotIn(name, attributes)

    def test_methods_exist_exactly_where_the_class_has_them(self) -> None:
        methods = self.describe(Node)["methods"]
        self.assertEqual(set(methods), {"run", "VALIDATE_INPUTS", "IS_CHANGED", "check_lazy_status"})
        self.assertEqual(set(self.describe(Broken)["methods"]), {"run"})

    def test_kinds_and_signatures_are_those_that_comfyui_reads(self) -> None:
        methods = self.describe(Node)["methods"]
        self.assertEqual((methods["run"]["kind"], methods["run"]["async"]), ("instance", True))
        self.assertEqual(
            methods["run"]["signature"],
            [["self", "pk", False], ["x", "pk", False], ["y", "ko", True], ["rest", "vk", False]],
        )
        self.assertEqual(methods["VALIDATE_INPUTS"]["kind"], "class")
        self.assertEqual([name for name, _, _ in methods["VALIDATE_INPUTS"]["signature"]], ["cls", "x", "input_types"])
        self.assertEqual(methods["IS_CHANGED"]["kind"], "static")
        self.assertEqual(methods["check_lazy_status"]["kind"], "instance")

    def test_a_bound_method_that_a_decorator_put_there_is_one_of_the_class(self) -> None:
        class Decorated(Broken):
            VALIDATE_INPUTS = Node.VALIDATE_INPUTS

        self.assertEqual(self.describe(Decorated)["methods"]["VALIDATE_INPUTS"]["kind"], "class")

    def test_input_types_that_raise_take_down_only_their_node(self) -> None:
        document = scanning.scan({"Node": Node, "Broken": Broken}, {"Node": "A node"})
        good, broken = document["nodes"]
        self.assertIn("value", good["inputs"])
        self.assertEqual(broken["inputs"]["error"]["qualname"], "ValueError")
        self.assertEqual(broken["inputs"]["error"]["message"], "no models")
        self.assertNotIn("error", broken)
        asked = scanning.inputs({"Node": Node, "Broken": Broken})["inputs"]
        self.assertEqual((set(asked["Node"]), set(asked["Broken"])), ({"value"}, {"error"}))

    def test_a_class_that_raises_when_looked_at_is_an_error_of_its_own(self) -> None:
        class Meta(type):
            @property
            def RETURN_TYPES(cls) -> Any:
                raise RuntimeError("boom")

        class Node2(metaclass=Meta):
            FUNCTION = "run"

        self.assertEqual(self.describe(Node2)["error"]["message"], "boom")


if __name__ == "__main__":
    unittest.main()
