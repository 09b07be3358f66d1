"""What crosses opaquely, seen from a worker: pickles of its own environment are opened, live
objects become handles.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

from .wire.codecs import Codecs
from .wire.errors import CannotCross
from .wire.opaque import Handle, Opaque
from .wire.values import Encoder

HOST = "host"  # the environment of what a host has pickled

# Classes whose instances never cross as copies, by module and name, as their subclasses see them in
# __mro__.
_MODELS = frozenset(
    (
        ("torch.nn.modules.module", "Module"),
        ("comfy.model_patcher", "ModelPatcher"),
        ("comfy.sd", "CLIP"),
        ("comfy.sd", "VAE"),
        ("comfy.controlnet", "ControlBase"),
    )
)


class _HoldsModel(Exception):
    """Pickling came upon a model."""


class WorkerRole:
    """The table of the objects that others hold handles of, and the rules for pickles."""

    devices = True

    def __init__(self) -> None:
        self.environment = ""  # whose pickles are opened here
        self.name = ""  # of the environment, for people
        self.generation = 0
        self.worker = ""
        self.codecs = Codecs()
        # What a host of several packs needs: objects of other processes pass through, and ours are
        # weighed.
        self.guest: Callable[[dict[str, Any], str], Any] | None = None
        self.weigh: Callable[[Any], int] | None = None
        self._lock = threading.Lock()
        self._next = 0
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # id(object) -> handle
        self._sent: dict[int, int] = {}  # handle -> times it was sent and not dropped

    def encode_other(self, value: Any, encoder: Encoder) -> dict[str, Any]:
        """By its codec, else a pickle where that is possible and right, else a handle."""
        from .wire import pickles

        if isinstance(value, Handle):
            return {"h": value.fields()}
        passed = pickles.passed_on(value, encoder) or self.codecs.tree(value, encoder)
        if passed is not None:
            return passed
        if not _is_model(type(value)):
            try:
                return pickles.dump(value, self.environment, encoder, _refuse_models)
            except CannotCross:
                raise
            except Exception:
                pass  # it does not pickle: whatever a __reduce__ raises, the object stays here
        return {"h": self._handle(value)}

    def _handle(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        with self._lock:
            number = self._numbers.get(id(value))
            if number is None:
                self._next += 1
                number = self._next
                self._objects[number] = value
                self._numbers[id(value)] = number
            self._sent[number] = self._sent.get(number, 0) + 1
        name = f"{kind.__module__}.{kind.__qualname__}"
        fields = Handle(number, name, self.name, self.generation, self.worker).fields()
        weight = self.weigh(value) if self.weigh is not None else 0
        return {**fields, "weight": weight} if weight else fields

    def drop(self, entries: Any) -> None:
        """Handles `handle.drop`: entries are handle ids, or {id, count} of how often each is no
        longer held.
        """
        doomed = []  # deleted outside the lock: a pack's __del__ may run
        with self._lock:
            for entry in entries if isinstance(entries, list) else ():
                number, count = (
                    (entry.get("id"), entry.get("count"))
                    if isinstance(entry, dict)
                    else (entry, None)
                )
                if number in self._objects:
                    left = self._sent[number] - count if isinstance(count, int) else 0
                    self._sent[number] = left
                    if left <= 0:
                        value = self._objects.pop(number)
                        del self._numbers[id(value)], self._sent[number]
                        doomed.append(value)

    def held(self) -> int:
        """How many objects others hold handles of."""
        return len(self._objects)

    def open_handle(self, fields: dict[str, Any]) -> Any:
        """The object of a handle of ours. Raises CannotCross for anybody else's."""
        kind, name = str(fields.get("type")), str(fields.get("environment"))
        if fields.get("worker") == self.worker:
            with self._lock:
                if fields.get("id") in self._objects:
                    return self._objects[fields["id"]]
            raise CannotCross(
                f"the {kind} is no longer kept by its worker: run the node that made it again"
            )
        if name == self.name:
            raise CannotCross(
                f"the {kind} was made by generation {fields.get('generation')} of environment"
                f" {name!r}, which is gone (this is generation {self.generation}): run its loader"
                " again"
            )
        if self.guest is not None:
            return self.guest(fields, self.name)
        raise CannotCross(
            f"the {kind} lives in the worker of environment {name!r} and can not be used in"
            f" environment {self.name!r}: use it with nodes of {name!r}"
        )

    def open_coded(self, name: str, payload: Any) -> Any:
        """What a codec makes of a payload; without that codec it passes through."""
        return self.codecs.decode(name, payload)

    def open_opaque(self, fields: dict[str, Any], data: bytes, arrays: list[Any], face: Any) -> Any:
        """Unpickles what this environment or the host has pickled; anything else passes through."""
        kind, environment = str(fields.get("t")), str(fields.get("e"))
        if environment not in (self.environment, HOST) or not self.environment:
            from .wire import pickles

            return pickles.faced(Opaque(kind, environment, data, arrays), face)
        try:
            from .unpickling import load

            return load(data, arrays)
        except Exception as error:
            if face is not None:
                return (
                    face  # a host's own subclass of str, say, that this environment does not have
                )
            raise CannotCross(
                f"a {kind} can not be opened here: {type(error).__name__}: {error}"
            ) from error


def _is_model(kind: type) -> bool:
    return any((base.__module__, base.__qualname__) in _MODELS for base in kind.__mro__)


def _refuse_models(value: Any) -> None:
    if not isinstance(value, type) and _is_model(type(value)):
        raise _HoldsModel
