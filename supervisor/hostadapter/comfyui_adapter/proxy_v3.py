"""Classes of the third kind: ComfyUI's own ComfyNode with a schema that a worker described.

ComfyUI reads a V3 node through its schema, so the proxy derives from the host's real ComfyNode and answers
define_schema with a Schema whose V1 form is the one the worker has. The pack's methods are class methods that find the
hidden values on the locked class ComfyUI calls them with.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Callable

from .accelerators import require
from .nodecall import Bridge, NodeCall
from .shapes import Builder
from .signatures import by_name, dress


def make_v3(contract: dict[str, Any], builder: Builder, bridge: Bridge) -> type:
    """The proxy class of a V3 contract. Raises ImportError where this ComfyUI has no V3 nodes."""
    io = importlib.import_module("comfy_api.latest").io
    node = contract["name"]
    attributes = {name: builder.build(value) for name, value in contract["attributes"].items()}
    hidden_names = list(contract["schema"]["hidden"])
    schema = _SchemaMaker(io, contract["schema"], builder, bridge, node)
    properties = {name: builder.build(value) for name, value in contract["properties"].items() if hasattr(io.ComfyNode, name)}
    namespace: dict[str, Any] = {
        **attributes,
        **properties,
        "__doc__": contract.get("doc"),
        "__module__": contract["module"],
        "_comfy_supervisor_bridge": bridge,
        "define_schema": classmethod(lambda cls: schema.make()),
        "SCHEMA": _FirstSchema(schema),
    }
    for name, method in contract["methods"].items():
        accelerator = attributes.get("ACCELERATOR") if name == "execute" else None
        made = _method(node, name, method, bridge, hidden_names, accelerator)
        made.__name__ = name
        made.__qualname__ = f"{node}.{name}"
        dress(made, method["signature"])
        namespace[name] = classmethod(made)
    return type(contract["class"], (io.ComfyNode,), namespace)


def _method(
    node: str, name: str, method: dict[str, Any], bridge: Bridge, hidden_names: list[str], accelerator: Any
) -> Callable[..., Any]:
    described = method["signature"]
    runs_node = name == "execute"

    def prepare(owner: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> NodeCall:
        if accelerator:
            require(accelerator, node)
        holder = owner.hidden
        hidden = {key: getattr(holder, key) for key in hidden_names} if holder is not None else {}
        inputs = by_name(described, True, positional, named)
        return NodeCall(node, name, inputs, hidden=hidden, runs_node=runs_node)

    if name == "validate_inputs":

        async def validate(owner: Any, /, *positional: Any, **named: Any) -> Any:
            return await bridge.validate(prepare(owner, positional, named))

        return validate
    if method["async"]:

        async def call_async(owner: Any, /, *positional: Any, **named: Any) -> Any:
            return await bridge.call_async(prepare(owner, positional, named))

        return call_async

    def call(owner: Any, /, *positional: Any, **named: Any) -> Any:
        return bridge.call(prepare(owner, positional, named))

    return call


class _SchemaMaker:
    """Makes the schema of one node: fixed fields from the scan, inputs as the worker last described them."""

    def __init__(self, io: Any, described: dict[str, Any], builder: Builder, bridge: Bridge, node: str) -> None:
        self._io = io
        self._bridge = bridge
        self._node = node
        self._hidden = [io.Hidden[name] for name in described["hidden"] if name in io.Hidden.__members__]
        self._outputs = described["outputs"]
        self._builder = builder
        known = {field.name for field in dataclasses.fields(io.Schema)}
        self._fields = {
            name: builder.build(value)
            for name, value in described.items()
            if name in known and name not in ("hidden", "outputs")
        }
        self._class = _schema_class(io)

    def make(self) -> Any:
        """A fresh schema, as define_schema would give."""
        info = self._bridge.inputs(self._node)
        schema = self._class(
            **self._fields,
            inputs=self._inputs(info.get("input") or {}),
            outputs=[self._output(output) for output in self._outputs],
            hidden=list(self._hidden),
        )
        schema.described_info = info
        return schema

    def _inputs(self, described: dict[str, Any]) -> list[Any]:
        made = []
        for category in ("required", "optional"):
            for name, (io_type, *options) in described.get(category, {}).items():
                extra = dict(options[0]) if options else {}
                made.append(
                    self._io.Custom(io_type).Input(name, optional=category == "optional", extra_dict=extra)
                )
        return made

    def _output(self, described: dict[str, Any]) -> Any:
        made = self._io.Custom(self._builder.build(described["io_type"])).Output(
            None, described["display_name"], described["tooltip"], described["is_output_list"]
        )
        made.id = described["id"]  # given by ComfyUI where the pack gave none, and then no name to be shown
        return made


class _FirstSchema:
    """SCHEMA until ComfyUI has set it. Natively its first look at RETURN_TYPES does so; a proxy knows that one already,
    and a node's first run would find no schema."""

    def __init__(self, maker: _SchemaMaker) -> None:
        self._maker = maker

    def __get__(self, node: Any, kind: type) -> Any:
        schema = self._maker.make()
        schema.finalize()
        return schema


def _schema_class(io: Any) -> type:
    """ComfyUI's Schema, whose V1 form comes from the worker."""

    class RemoteSchema(io.Schema):
        """A schema that a worker has finalized and validated already."""

        described_info: dict[str, Any]

        def validate(self) -> None:
            """Nothing: the worker's own schema was validated there."""

        def get_v1_info(self, cls: type) -> Any:
            """The V1 form that the worker gave, under the host's name of the module."""
            known = {field.name for field in dataclasses.fields(io.NodeInfoV1)}
            info = {name: value for name, value in self.described_info.items() if name in known}
            info["python_module"] = getattr(cls, "RELATIVE_PYTHON_MODULE", "nodes")
            return io.NodeInfoV1(**info)

    return RemoteSchema
