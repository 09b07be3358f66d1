"""The "json" encoding, for callers that are not Python: values as a person would write them in
JSON.

Going in, a JSON object of inputs. Coming out, tuples are lists, and what JSON lacks is an object
with one key: $float, $int, $bytes (base64), $complex, $array ({dtype, shape, file, offset, length}
or base64), $dict (pairs), $repr.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from typing import Any

from . import arrays
from .errors import CannotCross
from .memory import Memory
from .segments import INLINE_BYTES, Layout, Raw
from .values import MAX_DEPTH, Encoded

_SAFE_INT = 1 << 53  # readers of JSON that use doubles are exact up to here


def decode_inputs(body: bytes) -> dict[str, Any]:
    """The inputs of a call. Raises CannotCross."""
    try:
        inputs = json.loads(body or b"{}")
        if type(inputs) is not dict:
            raise CannotCross("inputs have to be a JSON object")
        return {name: _revive(value) for name, value in inputs.items()}
    except CannotCross:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CannotCross(f"inputs that are not JSON: {error}") from error


def _revive(value: Any) -> Any:
    if type(value) is list:
        return [_revive(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "$float":
            return float(content)
        if tag == "$int":
            return int(content, 16)
        if tag == "$bytes":
            return base64.b64decode(content, validate=True)
        if tag == "$complex":
            return complex(*content)
        if tag == "$array":
            return _revive_array(content)
        if tag == "$dict":
            return {_revive(key): _revive(item) for key, item in content}
    return {key: _revive(item) for key, item in value.items()}


def _revive_array(content: dict[str, Any]) -> Any:
    data = bytearray(base64.b64decode(content["base64"], validate=True))
    shape, name = content["shape"], content["dtype"]
    tree: dict[str, Any] = {"s": shape, "o": 0, "d": name}
    torch = content.get("torch")
    item = len(data) // max(1, math.prod(shape))
    strides, step = [], item
    for size in reversed(shape):
        strides.append(step)
        step *= size
    tree["t"] = strides[::-1]
    storage = arrays.Storage(data, 0, len(data))
    return storage.torch_tensor(tree, False) if torch else storage.numpy_array(tree)


def encode_result(value: Any, memory: Memory) -> Encoded:
    """Encodes a result. Raises CannotCross; then no memory file is left taken."""
    plain = _Plain(memory)
    try:
        tree = plain.tree(value, 0)
        plain.finish()
        text = json.dumps(
            tree, allow_nan=False, check_circular=False, separators=(",", ":")
        ).encode()
        return Encoded(text, plain.layout)
    except BaseException as error:
        plain.layout.withdraw()
        if isinstance(error, CannotCross):
            error.path.append("result")
        elif isinstance(error, RecursionError):
            raise CannotCross("a value nested too deeply for what is left of the stack") from None
        raise


class _Packed(Raw):
    """An array that is written in C order."""

    __slots__ = ("source",)

    def __init__(self, source: arrays.Source, size: int) -> None:
        self.data = source
        self.size = size

    def write(self, target: memoryview) -> None:
        arrays.copy_packed(self.data, target)


class _Plain:
    """Walks one result."""

    def __init__(self, memory: Memory) -> None:
        self.layout = Layout(memory)
        self._pending: list[tuple[dict[str, Any], int]] = []
        self._open: set[int] = set()

    def tree(self, value: Any, depth: int) -> Any:
        """The JSON form of a value."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            number = int.__int__(value)
            return number if -_SAFE_INT <= number <= _SAFE_INT else {"$int": hex(number)}
        if isinstance(value, float):
            real = float.__float__(value)
            return real if math.isfinite(real) else {"$float": repr(real)}
        if isinstance(value, (bytes, bytearray)):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, complex):
            return {"$complex": [self.tree(value.real, depth), self.tree(value.imag, depth)]}
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return self._container(value, depth)
        return self._other(value)

    def _container(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise CannotCross(f"a value nested more than {MAX_DEPTH} levels deep can not cross")
        if id(value) in self._open:
            raise CannotCross(
                f"this {type(value).__name__} contains itself: cyclic values can not cross"
            )
        self._open.add(id(value))
        place = ""
        try:
            if not isinstance(value, dict):
                trees: list[Any] = []
                for item in value:
                    place = f"[{len(trees)}]"
                    trees.append(self.tree(item, depth + 1))
                return trees
            if all(isinstance(key, str) for key in value):
                result = {}
                for key, item in value.items():
                    place = f"[{key[:60]!r}]"
                    result[str.__str__(key)] = self.tree(item, depth + 1)
                return result
            return {
                "$dict": [
                    [self.tree(key, depth + 1), self.tree(value[key], depth + 1)] for key in value
                ]
            }
        except CannotCross as error:
            error.path.append(place)
            raise
        finally:
            self._open.discard(id(value))

    def _other(self, value: Any) -> Any:
        numpy: Any = sys.modules.get("numpy")
        torch: Any = sys.modules.get("torch")
        if (
            numpy is not None
            and isinstance(value, getattr(numpy, "generic", ()))
            and not value.dtype.hasobject
        ):
            if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
                return self.tree(value.item(), 0)
            value = numpy.asarray(value)
        if numpy is not None and isinstance(value, getattr(numpy, "ndarray", ())):
            return self._array(arrays.numpy_source(numpy.asarray(value)))
        if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
            return self._array(arrays.torch_source(value))
        kind = type(value)
        try:
            text = repr(value)
        except Exception as error:
            text = f"<{kind.__qualname__}, whose repr raises {type(error).__name__}>"
        return {"$repr": text[:4096], "$type": f"{kind.__module__}.{kind.__qualname__}"}

    def _array(self, source: arrays.Source) -> Any:
        size = source.item_bytes * math.prod(source.tree["s"])
        content = {
            "kind": source.tree["k"],
            "dtype": source.tree["d"],
            "shape": source.tree["s"],
            "length": size,
        }
        if size <= INLINE_BYTES:
            data = bytearray(size)
            if size:
                arrays.copy_packed(source, memoryview(data))
            content.update(file=None, offset=0, base64=base64.b64encode(data).decode())
        else:
            self._pending.append((content, self.layout.add(_Packed(source, size))))
        return {"$array": content}

    def finish(self) -> None:
        """Writes the files and completes what refers to them."""
        self.layout.write(bytearray())  # nothing here is short enough to be inline
        for content, index in self._pending:
            file, offset, _ = self.layout.storages[index]["f"]
            content.update(file=file, offset=offset)
