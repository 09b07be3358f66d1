"""What a node class promises ComfyUI: its attributes, inputs and optional methods, described for the host.

A contract holds data and facts only; the host builds a class from it that ComfyUI can not tell from the original.
Presence decides in ComfyUI, so a method is listed exactly when the class has it, with the signature ComfyUI would read.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import asdict
from typing import Any, Callable

from .. import report
from .shapes import Describer, is_foreign

# What ComfyUI calls beside the node's function, for classes of the first kind and of the third.
V1_METHODS = ("IS_CHANGED", "VALIDATE_INPUTS", "check_lazy_status")
V3_METHODS = ("fingerprint_inputs", "validate_inputs", "check_lazy_status")

# ComfyUI calls these on the class: a plain function gets no self there.
_OF_THE_CLASS = ("IS_CHANGED", "VALIDATE_INPUTS")

# Attributes that ComfyUI looks up by name and that may be properties of a metaclass or descriptors.
_LOOKED_UP = (
    "RETURN_TYPES RETURN_NAMES OUTPUT_TOOLTIPS OUTPUT_NODE OUTPUT_IS_LIST INPUT_IS_LIST FUNCTION CATEGORY DESCRIPTION"
    " DEPRECATED EXPERIMENTAL DEV_ONLY API_NODE SEARCH_ALIASES NOT_IDEMPOTENT HAS_INTERMEDIATE_OUTPUT"
    " ESSENTIALS_CATEGORY ACCELERATOR"
).split()

# Fields of a V3 schema that are plain values.
_SCHEMA_FIELDS = (
    "node_id display_name category description search_aliases is_input_list is_output_node is_deprecated"
    " is_experimental is_dev_only is_api_node not_idempotent enable_expand accept_all_inputs essentials_category"
    " has_intermediate_output"
).split()

_ATTRIBUTE_BYTES = 256 << 10  # a plain attribute above this is a pack's data, not a promise


def is_v3(cls: type) -> bool:
    """Whether a class is a V3 node: derived from ComfyUI's own base, looked up where it is loaded."""
    internal = sys.modules.get("comfy_api.internal")
    base = getattr(internal, "_ComfyNodeInternal", None)
    return isinstance(base, type) and issubclass(cls, base)


def describe_node(name: str, cls: type, describer: Describer) -> dict[str, Any]:
    """The contract of one class. Never raises: what fails is noted in the contract itself."""
    contract: dict[str, Any] = {
        "name": name,
        "module": cls.__module__,
        "class": cls.__name__,
        "doc": cls.__doc__ if isinstance(cls.__doc__, str) else None,
    }
    try:
        if is_v3(cls):
            contract.update(_v3(cls, describer))
        else:
            contract.update(_v1(cls, describer))
    except Exception as error:
        contract["error"] = describe_error(error)
        contract.setdefault("kind", "v3" if is_v3(cls) else "v1")
        contract.setdefault("attributes", _attributes(cls, describer, ()))
        contract.setdefault("methods", {})
    return contract


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception so that the host can raise it again."""
    return report.describe(error)


def input_types(cls: type, describer: Describer) -> dict[str, Any]:
    """The described INPUT_TYPES of a class, or the error that they raise."""
    try:
        if is_v3(cls):
            return {"value": describer.describe(asdict(cls.FINALIZE_SCHEMA().get_v1_info(cls)))}
        return {"value": describer.describe(cls.INPUT_TYPES())}
    except Exception as error:
        return {"error": describe_error(error)}


def _v1(cls: type, describer: Describer) -> dict[str, Any]:
    methods = {}
    function = getattr(cls, "FUNCTION", None)
    if isinstance(function, str):
        found = inspect.getattr_static(cls, function, None)
        if found is not None:
            methods[str(function)] = _method(cls, function)
    for name in V1_METHODS:
        if callable(getattr(cls, name, None)) and name not in methods:
            methods[name] = _method(cls, name)
    return {
        "kind": "v1",
        "attributes": _attributes(cls, describer, (), _LOOKED_UP),
        "methods": methods,
        "inputs": input_types(cls, describer),
        "init": _init_fails(cls),
    }


def _init_fails(cls: type) -> str:
    """Why ComfyUI could not make an instance without arguments; empty when it can, as far as the signature tells."""
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        return str(error)
    except ValueError:
        pass  # a class without a signature, such as one written in C
    return ""


def _v3(cls: type, describer: Describer) -> dict[str, Any]:
    schema = cls.GET_SCHEMA()
    override = sys.modules["comfy_api.internal"].first_real_override
    methods = {"execute": _method(cls, "execute")}
    for name in V3_METHODS:
        if override(cls, name) is not None:
            methods[name] = _method(cls, name)
    fields = {name: describer.describe(getattr(schema, name)) for name in _SCHEMA_FIELDS if hasattr(schema, name)}
    fields["hidden"] = [hidden.name for hidden in schema.hidden or ()]
    fields["outputs"] = [_output(output, describer) for output in schema.outputs or ()]
    bases = tuple(base for base in cls.__mro__ if base.__module__.split(".", 1)[0] == "comfy_api")
    return {
        "kind": "v3",
        "attributes": _attributes(cls, describer, bases),
        "methods": methods,
        "inputs": {"value": describer.describe(asdict(schema.get_v1_info(cls)))},
        "schema": fields,
        "properties": _properties(cls, describer),
    }


def _properties(cls: Any, describer: Describer) -> dict[str, Any]:
    """What ComfyUI has remembered of the schema on the class, from which it answers DESCRIPTION, CATEGORY and others. A
    class derived from another node's has some of that one's."""
    base = cls.GET_BASE_CLASS()
    names = {name for parent in base.__mro__ for name in vars(parent) if name.startswith("_") and name[1:].isupper()}
    return {name: describer.describe(getattr(cls, name)) for name in sorted(names) if getattr(cls, name) is not None}


def _output(output: Any, describer: Describer) -> dict[str, Any]:
    return {
        "id": output.id,
        "io_type": describer.describe(output.io_type),
        "display_name": output.display_name,
        "tooltip": output.tooltip,
        "is_output_list": output.is_output_list,
    }


def _attributes(
    cls: type, describer: Describer, skip: tuple[type, ...], looked_up: list[str] | tuple[str, ...] = ()
) -> dict[str, Any]:
    """The plain attributes of a class, its own and inherited ones, known to ComfyUI or not."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is object or base in skip:
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and not _is_code(value):
                found[name] = value
    for name in looked_up:
        try:
            found[name] = getattr(cls, name)
        except AttributeError:
            found.pop(name, None)
    described = {}
    for name, value in found.items():
        if isinstance(value, (str, bytes)) and len(value) > _ATTRIBUTE_BYTES:
            continue
        shape = describer.describe(value)
        if not is_foreign(shape):
            described[name] = shape
    return described


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (classmethod, staticmethod, property)) or hasattr(value, "__get__")


def _method(cls: type, name: str) -> dict[str, Any]:
    """How a method is defined and what its signature, as ComfyUI reads it, says."""
    function: Callable[..., Any] = getattr(cls, name)
    if inspect.ismethod(function):  # a class method, or a bound method that a decorator put there
        kind = "class"
    elif name not in _OF_THE_CLASS and inspect.isfunction(inspect.getattr_static(cls, name)):
        kind = "instance"
    else:
        kind = "static"
    return {
        "kind": kind,
        "async": inspect.iscoroutinefunction(function),
        "signature": signature(function),
    }


def signature(function: Callable[..., Any]) -> list[list[Any]] | None:
    """[name, kind, has a default] of each parameter as inspect.getfullargspec sees them; None when it sees none."""
    try:
        spec = inspect.getfullargspec(function)
    except TypeError:
        return None
    parameters: list[list[Any]] = []
    first_default = len(spec.args) - len(spec.defaults or ())
    for index, name in enumerate(spec.args):
        parameters.append([name, "pk", index >= first_default])
    if spec.varargs:
        parameters.append([spec.varargs, "vp", False])
    for name in spec.kwonlyargs:
        parameters.append([name, "ko", name in (spec.kwonlydefaults or {})])
    if spec.varkw:
        parameters.append([spec.varkw, "vk", False])
    return parameters
