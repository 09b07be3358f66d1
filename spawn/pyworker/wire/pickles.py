"""Pickling what has no form of its own on the wire. Nothing here, or in a host, unpickles."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, Callable

from .opaque import FACES, Opaque
from .values import Encoder

_WORTH_BYTES = 64 << 10  # numpy arrays from this size on travel beside the pickle


class _Pickler(pickle.Pickler):
    """Leaves plain tensors and long plain arrays out of the pickle: they travel in memory files."""

    def __init__(self, file: io.BytesIO, check: Callable[[Any], None] | None) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[Any] = []
        self._known: dict[int, int] = {}
        self._check = check
        torch = sys.modules.get("torch")
        numpy = sys.modules.get("numpy")
        self._tensor = getattr(torch, "Tensor", None)
        self._strided = getattr(torch, "strided", None)
        self._ndarray = getattr(numpy, "ndarray", None)

    def persistent_id(self, obj: Any) -> Any:
        """The number of an array that travels beside the pickle; None for everything else."""
        kind = type(obj)
        if kind is self._ndarray:
            dtype = obj.dtype
            if obj.nbytes < _WORTH_BYTES or dtype.kind not in "biufcmM":
                return None
        elif kind is self._tensor:
            if obj.layout is not self._strided or obj.is_quantized or obj.device.type == "meta":
                return None
        else:
            if self._check is not None:
                self._check(obj)
            return None
        number = self._known.get(id(obj))
        if number is None:
            number = self._known[id(obj)] = len(self.arrays)
            self.arrays.append(obj)
        return number


def dump(
    value: Any, environment: str, encoder: Encoder, check: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """The tree of an object as a pickle. Raises what pickling raises; `check` may refuse any object
    inside.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, check)
    pickler.dump(value)
    kind = type(value)
    opaque = Opaque(
        f"{kind.__module__}.{kind.__qualname__}", environment, file.getvalue(), pickler.arrays
    )
    encoder.alive.append(opaque)
    return tree(opaque, face_of(value), encoder)


def tree(opaque: Opaque, face: Any, encoder: Encoder) -> dict[str, Any]:
    """The tree of a pickle; `face` is its plain form or None."""
    fields: dict[str, Any] = {"t": opaque.type_name, "e": opaque.environment}
    if opaque.arrays:
        fields["a"] = encoder.items(opaque.arrays)
    if face is not None:
        encoder.alive.append(face)
        fields["p"] = encoder.tree(face)
    fields["b"] = encoder.data(opaque.data)
    return {"o": fields}


def passed_on(value: Any, encoder: Encoder) -> dict[str, Any] | None:
    """The tree of something opaque that only passes through here, unchanged; None for anything
    else.
    """
    if type(value) is Opaque:
        return tree(value, None, encoder)
    if type(value) in _FACE_TYPES:
        return tree(value.opaque, face_of(value), encoder)
    return None


def face_of(value: Any) -> Any:
    """The plain form of an instance of a subclass of an immutable builtin; None for others."""
    for base, plain in _PLAIN_FORMS.items():
        if isinstance(value, base):
            return plain(value)
    return None


def faced(opaque: Opaque, face: Any) -> Any:
    """What a place that can not open a pickle shows: its plain form where it has one, else the
    Opaque itself.
    """
    kind = FACES.get(type(face))
    if kind is None:
        return opaque
    result = kind(face)
    result.opaque = opaque
    return result


_FACE_TYPES = frozenset(FACES.values())
_PLAIN_FORMS: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
}
