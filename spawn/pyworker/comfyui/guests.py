"""Objects of other processes that pass through a worker, and what this worker's own objects weigh."""

from __future__ import annotations

import sys
from typing import Any

from ..wire.opaque import Handle

HOST = "host"  # the environment of the host's own objects


class Guest(Handle):
    """An object that lives elsewhere. A node may pass it on; one that looks into it is told whose it is, and where."""

    __slots__ = ("_here", "_weight")

    def __init__(self, fields: dict[str, Any], here: str) -> None:
        """`here` names the environment that has the guest."""
        generation = fields.get("generation")
        super().__init__(
            fields.get("id"),  # type: ignore[arg-type]
            str(fields.get("type")),
            str(fields.get("environment")),
            generation if type(generation) is int else 0,
            str(fields.get("worker")),
        )
        self._here = here
        self._weight = fields.get("weight")

    def fields(self) -> dict[str, Any]:
        """As it crosses: `passed` says that its owner did not send it this time."""
        fields = {**super().fields(), "passed": True}
        if self._weight:
            fields["weight"] = self._weight
        return fields

    def _refusal(self, what: str) -> str:
        kind = self.type_name.rpartition(".")[2]
        home = "in ComfyUI itself" if self.environment == HOST else f"in the worker of environment {self.environment!r}"
        return (
            f"this {kind} lives {home} and can not be used in environment {self._here!r} ({what}): use nodes of one pack, or"
            " put both packs into one environment"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(self._refusal(f"asked for {name!r}"))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(self._refusal("called"))

    def __iter__(self) -> Any:
        raise TypeError(self._refusal("iterated over"))

    def __getitem__(self, key: Any) -> Any:
        raise TypeError(self._refusal("indexed"))

    def __len__(self) -> int:
        raise TypeError(self._refusal("asked for its length"))

    def __bool__(self) -> bool:
        return True


def weight(value: Any) -> int:
    """About how many bytes of tensors an object holds, for the host's cache; 0 when it can not be told."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    for owner in (value, getattr(value, "patcher", None)):
        size = getattr(owner, "model_size", None)
        if callable(size):
            try:
                return int(size())
            except Exception:
                break  # a class of a pack's that calls something else so
    try:
        if isinstance(value, torch.nn.Module):
            return _bytes([*value.parameters(), *value.buffers()])
        attributes = vars(value).values() if hasattr(value, "__dict__") else ()
        found = []
        for item in attributes:
            found += item if isinstance(item, (list, tuple)) else item.values() if isinstance(item, dict) else [item]
        return _bytes([item for item in found if isinstance(item, torch.Tensor)])
    except Exception:
        return 0


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in {id(item): item for item in tensors}.values())
