"""Turning exceptions into the errors of replies."""

from __future__ import annotations

import os
from typing import Any

from .wire import exceptions
from .wire.errors import error_object

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SIMPLE = frozenset((type(None), bool, int, float, str, bytes))
_MOST_ARGUMENT = 4096  # characters or bytes of one argument


def is_ours(filename: str) -> bool:
    """Whether a frame is the worker's own and says nothing about the pack."""
    return filename.startswith(_OURS) or filename.startswith("<frozen importlib")


def describe(error: BaseException) -> dict[str, Any]:
    """An exception without our own frames, as Go's wire.Exception."""
    return exceptions.describe(error, is_ours)


def raised(kind: str, error: BaseException, prefix: str = "", **data: Any) -> dict[str, Any]:
    """The error object for an exception."""
    message = exceptions.message_of(error)
    name = type(error).__qualname__
    text = f"{prefix}{name}: {message}" if message else f"{prefix}{name}"
    return error_object(kind, text, exception=describe(error), **data)


def plain_arguments(error: BaseException) -> tuple[Any, ...] | None:
    """The arguments to build the exception again from, where they are short plain values; else
    None.
    """
    arguments: Any = error.args
    if isinstance(error, OSError) and type(error).__reduce__ is OSError.__reduce__:
        reduced = error.__reduce__()  # file names are not among an OSError's args
        if isinstance(reduced, tuple) and len(reduced) > 1:
            arguments = reduced[1]
    if type(arguments) is not tuple or len(arguments) > 16:
        return None
    for argument in arguments:
        kind = type(argument)
        if kind not in _SIMPLE:
            return None
        if kind in (str, bytes) and len(argument) > _MOST_ARGUMENT:
            return None
        if kind is int and argument.bit_length() > 4096:
            return None
    return arguments
