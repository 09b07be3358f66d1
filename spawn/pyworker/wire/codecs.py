"""Values that cross by their fields: classes of ComfyUI and a few of the standard library, and what
packs register.

In a value they have the tag k: [name, payload]. A name that one side has no codec for is kept as a
Coded, which crosses again unchanged: the host forwards what only workers understand.

The classes named here are the only ones that decoding imports; a name that the other side sends
decides nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

from .errors import CannotCross

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]

# Classes that are what their attributes are, by module; read in ComfyUI 0.30.0.
_BY_ATTRIBUTES = {
    "comfy.nested_tensor": ("NestedTensor",),
    "comfy_api.latest._input.curve_types": ("MonotoneCubicCurve", "LinearCurve"),
    "comfy_api.latest._input.range_types": ("RangeInput",),
    "comfy_api.latest._input_impl.video_types": ("VideoFromFile", "VideoFromComponents"),
    "comfy_api.latest._util.geometry_types": ("MESH", "VOXEL", "SPLAT", "File3D"),
    "comfy_api.latest._util.image_types": ("SVG",),
    "comfy_api.latest._util.video_types": ("VideoComponents",),
    "comfy_execution.graph": ("DynamicPrompt",),
    "comfy_execution.graph_utils": ("ExecutionBlocker",),
}
# The packages whose enums cross by name.
_ENUM_PACKAGES = frozenset(("comfy", "comfy_api", "comfy_execution", "comfy_extras", "protocol"))


class Coded:
    """A value that only passes through here: a codec of a pack's that this process does not have."""

    __slots__ = ("name", "payload", "why", "__weakref__")

    def __init__(self, name: str, payload: Any, why: str = "") -> None:
        self.name = name
        self.payload = payload
        self.why = why

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a value of type {self.name!r} can not be looked into here (asked for {name!r})"
            + (
                f": {self.why}"
                if self.why
                else ": no serializer for it is registered in this process"
            )
        )

    def __repr__(self) -> str:
        return f"<a {self.name} that passes through>"


class Codecs:
    """The codecs of one process."""

    def __init__(self) -> None:
        self._by_class: dict[type, tuple[str, Encode]] = {}
        self._decoders: dict[str, Decode] = dict(_STANDARD_DECODERS)
        self._by_name: dict[str, tuple[str, Encode]] = (
            {}
        )  # what packs registered, by the class's bare name
        self.registrations = 0

    def register(
        self,
        type_name: str,
        serialize: Encode,
        deserialize: Decode | None = None,
        tag: str | None = None,
    ) -> None:
        """Adds a pack's codec for classes of a name, and classes derived from them."""
        tag = tag or type_name
        self._by_name[type_name] = tag, serialize
        if deserialize is not None:
            self._decoders["p:" + tag] = deserialize
        self.registrations += 1

    def register_pack(
        self,
        type_name: str,
        serialize: Callable[[Any, Callable[[Any], Any]], Any],
        deserialize: Callable[[Any, Callable[[Any], Any]], Any] | None = None,
        tag: str | None = None,
    ) -> None:
        """Adds a codec in the shape that packs write: with a function for the parts that are no
        JSON.

        Any value may stand in a payload here, so that function gives back what it gets.
        """
        decode = None if deserialize is None else (lambda payload: deserialize(payload, _itself))
        self.register(type_name, lambda value: serialize(value, _itself), decode, tag)

    def tree(self, value: Any, encoder: Any) -> dict[str, Any] | None:
        """The tree of a value for values.Encoder; None when no codec is for it. Raises what a
        pack's codec raises.
        """
        found = self.encode(value)
        if found is None:
            return None
        name, payload = found
        encoder.alive.append(payload)  # so that no object inside gets the number of another
        return {"k": [name, encoder.tree(payload)]}

    def encode(self, value: Any) -> tuple[str, Any] | None:
        """A value's name and payload; None when no codec is for it. Raises what a pack's codec
        raises.
        """
        kind = type(value)
        if kind is Coded:
            return value.name, value.payload
        for base in kind.__mro__ if self._by_name else ():
            found = self._by_name.get(base.__name__)
            if found is not None:
                return "p:" + found[0], found[1](value)
        known = self._by_class.get(kind)
        if known is None:
            known = self._by_class[kind] = _find(kind)
        name, encode = known
        return (name, encode(value)) if name else None

    def decode(self, name: str, payload: Any) -> Any:
        """The value of a payload. Raises CannotCross when a codec of ComfyUI's classes fails."""
        decode = self._decoders.get(name)
        if decode is not None:
            try:
                return decode(payload)
            except ImportError as error:
                return Coded(name, payload, f"its class can not be imported here: {error}")
            except CannotCross:
                raise
            except Exception as error:
                raise CannotCross(
                    f"the serializer of {name} failed: {type(error).__name__}: {error}"
                ) from error
        if name.startswith("c:"):
            return _decode_attributes(name[2:], payload)
        return Coded(name, payload)


def _itself(value: Any) -> Any:
    return value


def _find(kind: type) -> tuple[str, Encode]:
    """How values of exactly this class are encoded; an empty name says not at all."""
    module = kind.__module__ or ""
    names = _BY_ATTRIBUTES.get(module)
    if (
        names is not None
        and kind.__qualname__ in names
        and getattr(sys.modules.get(module), kind.__name__, None) is kind
    ):
        return f"c:{module}.{kind.__qualname__}", _attributes
    for base in kind.__mro__:
        found = _STANDARD_ENCODERS.get((base.__module__, base.__qualname__))
        if found is not None:
            exact, name, encode = found
            if base is kind or not exact:
                return name, encode
    enum = sys.modules.get("enum")
    if (
        enum is not None
        and issubclass(kind, enum.Enum)
        and module.partition(".")[0] in _ENUM_PACKAGES
    ):
        return "enum", lambda member: [
            type(member).__module__,
            type(member).__qualname__,
            member.name,
        ]
    return "", _attributes


def _attributes(value: Any) -> dict[str, Any]:
    return dict(vars(value))


def _decode_attributes(path: str, payload: Any) -> Any:
    module, _, name = path.rpartition(".")
    if name not in _BY_ATTRIBUTES.get(module, ()) or not isinstance(payload, dict):
        raise CannotCross(f"a class that does not cross: {path[:80]!r}")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return Coded("c:" + path, payload, f"this process has no {path}: {error}")
    value = kind.__new__(kind)
    value.__dict__.update(payload)
    return value


def _decode_enum(payload: Any) -> Any:
    module, name, member = payload
    if module.partition(".")[0] not in _ENUM_PACKAGES:
        raise CannotCross(f"an enum that does not cross: {module}.{name}")
    kind = getattr(sys.modules.get(module), name, None)
    if kind is None:
        return Coded("enum", payload, f"{module} is not loaded here")
    return kind[member]


def _encode_bytesio(value: Any) -> Any:
    return [value.getvalue(), value.tell()]


def _decode_bytesio(payload: Any) -> Any:
    import io

    content, position = payload
    file = io.BytesIO(content)
    file.seek(position)
    return file


def _decode_fraction(payload: Any) -> Any:
    from fractions import Fraction

    return Fraction(*payload)


def _decode_path(payload: Any) -> Any:
    from pathlib import Path

    return Path(payload)


def _decode_ordered(payload: Any) -> Any:
    from collections import OrderedDict

    return OrderedDict(payload)


def _encode_image(image: Any) -> Any:
    """A picture by its pixels, so that no format loses any; what it was read from stays behind."""
    palette = image.getpalette() if image.mode in ("P", "PA") else None
    info = {
        key: value
        for key, value in image.info.items()
        if type(key) is str and type(value) in (str, int, float, bytes, tuple)
    }
    return {
        "mode": image.mode,
        "size": list(image.size),
        "data": image.tobytes(),
        "palette": palette,
        "info": info,
        "format": image.format,
    }


def _decode_image(payload: Any) -> Any:
    from PIL import Image

    image = Image.frombytes(payload["mode"], tuple(payload["size"]), payload["data"])
    if payload.get("palette"):
        image.putpalette(payload["palette"])
    image.info.update(payload.get("info") or {})
    image.format = payload.get("format")
    return image


def as_json(value: Any) -> Any:
    """A value as JSON would have it: instances of subclasses as what they derive from."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in dict.items(value)}
    if isinstance(value, tuple):
        return tuple(as_json(item) for item in tuple.__iter__(value))
    if isinstance(value, list):
        return [as_json(item) for item in list.__iter__(value)]
    if isinstance(value, str):
        return str.__str__(value)
    return value


def _encode_node_output(output: Any) -> Any:
    ui = output.ui
    if ui is not None and not isinstance(ui, dict):
        ui = ui.as_dict()  # what ComfyUI would do with it next
    return {
        "args": tuple(output.args),
        "ui": as_json(ui),
        "expand": output.expand,
        "block_execution": output.block_execution,
    }


def _decode_node_output(payload: Any) -> Any:
    kind = importlib.import_module("comfy_api.latest").io.NodeOutput
    output = kind(*payload["args"], ui=payload["ui"], expand=payload["expand"])
    output.block_execution = payload["block_execution"]
    return output


def _torch() -> Any:
    return importlib.import_module("torch")


def _encode_device(device: Any) -> str:
    return str(device)


def _decode_dtype(payload: Any) -> Any:
    torch = _torch()
    dtype = getattr(torch, payload, None)
    if not isinstance(dtype, torch.dtype):
        raise CannotCross(f"torch has no dtype {payload!r} here")
    return dtype


# By (module, qualified name): whether only exactly this class is meant, the codec's name, and how
# it encodes.
_STANDARD_ENCODERS: dict[tuple[str, str], tuple[bool, str, Encode]] = {
    ("_io", "BytesIO"): (True, "bytesio", _encode_bytesio),
    ("fractions", "Fraction"): (
        True,
        "fraction",
        lambda value: [value.numerator, value.denominator],
    ),
    ("pathlib", "PosixPath"): (True, "path", str),
    ("pathlib", "WindowsPath"): (True, "path", str),
    ("pathlib._local", "PosixPath"): (True, "path", str),
    ("pathlib._local", "WindowsPath"): (True, "path", str),
    ("collections", "OrderedDict"): (True, "ordered", lambda value: list(value.items())),
    ("torch", "Size"): (True, "torch.size", list),
    ("torch", "dtype"): (True, "torch.dtype", lambda value: str(value).partition(".")[2]),
    ("torch", "device"): (True, "torch.device", _encode_device),
    ("PIL.Image", "Image"): (False, "image", _encode_image),
    ("comfy_api.latest._io", "NodeOutput"): (False, "node_output", _encode_node_output),
}
_STANDARD_DECODERS: dict[str, Decode] = {
    "plain": lambda payload: payload,  # an instance of a subclass whose meaning does not cross
    "bytesio": _decode_bytesio,
    "fraction": _decode_fraction,
    "path": _decode_path,
    "ordered": _decode_ordered,
    "torch.size": lambda payload: _torch().Size(payload),
    "torch.dtype": _decode_dtype,
    "torch.device": lambda payload: _torch().device(payload),
    "image": _decode_image,
    "node_output": _decode_node_output,
    "enum": _decode_enum,
}
