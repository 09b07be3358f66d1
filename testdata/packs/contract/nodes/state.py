"""Node objects: one for each node of a workflow, kept between prompts."""


class ContractCounts:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seed": ("INT", {"default": 0})}}

    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "contract/state"

    def __init__(self):
        self.count = 0

    def run(self, seed):
        self.count += 1
        return (self.count,)


NODES = {"ContractCounts": ContractCounts}
