"""Describing a pack's node classes as JSON."""

from __future__ import annotations

import sys
from typing import Any, Callable

_CO_COROUTINE = 0x80  # inspect.CO_COROUTINE; inspect is slow to import
_CO_VARARGS, _CO_VARKEYWORDS = 0x04, 0x08

# Attributes that ComfyUI reads, and the names they have in a contract.
_ATTRIBUTES = {
    "RETURN_TYPES": "return_types",
    "RETURN_NAMES": "return_names",
    "OUTPUT_TOOLTIPS": "output_tooltips",
    "OUTPUT_NODE": "output_node",
    "OUTPUT_IS_LIST": "output_is_list",
    "INPUT_IS_LIST": "input_is_list",
    "FUNCTION": "function",
    "CATEGORY": "category",
    "DESCRIPTION": "description",
    "DEPRECATED": "deprecated",
    "EXPERIMENTAL": "experimental",
    "SEARCH_ALIASES": "search_aliases",
    "NOT_IDEMPOTENT": "not_idempotent",
    "HAS_INTERMEDIATE_OUTPUT": "has_intermediate_output",
}
_METHODS = (
    "IS_CHANGED",
    "VALIDATE_INPUTS",
    "check_lazy_status",
    "fingerprint_inputs",
    "validate_inputs",
)
_MAX_DEPTH = 40


def describe_node(
    name: str, node: type, failure: Callable[[BaseException], dict[str, Any]]
) -> dict[str, Any]:
    """One node's contract. What the class raises goes into its `error`, through `failure`, and into
    nothing else.
    """
    contract: dict[str, Any] = {"name": name, "class": getattr(node, "__qualname__", str(node))}
    contract["module"] = getattr(node, "__module__", "")
    try:
        for attribute, field in _ATTRIBUTES.items():
            value = getattr(node, attribute, None)
            if value is not None:
                contract[field] = plain(value)
        function = getattr(node, str(contract.get("function", "")), None)
        contract["is_async"] = is_coroutine_function(function)
        contract["methods"] = [
            method for method in _METHODS if callable(getattr(node, method, None))
        ]
        input_types = getattr(node, "INPUT_TYPES", None)
        contract["input_types"] = plain(input_types()) if callable(input_types) else {}
    except (
        BaseException
    ) as error:  # whatever a pack raises, SystemExit included, takes down this node only
        contract["error"] = failure(error)
    return contract


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it: subclasses as what they derive from, the rest as {"$repr":
    text}.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        number = float.__float__(value)
        return number if number - number == 0 else {"$float": repr(number)}
    if depth < _MAX_DEPTH:
        if isinstance(value, dict):
            return {str(key): plain(item, depth + 1) for key, item in dict.items(value)}
        if isinstance(value, list):
            return [plain(item, depth + 1) for item in list.__iter__(value)]
        if isinstance(value, tuple):
            return [plain(item, depth + 1) for item in tuple.__iter__(value)]
        if isinstance(value, (set, frozenset)):
            return [plain(item, depth + 1) for item in value]
    return {"$repr": repr(value)[:500]}


def is_coroutine_function(function: Any) -> bool:
    """Whether calling `function` makes a coroutine."""
    inspect = sys.modules.get("inspect")
    if inspect is not None and hasattr(inspect, "iscoroutinefunction"):
        return inspect.iscoroutinefunction(function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return bool(code is not None and code.co_flags & _CO_COROUTINE)


def accepted_names(function: Any) -> frozenset[str] | None:
    """The names of the keyword arguments that a function takes; None if it takes any, or does not
    say.
    """
    bound = hasattr(function, "__func__")
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if code is None or code.co_flags & _CO_VARKEYWORDS:
        return None
    first = code.co_posonlyargcount
    if bound and not first:
        first = 1  # self
    count = code.co_argcount + code.co_kwonlyargcount
    return frozenset(code.co_varnames[first:count])


def nearest(name: str, names: Any) -> str:
    """The existing name most like an unknown one; "" when none is."""
    import difflib

    candidates = [str(candidate) for candidate in names]
    lowered = {candidate.lower(): candidate for candidate in reversed(candidates)}
    found = difflib.get_close_matches(name.lower(), lowered, 1, 0.5)
    return lowered[found[0]] if found else ""
