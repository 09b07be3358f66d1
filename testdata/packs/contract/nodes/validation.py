"""VALIDATE_INPUTS in its shapes."""


class _Validated:
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/validation"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"number": ("INT", {"default": 1, "min": 0, "max": 10}), "choice": (["a", "b"], {})}}

    def run(self, number, choice):
        return (f"{number} {choice}",)


class ContractValidates(_Validated):
    """Exempts choice from ComfyUI's own check."""

    @classmethod
    def VALIDATE_INPUTS(cls, choice):
        return True if choice in ("a", "b", "c") else f"{choice} is no choice"


class ContractValidatesAll(_Validated):
    @classmethod
    def VALIDATE_INPUTS(cls, **inputs):
        return inputs["number"] < 100


class ContractValidatesAsync(_Validated):
    @classmethod
    async def VALIDATE_INPUTS(cls, number):
        return True if number < 50 else "too much"


class ContractValidatesTypes(_Validated):
    @classmethod
    def VALIDATE_INPUTS(cls, input_types):
        return True if set(input_types.values()) <= {"INT"} else f"types {sorted(input_types.values())}"


NODES = {
    kind.__name__: kind
    for kind in (ContractValidates, ContractValidatesAll, ContractValidatesAsync, ContractValidatesTypes)
}
