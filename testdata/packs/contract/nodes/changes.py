"""IS_CHANGED in its shapes."""


class _Counts:
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/changes"
    runs = 0

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("INT", {"default": 0}), "changes": ("BOOLEAN", {"default": False})}}

    def run(self, value, changes):
        type(self).runs += 1
        return (f"value {value}",)


class ContractChanges(_Counts):
    @classmethod
    def IS_CHANGED(cls, value, changes):
        return float("nan") if changes else value


class ContractChangesAsync(_Counts):
    @classmethod
    async def IS_CHANGED(cls, value, changes):
        return float("nan") if changes else value


class ContractChangesRaises(_Counts):
    @classmethod
    def IS_CHANGED(cls, value, changes):
        raise ValueError("IS_CHANGED fails")


NODES = {kind.__name__: kind for kind in (ContractChanges, ContractChangesAsync, ContractChangesRaises)}
