"""Lists in and out."""

from .behaviour import ANY


class ContractListOut:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"count": ("INT", {"default": 3})}}

    RETURN_TYPES = ("INT", "INT")
    OUTPUT_IS_LIST = (True, False)
    FUNCTION = "run"
    CATEGORY = "contract/lists"

    def run(self, count):
        return (list(range(count)), count)


class ContractListIn:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"values": (ANY, {}), "scale": ("INT", {"default": 2})}}

    INPUT_IS_LIST = True
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/lists"

    def run(self, values, scale):
        return (f"{len(values)} values, scale {scale}, sum {sum(value * scale[0] for value in values)}",)


NODES = {"ContractListOut": ContractListOut, "ContractListIn": ContractListIn}
