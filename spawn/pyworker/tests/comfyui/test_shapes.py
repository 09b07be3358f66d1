"""What a class holds and does is written down; see comfyui_adapter's tests for what is built from it."""

from __future__ import annotations

import json
import unittest
from enum import Enum

from comfy_supervisor_worker.comfyui.shapes import Describer, encode, is_foreign


class AnyType(str):
    def __ne__(self, other: object) -> bool:
        return False


class Everything(dict):
    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: object) -> object:
        return ("*",)


class Numbered(dict):
    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (isinstance(key, str) and key.startswith("image_") and key[6:].isdigit())

    def __getitem__(self, key: object) -> object:
        return ("IMAGE",)


class Endless(tuple):
    def __getitem__(self, index: object) -> object:
        return "*" if isinstance(index, int) and index >= len(self) else tuple.__getitem__(self, index)


class Colour(str, Enum):
    RED = "red"


class Shapes(unittest.TestCase):
    def describe(self, value: object) -> object:
        described = Describer().describe(value)
        json.loads(encode(described))
        return described

    def test_plain_values_are_themselves(self) -> None:
        for value in (None, True, 0, 2**70, -1.5, "text", [1, ["a"]], {"a": {"b": None}}):
            self.assertEqual(self.describe(value), value)

    def test_what_json_lacks_has_a_tag(self) -> None:
        self.assertEqual(self.describe(float("inf")), {"$float": "inf"})
        self.assertEqual(self.describe((1, "a")), {"$tuple": {"items": [1, "a"]}})
        self.assertEqual(self.describe({1: 2}), {"$dict": [[1, 2]]})
        self.assertEqual(self.describe({"$float": 1}), {"$dict": [["$float", 1]]})
        self.assertEqual(self.describe({"b", "a"}), {"$set": ["a", "b"]})
        self.assertEqual(self.describe(b"\x00"), {"$bytes": "AA=="})

    def test_a_dict_that_contains_every_name_is_told_from_one_that_does_not(self) -> None:
        described = self.describe(Everything(a=1))
        self.assertEqual(described, {"$map": {"items": [["a", 1]], "any": {"$tuple": {"items": ["*"]}}}})

    def test_numbered_names_are_found_by_their_prefix(self) -> None:
        described = self.describe(Numbered(image_1=("IMAGE",)))
        self.assertEqual(described["$map"]["families"], [["image_", {"$tuple": {"items": ["IMAGE"]}}]])
        self.assertNotIn("any", described["$map"])

    def test_a_subclass_of_dict_without_a_will_of_its_own_is_a_dict(self) -> None:
        class Plain(dict):
            pass

        self.assertEqual(self.describe(Plain(a=1)), {"a": 1})

    def test_a_string_that_differs_from_nothing(self) -> None:
        described = self.describe(AnyType("*"))
        self.assertTrue(described["$str"]["never_differs"])
        self.assertEqual(described["$str"]["text"], "*")

    def test_members_of_enums_keep_their_text_and_class(self) -> None:
        described = self.describe(Colour.RED)
        self.assertEqual(described["$str"]["text"], "red")
        self.assertEqual(described["$str"]["class"][1], "Colour")

    def test_a_tuple_that_answers_any_index(self) -> None:
        described = self.describe(Endless(("INT",)))
        self.assertEqual(described, {"$tuple": {"items": ["INT"], "at": ["INT"], "beyond": "*"}})

    def test_what_can_not_be_described_is_foreign_and_harms_nothing_else(self) -> None:
        class Bad(dict):
            def __contains__(self, key: object) -> bool:
                raise RuntimeError("no")

        described = self.describe({"good": 1, "object": object(), "bad": Bad()})
        self.assertEqual(described["good"], 1)
        self.assertTrue(is_foreign(described["object"]))
        endless: list[object] = []
        endless.append(endless)
        self.assertTrue(is_foreign(self.describe(endless)[0]))
        deep: object = 1
        for _ in range(500):
            deep = [deep]
        self.describe(deep)

    def test_an_object_whose_repr_raises(self) -> None:
        class Shy:
            def __repr__(self) -> str:
                raise ValueError

        self.assertTrue(is_foreign(self.describe(Shy())))

    def test_long_lists_are_written_once(self) -> None:
        describer = Describer()
        names = [f"model {index}" for index in range(100)]
        first, second = describer.describe([list(names), 1]), describer.describe({"a": list(names)})
        self.assertEqual((first, second), ([{"$same": 0}, 1], {"a": {"$same": 0}}))
        self.assertEqual(describer.tables, [names])


if __name__ == "__main__":
    unittest.main()
