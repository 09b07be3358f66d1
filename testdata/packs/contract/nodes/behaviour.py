"""Behaviour that travels in data: dicts that contain every name, strings that differ from nothing, endless tuples."""

import json


class AnyType(str):
    def __ne__(self, other):
        return False


class AnyInput(dict):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def __contains__(self, key):
        return True

    def __getitem__(self, key):
        return (self.kind,)


class NumberedInput(dict):
    """Goes on with input2, input3 ... beyond those that it lists."""

    def _numbered(self, key):
        return isinstance(key, str) and key.startswith("input") and key[5:].isdigit()

    def __contains__(self, key):
        return super().__contains__(key) or self._numbered(key)

    def __getitem__(self, key):
        return super().__getitem__(key) if super().__contains__(key) else ("INT", {"default": 0})


class Endless(tuple):
    def __getitem__(self, index):
        return AnyType("*") if index >= len(self) else super().__getitem__(index)


ANY = AnyType("*")


class ContractAnyInputs:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "optional": AnyInput(ANY)}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/behaviour"

    def run(self, **inputs):
        return (json.dumps({name: str(value) for name, value in sorted(inputs.items())}),)


class ContractNumberedInputs:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}, "optional": NumberedInput(input1=("INT", {"default": 0}))}

    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "contract/behaviour"

    def run(self, **inputs):
        return (sum(inputs.values()),)


class ContractEndless:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"count": ("INT", {"default": 5})}}

    RETURN_TYPES = Endless(("INT",))
    FUNCTION = "run"
    CATEGORY = "contract/behaviour"

    def run(self, count):
        return tuple(range(count))


NODES = {
    "ContractAnyInputs": ContractAnyInputs,
    "ContractNumberedInputs": ContractNumberedInputs,
    "ContractEndless": ContractEndless,
}
