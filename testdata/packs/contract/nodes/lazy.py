"""Branches that are not needed are not computed."""

from .behaviour import ANY


class ContractLazy:
    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "first": (ANY, {"lazy": True}),
                "second": (ANY, {"lazy": True}),
                "take_first": ("BOOLEAN", {"default": True}),
            }
        }

    RETURN_TYPES = (ANY,)
    FUNCTION = "run"
    CATEGORY = "contract/lazy"

    def check_lazy_status(self, take_first, first=None, second=None):
        name, value = ("first", first) if take_first else ("second", second)
        return [name] if value is None else []

    def run(self, take_first, first=None, second=None):
        return (first if take_first else second,)


class ContractLazyAsync(ContractLazy):
    async def check_lazy_status(self, take_first, first=None, second=None):
        return ContractLazy.check_lazy_status(self, take_first, first, second)


NODES = {"ContractLazy": ContractLazy, "ContractLazyAsync": ContractLazyAsync}
