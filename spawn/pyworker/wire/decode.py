"""Decoding values from a frame's body, which may be anything: what is wrong raises CannotCross,
never another error.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Protocol

from .arrays import Storage, _module, plain_dtype
from .errors import CannotCross
from .mappings import Delivery
from .memory import Memory

_LENGTH = struct.Struct("<I")
# Every nan is an object of its own, as a node's float("nan") is: ComfyUI's caches compare by
# identity first.
_decode_json = json.JSONDecoder(parse_constant=float).decode
_CONTAINERS = frozenset((dict, list))


class Opener(Protocol):
    """What differs between the sides: everything that is not plain data."""

    devices: bool  # whether tensors return to the device they came from

    def open_opaque(self, fields: dict[str, Any], data: bytes, arrays: list[Any], face: Any) -> Any:
        """The object for a pickle; `face` is its plain form or None. Raises CannotCross."""

    def open_handle(self, fields: dict[str, Any]) -> Any:
        """The object for a handle. Raises CannotCross."""

    def open_coded(self, name: str, payload: Any) -> Any:
        """The object for a codec's payload. Raises CannotCross."""


def decode(
    message: dict[str, Any], body: bytes, memory: Memory, opener: Opener, root: str = ""
) -> Any:
    """Decodes the value of a message and counts the message's files. Raises CannotCross."""
    files = message.get("files")
    deliveries: list[Delivery] = []
    if files:
        if not isinstance(files, list):
            raise CannotCross("the message's list of files is not a list")
        deliveries = memory.mappings.receive(files)
    try:
        return _decode(message.get("body_file"), body, deliveries, opener)
    except CannotCross as error:
        if root:
            error.path.append(root)
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise CannotCross(
            f"a body that can not be read: {type(error).__name__}: {error}"
        ) from error


def discard(message: dict[str, Any], memory: Memory) -> None:
    """Counts and lets go of the files of a message whose body nobody wants."""
    files = message.get("files")
    if isinstance(files, list) and files:
        try:
            memory.mappings.receive(files)
        except CannotCross:
            pass  # reported as released all the same


def read_body(message: dict[str, Any], body: bytes, memory: Memory) -> bytes:
    """A message's body as bytes, wherever it lies. Counts its files. Raises CannotCross."""
    files = message.get("files")
    if not files:
        return body
    if not isinstance(files, list):
        raise CannotCross("the message's list of files is not a list")
    deliveries = memory.mappings.receive(files)
    try:
        place = message.get("body_file")
        return _body_from_file(place, deliveries) if place else body
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CannotCross(
            f"a body that can not be read: {type(error).__name__}: {error}"
        ) from error


def read_envelope(message: dict[str, Any], body: bytes, memory: Memory) -> Any:
    """The JSON of a body that is JSON alone (values.envelope). Counts the message's files. Raises
    CannotCross.
    """
    body = read_body(message, body, memory)
    try:
        return json.loads(_envelope(body)[0])
    except (ValueError, RecursionError) as error:
        raise CannotCross(f"a body that is not JSON: {error}") from error


def _envelope(body: bytes) -> tuple[bytes, int]:
    """The JSON of a body, and where its blob begins."""
    if len(body) < 4:
        raise CannotCross("a body without its length")
    (length,) = _LENGTH.unpack_from(body)
    if length > len(body) - 4:
        raise CannotCross(f"a body of {len(body)} bytes that claims {length} of JSON")
    return body[4 : 4 + length], 4 + length


def _body_from_file(place: Any, deliveries: list[Delivery]) -> bytes:
    mapping = deliveries[_index(place["index"], len(deliveries))].mapping
    offset, length = _range(place["offset"], place["length"], len(mapping))
    return mapping[offset : offset + length]


def _decode(place: Any, body: bytes, deliveries: list[Delivery], opener: Opener) -> Any:
    if place is not None:
        body = _body_from_file(place, deliveries)
    text, blob = _envelope(body)
    envelope = _decode_json(str(text, "utf-8"))
    if type(envelope) is not dict or "v" not in envelope:
        raise CannotCross("a body whose JSON has no value")
    value = envelope["v"]
    if type(value) not in _CONTAINERS:
        return value
    return Decoder(body, blob, envelope.get("s"), deliveries, opener).value(value)


def _index(number: Any, count: int) -> int:
    if type(number) is not int or not 0 <= number < count:
        raise CannotCross(f"an index {number!r} where there are {count}")
    return number


def _range(offset: Any, length: Any, size: int) -> tuple[int, int]:
    if (
        type(offset) is not int
        or type(length) is not int
        or offset < 0
        or length < 0
        or offset + length > size
    ):
        raise CannotCross(f"bytes at {offset!r}, {length!r} of them, where there are {size}")
    return offset, length


class Decoder:
    """Rebuilds one value."""

    def __init__(
        self, body: bytes, blob: int, storages: Any, deliveries: list[Delivery], opener: Opener
    ) -> None:
        """The blob begins at byte `blob` of the body."""
        self._body = body
        self._blob = blob
        self._trees = storages if type(storages) is list else []
        self._storages: dict[int, Storage] = {}
        self._deliveries = deliveries
        self._opener = opener
        self._objects: list[Any] = []

    def value(self, tree: Any) -> Any:
        """The value of a tree."""
        kind = type(tree)
        if kind is list:
            return self._list(tree)
        if kind is not dict:
            return tree
        if len(tree) != 1:
            raise CannotCross(f"a JSON object with {len(tree)} tags")
        for tag, content in tree.items():
            decode_tag = _DECODERS.get(tag)
            if decode_tag is None:
                raise CannotCross(
                    f"an unknown tag {tag[:20]!r}: a newer version may have sent this"
                )
            return decode_tag(self, content)

    def slot(self) -> int:
        """Numbers the next object, before what is inside it."""
        self._objects.append(_UNFINISHED)
        return len(self._objects) - 1

    def items(self, trees: Any) -> list[Any]:
        """The values of a list of trees; the list itself where there is nothing to rebuild."""
        if type(trees) is not list:
            raise CannotCross("a sequence that is not a JSON list")
        if _CONTAINERS.isdisjoint(map(type, trees)):
            return trees
        values: list[Any] = []
        value = self.value
        try:
            for tree in trees:
                values.append(value(tree))
        except CannotCross as error:
            error.path.append(f"[{len(values)}]")
            raise
        return values

    def _list(self, trees: list[Any]) -> list[Any]:
        slot = self.slot()
        result = self._objects[slot] = self.items(trees)
        return result

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        slot = self.slot()
        result = self._objects[slot] = tuple(self.items(content))
        return result

    def _map(self, content: Any) -> dict[str, Any]:
        slot = self.slot()
        if type(content) is not dict:
            raise CannotCross("a dict that is not a JSON object")
        if _CONTAINERS.isdisjoint(map(type, content.values())):
            result = content
        else:
            value = self.value
            result = {}
            try:
                for key, tree in content.items():
                    result[key] = value(tree)
            except CannotCross as error:
                error.path.append(f"[{key[:60]!r}]")
                raise
        self._objects[slot] = result
        return result

    def _pairs(self, content: Any) -> dict[Any, Any]:
        slot = self.slot()
        value = self.value
        result = {value(key): value(item) for key, item in content}
        self._objects[slot] = result
        return result

    def _set(self, content: Any) -> set[Any]:
        slot = self.slot()
        result = self._objects[slot] = set(self.items(content))
        return result

    def _frozenset(self, content: Any) -> frozenset[Any]:
        slot = self.slot()
        result = self._objects[slot] = frozenset(self.items(content))
        return result

    def data(self, place: Any) -> bytes:
        """Bytes, copied out of the blob or a storage."""
        if type(place) is dict:
            storage = self.storage(place["s"])
            return bytes(
                memoryview(storage.buffer)[storage.offset : storage.offset + storage.length]
            )
        offset, length = place
        offset, length = _range(offset, length, len(self._body) - self._blob)
        return self._body[self._blob + offset : self._blob + offset + length]

    def _bytes(self, content: Any) -> bytes:
        slot = self.slot()
        result = self._objects[slot] = self.data(content)
        return result

    def _bytearray(self, content: Any) -> bytearray:
        slot = self.slot()
        result = self._objects[slot] = bytearray(self.data(content))
        return result

    def storage(self, number: Any) -> Storage:
        """The storage of an index, made when first asked for."""
        number = _index(number, len(self._trees))
        storage = self._storages.get(number)
        if storage is None:
            tree = self._trees[number]
            if "i" in tree:
                offset, length = tree["i"]
                offset, length = _range(offset, length, len(self._body) - self._blob)
                start = self._blob + offset
                storage = Storage(bytearray(self._body[start : start + length]), 0, length)
            else:
                index, offset, length = tree["f"]
                delivery = self._deliveries[_index(index, len(self._deliveries))]
                offset, length = _range(offset, length, len(delivery.mapping))
                storage = Storage(delivery.mapping, offset, length, delivery.locate)
            self._storages[number] = storage
        return storage

    def _array(self, content: Any) -> Any:
        slot = self.slot()
        if type(content) is not dict:
            raise CannotCross("an array that is not a JSON object")
        storage = _EMPTY if content["x"] == -1 else self.storage(content["x"])
        if content["k"] == "numpy":
            result = storage.numpy_array(content)
        elif content["k"] == "torch":
            result = storage.torch_tensor(content, self._opener.devices)
        else:
            raise CannotCross(f"an array of kind {str(content['k'])[:20]!r}")
        self._objects[slot] = result
        return result

    def _scalar(self, content: Any) -> Any:
        numpy = _module("numpy")
        name, digits = content
        dtype = plain_dtype(numpy, name)
        if not dtype.itemsize:
            return dtype.type()
        return numpy.frombuffer(bytes.fromhex(digits), dtype)[0]

    def _again(self, content: Any) -> Any:
        result = self._objects[_index(content, len(self._objects))]
        if result is _UNFINISHED:
            raise CannotCross("a value that contains itself")
        return result

    def _opaque(self, content: Any) -> Any:
        slot = self.slot()
        if type(content) is not dict:
            raise CannotCross("a pickle that is not a JSON object")
        arrays = self.items(content.get("a", []))
        face = self.value(content["p"]) if "p" in content else None
        data = self.data(content["b"])
        result = self._opener.open_opaque(content, data, arrays, face)
        self._objects[slot] = result
        return result

    def _handle(self, content: Any) -> Any:
        slot = self.slot()
        if type(content) is not dict:
            raise CannotCross("a handle that is not a JSON object")
        result = self._objects[slot] = self._opener.open_handle(content)
        return result

    def _coded(self, content: Any) -> Any:
        slot = self.slot()
        name, payload = content
        if type(name) is not str:
            raise CannotCross("a codec whose name is not text")
        result = self._objects[slot] = self._opener.open_coded(name, self.value(payload))
        return result

    def _int(self, content: Any) -> int:
        return int(content, 16)

    def _str(self, content: Any) -> str:
        return bytes.fromhex(content).decode("utf-8", "surrogatepass")

    def _complex(self, content: Any) -> complex:
        real, imaginary = content
        return complex(real, imaginary)

    def _slice(self, content: Any) -> slice:
        start, stop, step = content
        return slice(self.value(start), self.value(stop), self.value(step))

    def _range(self, content: Any) -> range:
        start, stop, step = content
        return range(self.value(start), self.value(stop), self.value(step))

    def _ellipsis(self, content: Any) -> Any:
        return ...


_UNFINISHED = object()
_EMPTY = Storage(bytearray(), 0, 0)
_DECODERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "m": Decoder._map,
    "t": Decoder._tuple,
    "d": Decoder._pairs,
    "S": Decoder._set,
    "F": Decoder._frozenset,
    "b": Decoder._bytes,
    "B": Decoder._bytearray,
    "a": Decoder._array,
    "n": Decoder._scalar,
    "r": Decoder._again,
    "o": Decoder._opaque,
    "h": Decoder._handle,
    "k": Decoder._coded,
    "i": Decoder._int,
    "u": Decoder._str,
    "c": Decoder._complex,
    "l": Decoder._slice,
    "g": Decoder._range,
    "e": Decoder._ellipsis,
}
