"""Errors keep their class, text and traceback."""


class OwnError(LookupError):
    """A class that only the pack has."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


KINDS = ["FileNotFoundError", "OwnError", "ValueError", "KeyError", "SystemExit", "MemoryError", "OutOfMemoryError", "chained"]


class ContractRaises:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"kind": (KINDS, {})}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/errors"

    def run(self, kind):
        self.deeper(kind)

    def deeper(self, kind):
        if kind == "FileNotFoundError":
            open("/no/such/file/anywhere")
        if kind == "OwnError":
            raise OwnError(7, "the pack's own")
        if kind == "KeyError":
            {}["missing"]
        if kind == "SystemExit":
            raise SystemExit(3)
        if kind == "MemoryError":
            raise MemoryError("no room")
        if kind == "OutOfMemoryError":
            import torch

            raise torch.OutOfMemoryError("the card is full")
        if kind == "chained":
            try:
                int("x")
            except ValueError as error:
                raise RuntimeError("outer") from error
        raise ValueError("bad value")


class ContractRaisesAsync(ContractRaises):
    async def run(self, kind):
        self.deeper(kind)


class ContractInputTypesRaise:
    """INPUT_TYPES raises: this node is gone, the others are not."""

    @classmethod
    def INPUT_TYPES(cls):
        raise RuntimeError("the list of models could not be read")

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/errors"

    def run(self):
        return ("never",)


NODES = {kind.__name__: kind for kind in (ContractRaises, ContractRaisesAsync, ContractInputTypesRaise)}
