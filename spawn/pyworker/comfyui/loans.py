"""Names of ComfyUI and its pager that our Python touches: how they are looked up, and what is missing."""

from __future__ import annotations

import sys
from typing import Any, Iterable, NamedTuple


class Loan(NamedTuple):
    """One name of another project, and what follows without it. `parameters` are those that we pass by name or position,
    where it is called.
    """

    module: str
    name: str
    without: str
    parameters: tuple[str, ...] | None = None


def resolve(loan: Loan) -> Any:
    """What a loan names in the modules that are loaded. Raises LookupError when it is not there."""
    found: Any = sys.modules.get(loan.module)
    if found is None:
        raise LookupError(loan.module)
    for part in loan.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(f"{loan.module}.{loan.name}") from None
    return found


def lacking(loans: Iterable[Loan]) -> list[Loan]:
    """The loans that loaded modules lack."""
    found = []
    for loan in loans:
        if loan.module in sys.modules:
            try:
                resolve(loan)
            except LookupError:
                found.append(loan)
    return found
