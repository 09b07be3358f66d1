"""Classes of the first kind: one that ComfyUI can not tell from the pack's own, for each contract.

Presence decides in ComfyUI (hasattr, getattr with a default), so a method exists here exactly when the pack has it.
"""

from __future__ import annotations

import uuid
from typing import Any, Callable

from .accelerators import require
from .nodecall import Bridge, Instance, NodeCall
from .shapes import Builder
from .signatures import by_name, dress


class V1Proxy:
    """The base of all proxies of V1 nodes. Its own names begin with an underscore: packs own the rest."""

    _comfy_supervisor_bridge: Bridge
    _comfy_supervisor_instance: Instance

    def __init__(self) -> None:
        self._comfy_supervisor_instance = Instance(token=uuid.uuid4().hex)

    def __del__(self) -> None:
        instance = self.__dict__.get("_comfy_supervisor_instance")
        if instance is not None and instance.generation:
            self._comfy_supervisor_bridge.drop(instance.token)


def make_v1(contract: dict[str, Any], builder: Builder, bridge: Bridge) -> type:
    """The proxy class of a V1 contract."""
    node = contract["name"]
    attributes = {name: builder.build(value) for name, value in contract["attributes"].items()}
    namespace: dict[str, Any] = {
        **attributes,
        "__doc__": contract.get("doc"),
        "__module__": contract["module"],
        "_comfy_supervisor_bridge": bridge,
        "INPUT_TYPES": classmethod(lambda cls: bridge.inputs(node)),
    }
    accelerator = attributes.get("ACCELERATOR")
    function = attributes.get("FUNCTION")
    for name, method in contract["methods"].items():
        namespace[name] = _method(node, name, method, bridge, accelerator, name == function)
    return type(contract["class"], (V1Proxy,), namespace)


def _method(
    node: str, name: str, method: dict[str, Any], bridge: Bridge, accelerator: Any, runs_node: bool
) -> Any:
    kind = method["kind"]
    described = method["signature"]

    def prepare(owner: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> NodeCall:
        if runs_node and accelerator:
            require(accelerator, node)
        try:
            inputs = by_name(described, kind != "static", positional, named)
        except TypeError as error:
            raise TypeError(f"{node}.{name}() {error}") from None
        instance = owner._comfy_supervisor_instance if isinstance(owner, V1Proxy) else None
        return NodeCall(node, name, inputs, instance=instance, runs_node=runs_node)

    made = _defined(name, kind, method["async"], prepare, bridge)
    made.__name__ = name
    made.__qualname__ = f"{node}.{name}"
    dress(made, described)
    if kind == "class":
        return classmethod(made)
    if kind == "static":
        return staticmethod(made)
    return made


def _defined(
    name: str,
    kind: str,
    is_async: bool,
    prepare: Callable[[Any, tuple[Any, ...], dict[str, Any]], NodeCall],
    bridge: Bridge,
) -> Callable[..., Any]:
    """The function itself: a coroutine function exactly when the pack's is, for ComfyUI orders nodes by it.

    VALIDATE_INPUTS always is one: it runs on the web server's loop, which must not wait for a worker.
    """
    if name == "VALIDATE_INPUTS":
        if kind == "static":

            async def validate_static(*positional: Any, **named: Any) -> Any:
                return await bridge.validate(prepare(None, positional, named))

            return validate_static

        async def validate(owner: Any, /, *positional: Any, **named: Any) -> Any:
            return await bridge.validate(prepare(owner, positional, named))

        return validate
    if is_async:
        if kind == "static":

            async def call_static_async(*positional: Any, **named: Any) -> Any:
                return await bridge.call_async(prepare(None, positional, named))

            return call_static_async

        async def call_async(owner: Any, /, *positional: Any, **named: Any) -> Any:
            return await bridge.call_async(prepare(owner, positional, named))

        return call_async
    if kind == "static":

        def call_static(*positional: Any, **named: Any) -> Any:
            return bridge.call(prepare(None, positional, named))

        return call_static

    def call(owner: Any, /, *positional: Any, **named: Any) -> Any:
        return bridge.call(prepare(owner, positional, named))

    return call
