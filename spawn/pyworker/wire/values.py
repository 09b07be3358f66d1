"""Encoding values into a frame's body.

A body is a little-endian length, that many bytes of JSON, and a blob. The JSON is {"v": value, "s":
storages}. In a value, None, bool, int, float, str and list are themselves; every JSON object has
one key, a tag:

    m  dict with str keys          d  any other dict, as pairs      t  tuple
    S  set                         F  frozenset
    b  bytes                       B  bytearray
    i  a long int, hexadecimal     u  str with surrogates, hexadecimal
    c  complex                     l  slice                         g  range      e  Ellipsis
    a  array or tensor             n  numpy scalar                  r  the n-th object again
    o  a pickle, not opened        h  a handle     k  a class's codec and its payload (see codecs)

Lists and the tags m d t S F b B a o h k are numbered in the order they are met, for "r". A storage
is {"i": [offset, length]} in the blob or {"f": [file, offset, length]}.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, Callable, Protocol

from . import arrays
from .channel import Channel
from .errors import CannotCross, ChannelGone
from .frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from .memory import Memory
from .segments import INLINE_BYTES, Layout

MAX_DEPTH = 100  # levels of nesting; a few frames of Python's stack are needed for each
_LONG_INT_BITS = 12000  # 3,612 digits; Python reads at most 4,300 from text
_MAX_BODY_BYTES = MAX_FRAME_BYTES - MAX_HEADER_BYTES  # a longer one goes into a memory file

_PLAIN = frozenset((type(None), bool, int, float, str))
_encode_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_LENGTH = struct.Struct("<I")


class Role(Protocol):
    """What differs between the sides: everything that is not plain data."""

    def encode_other(self, value: Any, encoder: Encoder) -> dict[str, Any]:
        """The tree of any other object, with one tag of o, h or k. Raises CannotCross."""


class Encoded:
    """A body ready to be sent, and the memory files it refers to."""

    __slots__ = ("body", "fields", "layout")

    def __init__(self, body: bytes, layout: Layout | None) -> None:
        self.body = body
        self.fields: dict[str, Any] = {}  # of the message: files, body_file
        self.layout = layout
        if layout is not None:
            if len(body) > _MAX_BODY_BYTES:
                self.fields["body_file"] = layout.write_body(body)
                self.body = b""
            if layout.files:
                self.fields["files"] = layout.files

    def lend(self, channel: Channel | None = None) -> None:
        """To be called right before the message is sent. Raises ChannelGone if the channel that may
        be replaced has ended: then nothing is lent.
        """
        layout = self.layout
        if layout is None:
            return
        if channel is None:
            layout.lend()
            return
        try:
            channel.while_alive(layout.lend)
        except ChannelGone:
            layout.withdraw()
            raise

    def withdraw(self) -> None:
        """To be called when the message will not be sent, and has not been lent."""
        if self.layout is not None:
            self.layout.withdraw()

    def recall(self) -> None:
        """To be called when the message was not sent after all."""
        if self.layout is not None:
            self.layout.recall()


def encode(value: Any, memory: Memory, role: Role, root: str = "") -> Encoded:
    """Encodes a value. `root` names it in errors. Raises CannotCross; then no memory file is left
    taken.
    """
    encoder = Encoder(memory, role)
    try:
        tree = encoder.tree(value)
    except CannotCross as error:
        if root:
            error.path.append(root)
        raise
    except RecursionError:
        raise CannotCross("a value nested too deeply for what is left of the stack") from None
    if encoder.layout is None and not encoder.sources:
        text = _encode_json({"v": tree}).encode()
        body = b"".join((_LENGTH.pack(len(text)), text, encoder.blob))
        if len(body) <= _MAX_BODY_BYTES:
            return Encoded(body, None)
    layout = encoder.layout or Layout(memory)
    try:
        layout.add_arrays(encoder.sources)
        layout.write(encoder.blob)
        text = _encode_json({"v": tree, "s": layout.storages}).encode()
        layout.keep.append(encoder)
        return Encoded(b"".join((_LENGTH.pack(len(text)), text, encoder.blob)), layout)
    except BaseException as error:
        layout.withdraw()
        if isinstance(error, CannotCross) and root:
            error.path.append(root)
        raise


def envelope(text: str, memory: Memory) -> Encoded:
    """A body that is JSON alone, with its length first like every body. Raises CannotCross."""
    encoded = text.encode()
    return Encoded(_LENGTH.pack(len(encoded)) + encoded, Layout(memory))


class Encoder:
    """Walks one value."""

    def __init__(self, memory: Memory, role: Role) -> None:
        self.blob = bytearray()
        self.layout: Layout | None = None
        self.sources: list[arrays.Source] = []
        self.alive: list[Any] = []  # temporary objects, so that no id is used twice
        self._memory = memory
        self.role = role
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()

    def tree(self, value: Any) -> Any:
        """The JSON form of a value. Raises CannotCross with the path to what can not cross."""
        kind = type(value)
        encode_kind = _ENCODERS.get(kind)
        if encode_kind is not None:
            return encode_kind(self, value)
        return _encode_rest(self, value, kind)

    def number(self, value: Any) -> int | None:
        """Numbers an object; returns its number if it has one already. Raises CannotCross for a
        cycle.
        """
        key = id(value)
        numbers = self._numbers
        number = numbers.get(key)
        if number is None:
            numbers[key] = len(numbers)
            return None
        if key in self._open:
            raise CannotCross(
                f"this {type(value).__name__} contains itself: cyclic values can not cross"
            )
        return number

    def enter(self, value: Any) -> None:
        """Begins the inside of a container."""
        self._open.add(id(value))
        if len(self._open) > MAX_DEPTH:
            raise CannotCross(f"a value nested more than {MAX_DEPTH} levels deep can not cross")

    def leave(self, value: Any) -> None:
        """Ends the inside of a container."""
        self._open.discard(id(value))

    def data(self, value: Any) -> Any:
        """The place of bytes: in the blob, or in a storage."""
        size = len(value)
        if size <= INLINE_BYTES and len(self.blob) + size <= MAX_FRAME_BYTES // 4:
            start = len(self.blob)
            self.blob += value
            return [start, size]
        if self.layout is None:
            self.layout = Layout(self._memory)
        return {"s": self.layout.add_raw(value)}

    def array(self, source: arrays.Source) -> dict[str, Any]:
        """Registers an array; its storage is decided when all are known."""
        self.sources.append(source)
        return {"a": source.tree}

    def items(self, values: Any) -> list[Any]:
        """The trees of a sequence's elements."""
        kinds = set(map(type, values))
        if kinds <= _PLAIN and _all_simple(values, kinds):
            return list(values)
        trees: list[Any] = []
        tree = self.tree
        try:
            for value in values:
                trees.append(tree(value))
        except CannotCross as error:
            error.path.append(f"[{len(trees)}]")
            raise
        return trees


def _all_simple(values: Any, kinds: set[type]) -> bool:
    """Whether plain values need no tag: no long ints, no surrogates."""
    if int in kinds:
        if len(kinds) > 1:
            values_int = [value for value in values if type(value) is int]
        else:
            values_int = values
        if max(map(int.bit_length, values_int)) > _LONG_INT_BITS:
            return False
    if str in kinds:
        text = "".join(
            values if len(kinds) == 1 else [value for value in values if type(value) is str]
        )
        return text.isascii() or not _has_surrogates(text)
    return True


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _encode_plain(encoder: Encoder, value: Any) -> Any:
    return value


def _encode_int(encoder: Encoder, value: int) -> Any:
    return value if value.bit_length() <= _LONG_INT_BITS else {"i": hex(value)}


def _encode_str(encoder: Encoder, value: str) -> Any:
    if value.isascii() or not _has_surrogates(value):
        return value
    # JSON would join a high and a low surrogate into one character.
    return {"u": value.encode("utf-8", "surrogatepass").hex()}


def _encode_list(encoder: Encoder, value: list[Any]) -> Any:
    number = encoder.number(value)
    if number is not None:
        return {"r": number}
    encoder.enter(value)
    trees = encoder.items(value)
    encoder.leave(value)
    return trees


def _encode_tuple(encoder: Encoder, value: tuple[Any, ...]) -> Any:
    number = encoder.number(value)
    if number is not None:
        return {"r": number}
    encoder.enter(value)
    trees = encoder.items(value)
    encoder.leave(value)
    return {"t": trees}


def _encode_dict(encoder: Encoder, value: dict[Any, Any]) -> Any:
    number = encoder.number(value)
    if number is not None:
        return {"r": number}
    if not value:
        return {"m": {}}
    encoder.enter(value)
    try:
        if set(map(type, value)) == {str} and _all_simple(value, {str}):
            kinds = set(map(type, value.values()))
            if kinds <= _PLAIN and _all_simple(value.values(), kinds):
                return {"m": value}
            trees: dict[str, Any] = {}
            tree = encoder.tree
            for key, item in value.items():
                trees[key] = tree(item)
            return {"m": trees}
        pairs: list[Any] = []
        for key, item in value.items():
            pairs.append([encoder.tree(key), encoder.tree(item)])
        return {"d": pairs}
    except CannotCross as error:
        error.path.append(f"[{_brief(key)}]")
        raise
    finally:
        encoder.leave(value)


def _brief(key: Any) -> str:
    plain = type(key) in _PLAIN and not (type(key) is int and key.bit_length() > 200)
    text = repr(key) if plain else f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def _encode_set(encoder: Encoder, value: Any) -> Any:
    number = encoder.number(value)
    if number is not None:
        return {"r": number}
    encoder.enter(value)
    trees = encoder.items(value)
    encoder.leave(value)
    return {"S" if type(value) is set else "F": trees}


def _encode_bytes(encoder: Encoder, value: bytes) -> Any:
    number = encoder.number(value)
    return {"b": encoder.data(value)} if number is None else {"r": number}


def _encode_bytearray(encoder: Encoder, value: bytearray) -> Any:
    number = encoder.number(value)
    return {"B": encoder.data(value)} if number is None else {"r": number}


def _encode_complex(encoder: Encoder, value: complex) -> Any:
    return {"c": [value.real, value.imag]}


def _encode_slice(encoder: Encoder, value: slice) -> Any:
    return {"l": [encoder.tree(value.start), encoder.tree(value.stop), encoder.tree(value.step)]}


def _encode_range(encoder: Encoder, value: range) -> Any:
    return {"g": [encoder.tree(value.start), encoder.tree(value.stop), encoder.tree(value.step)]}


def _encode_ellipsis(encoder: Encoder, value: Any) -> Any:
    return {"e": "..."}


_ENCODERS: dict[type, Callable[[Encoder, Any], Any]] = {
    type(None): _encode_plain,
    bool: _encode_plain,
    float: _encode_plain,
    int: _encode_int,
    str: _encode_str,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    set: _encode_set,
    frozenset: _encode_set,
    bytes: _encode_bytes,
    bytearray: _encode_bytearray,
    complex: _encode_complex,
    slice: _encode_slice,
    range: _encode_range,
    type(...): _encode_ellipsis,
}


def _encode_rest(encoder: Encoder, value: Any, kind: type) -> Any:
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if torch is not None and (kind is getattr(torch, "Tensor", None) or _is_parameter(kind, torch)):
        number = encoder.number(value)
        return encoder.array(arrays.torch_source(value)) if number is None else {"r": number}
    if numpy is not None and hasattr(numpy, "ndarray"):
        if kind is numpy.ndarray or kind is numpy.memmap:
            number = encoder.number(value)
            return encoder.array(arrays.numpy_source(value)) if number is None else {"r": number}
        if (
            isinstance(value, numpy.generic)
            and kind.__module__ == "numpy"
            and not value.dtype.hasobject
        ):
            if value.dtype.names is None:
                return {"n": [value.dtype.str, value.tobytes().hex()]}
    number = encoder.number(value)
    if number is not None:
        return {"r": number}
    encoder.enter(value)
    try:
        return encoder.role.encode_other(value, encoder)
    finally:
        encoder.leave(value)


def _is_parameter(kind: type, torch: Any) -> bool:
    return kind.__name__ == "Parameter" and kind is getattr(
        getattr(torch, "nn", None), "Parameter", None
    )
