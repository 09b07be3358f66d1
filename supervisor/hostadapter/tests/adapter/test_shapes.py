"""What is built from a description behaves as what was described."""

from __future__ import annotations

import json
import types
import unittest

from comfyui_adapter.shapes import Builder, Foreign, OpenDict, copied
from fakecomfy import modules


class Built(unittest.TestCase):
    def build(self, described: object, tables: list[list[str]] | None = None) -> object:
        return Builder(tables or []).build(described)

    def test_plain_values(self) -> None:
        for value in (None, True, 3, 0.5, "a", [1, [2]], {"a": {"b": 1}}):
            self.assertEqual(self.build(value), value)
        self.assertEqual(self.build({"$tuple": {"items": [1, {"$tuple": {"items": []}}]}}), (1, ()))
        self.assertEqual(self.build({"$dict": [[1, 2], ["$x", 3]]}), {1: 2, "$x": 3})
        self.assertNotEqual(self.build({"$float": "nan"}), self.build({"$float": "nan"}))
        self.assertEqual(self.build({"$set": ["a"]}), {"a"})
        self.assertEqual(self.build({"$bytes": "AA=="}), b"\x00")
        self.assertEqual(self.build([{"$same": 0}], [["x", "y"]]), [["x", "y"]])

    def test_a_dict_that_contains_every_name(self) -> None:
        built = self.build({"$map": {"items": [["a", 1]], "any": {"$tuple": {"items": ["*"]}}}})
        self.assertTrue("a" in built and "whatever" in built)
        self.assertEqual((built["whatever"], built.get("x"), len(built), list(built)), (("*",), ("*",), 1, ["a"]))
        self.assertEqual(json.dumps(built), '{"a": 1}')
        self.assertIn("whatever", copied({"optional": built})["optional"])

    def test_numbered_names(self) -> None:
        built = self.build({"$map": {"items": [["in1", 1]], "families": [["in", 2]]}})
        self.assertEqual((built["in77"], "in77" in built, "inx" in built, "other" in built), (2, True, False, False))
        with self.assertRaises(KeyError):
            built["inx"]

    def test_strings_that_compare_in_their_own_way(self) -> None:
        anything = self.build({"$str": {"text": "*", "class": ["pack", "Any"], "never_differs": True}})
        self.assertFalse(anything != "IMAGE")
        self.assertTrue(anything == "*" and isinstance(anything, str) and hash(anything) == hash("*"))
        within = self.build({"$str": {"text": "A,B", "class": ["pack", "T"], "within": True, "equal_to": ["*"]}})
        self.assertEqual((within != "A,B,C", within != "A", within != "*"), (False, True, False))
        plain = self.build({"$str": {"text": "x", "class": ["pack", "T"]}})
        self.assertIs(type(plain), str)

    def test_comfyuis_own_classes_are_used_where_they_are_loaded(self) -> None:
        class IO(str):
            pass

        described = {"$str": {"text": "IMAGE", "class": ["comfy.fake", "IO"]}}
        with modules(comfy__fake={"IO": IO}):
            self.assertIs(type(self.build(described)), IO)
        self.assertIs(type(self.build(described)), str)
        elsewhere = {"$str": {"text": "IMAGE", "class": ["os", "str"]}}
        self.assertIs(type(self.build(elsewhere)), str)

    def test_a_tuple_without_end(self) -> None:
        built = self.build({"$tuple": {"items": ["INT"], "at": ["INT"], "beyond": "*"}})
        self.assertEqual((built[0], built[9], len(built), json.dumps(built)), ("INT", "*", 1, '["INT"]'))

    def test_foreign_objects_can_be_sent_to_the_browser(self) -> None:
        built = Builder([], for_json=True).build(
            {"default": {"$foreign": {"type": "a.B", "repr": "B()"}}, "set": {"$set": [1]}, "bytes": {"$bytes": "AA=="}}
        )
        self.assertIsInstance(built["default"], Foreign)
        self.assertEqual(json.loads(json.dumps(built)), {"default": "<a.B of a worker: B()>", "set": [1], "bytes": "b'\\x00'"})

    def test_a_copy_keeps_the_cache_from_harm(self) -> None:
        original = {"required": {"x": ("INT", {"default": 1})}, "optional": OpenDict()}
        original["optional"].__dict__.update(every_name=False, families=[], any=None)
        copy = copied(original)
        copy["required"]["y"] = 1
        copy["required"]["x"][1]["default"] = 2
        self.assertEqual(original["required"], {"x": ("INT", {"default": 1})})

    def test_what_is_no_description_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            self.build({"$unknown": 1})
        self.assertEqual(types.SimpleNamespace(a=1).a, 1)


if __name__ == "__main__":
    unittest.main()
