"""Signatures of a pack's methods, rebuilt so that inspect.getfullargspec reads on a proxy what it read on the original.

ComfyUI decides from the signature of VALIDATE_INPUTS which inputs are exempt from its own checks; getfullargspec ignores
functools.wraps, so the signature is set as __signature__.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable

_KINDS = {
    "po": inspect.Parameter.POSITIONAL_ONLY,
    "pk": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "vp": inspect.Parameter.VAR_POSITIONAL,
    "ko": inspect.Parameter.KEYWORD_ONLY,
    "vk": inspect.Parameter.VAR_KEYWORD,
}


class _WorkersDefault:
    """Stands for a default value that only the worker knows; an argument that is left out is filled in there."""

    def __repr__(self) -> str:
        return "<the worker's default>"


WORKERS_DEFAULT = _WorkersDefault()


def dress(function: Callable[..., Any], described: list[list[Any]] | None) -> None:
    """Sets the signature of a proxy's function; without a description it keeps its own."""
    if described is None:
        return
    parameters = []
    for name, kind, has_default in described:
        default = WORKERS_DEFAULT if has_default else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, _KINDS[kind], default=default))
    try:
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    except ValueError:
        pass  # an order that only C functions have


def by_name(
    described: list[list[Any]] | None, bound: bool, positional: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name; `bound` says that the first parameter is self or cls.

    Raises TypeError for more positional arguments than there are names for.
    """
    if not positional:
        return named
    names = [name for name, kind, _ in described or () if kind in ("po", "pk")][1 if bound else 0 :]
    if len(positional) > len(names):
        raise TypeError(f"takes {len(names)} positional arguments but {len(positional)} were given")
    arguments = dict(zip(names, positional))
    doubled = [name for name in arguments if name in named]
    if doubled:
        raise TypeError(f"got multiple values for argument {doubled[0]!r}")
    return {**arguments, **named}
