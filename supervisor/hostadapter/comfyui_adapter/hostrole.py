"""What crosses between a ComfyUI host and its workers beyond plain data.

Core classes cross by their codecs. A model of the host never crosses as a copy: the worker gets a handle, gives it back
when its node passes the model on, and says whose it is when the node looks into it. What a worker keeps is a handle here,
a tuple whose tensor weighs what the object holds, for ComfyUI's cache counts tensors inside tuples.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Callable

from comfy_supervisor.role import HOST, HostRole
from comfy_supervisor.wire import pickles
from comfy_supervisor.wire.errors import CannotCross
from comfy_supervisor.wire.opaque import Handle
from comfy_supervisor.wire.values import Encoder
from .serializers import codecs
from .shapes import PickyString

# Classes whose objects stay here, as their subclasses see them in __mro__.
_MODELS = frozenset(
    (
        ("torch.nn.modules.module", "Module"),
        ("comfy.model_patcher", "ModelPatcher"),
        ("comfy.sd", "CLIP"),
        ("comfy.sd", "VAE"),
        ("comfy.controlnet", "ControlBase"),
    )
)


class Held(tuple):
    """A handle of a worker's object, as ComfyUI's caches and nodes see it."""

    handle: Handle

    def __new__(cls, handle: Handle, weight: int = 0) -> Held:
        """`weight` is what the object holds, in bytes."""
        made = super().__new__(cls, _weigh(weight))
        made.handle = handle
        return made

    def __getattr__(self, name: str) -> Any:
        handle = self.__dict__.get("handle")
        if handle is None:
            raise AttributeError(name)
        raise AttributeError(
            f"this {short(handle.type_name)} lives in the worker of environment {handle.environment!r} and can not be used"
            f" outside of it (asked for {name!r}): connect it to nodes of that pack"
        )

    def __repr__(self) -> str:
        return repr(self.handle)

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} can not be copied or pickled")

    def __copy__(self) -> Held:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Held:
        return self


def _weigh(weight: int) -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    if weight <= 0 or torch is None:
        return ()
    return (torch.empty(1, dtype=torch.uint8).expand(weight),)


def short(type_name: str) -> str:
    """The class's own name."""
    return type_name.rpartition(".")[2]


class ComfyRole(HostRole):
    """The role of a ComfyUI host."""

    def __init__(self, due: Callable[[], None]) -> None:
        super().__init__(due)
        self.codecs = codecs
        self._lock = threading.Lock()
        self._next = 0
        self._lent: dict[int, Any] = {}  # what workers hold handles of
        self._numbers: dict[int, int] = {}
        self._handles: weakref.WeakValueDictionary[tuple[str, Any], Handle] = weakref.WeakValueDictionary()

    def encode_other(self, value: Any, encoder: Encoder) -> dict[str, Any]:
        """A handle as itself, a model as a handle, a class with a codec by that, else a pickle. Raises CannotCross."""
        if type(value) is Held:
            return {"h": value.handle.fields()}
        if isinstance(value, PickyString):
            return {"k": ["plain", str.__str__(value)]}
        if is_model(type(value)):
            return {"h": self._lend(value)}
        passed = pickles.passed_on(value, encoder) or self.codecs.tree(value, encoder)
        if passed is not None:
            return passed
        try:
            return pickles.dump(value, HOST, encoder, _refuse_models)
        except CannotCross:
            raise
        except Exception:
            return {"h": self._lend(value)}  # it stays here; a worker's node can still pass it on

    def open_handle(self, fields: dict[str, Any]) -> Any:
        """Our own object for a handle of ours; else what stands for a worker's object."""
        if fields.get("environment") == HOST:
            with self._lock:
                value = self._lent.get(fields.get("id"), self)
            if value is self:
                raise CannotCross("an object of the host that it no longer keeps: run the node that made it again")
            return value
        key = str(fields.get("worker")), fields.get("id")
        handle = self._handles.get(key) if fields.get("passed") else None
        if handle is None:
            handle = super().open_handle(fields)
            if fields.get("passed"):
                handle = Handle(**_named(handle))  # not sent by its owner, who does not count it
            else:
                self._handles[key] = handle
        weight = fields.get("weight")
        return Held(handle, weight if isinstance(weight, int) else 0)

    def _lend(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        with self._lock:
            number = self._numbers.get(id(value))
            if number is None:
                self._next += 1
                number = self._next
                self._lent[number] = value
                self._numbers[id(value)] = number
        return {
            "id": number,
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "environment": HOST,
            "generation": 0,
            "worker": HOST,
        }

    def held_handles(self) -> dict[str, int]:
        """How many objects of workers are held here, by environment."""
        counts: dict[str, int] = {}
        for handle in list(self._handles.values()):
            counts[handle.environment] = counts.get(handle.environment, 0) + 1
        return counts

    def forget_lent(self) -> None:
        """Forgets what was lent: at the end of a prompt no call of it can come back any more."""
        with self._lock:
            self._lent.clear()
            self._numbers.clear()


def _named(handle: Handle) -> dict[str, Any]:
    names = ("id", "type_name", "environment", "generation", "worker")
    return {name: getattr(handle, name) for name in names}


def is_model(kind: type) -> bool:
    """Whether objects of a class never cross as copies."""
    return any((base.__module__, base.__qualname__) in _MODELS for base in kind.__mro__)


def _refuse_models(value: Any) -> None:
    if not isinstance(value, type) and is_model(type(value)):
        raise TypeError(f"it holds a {type(value).__qualname__}, and models do not cross as copies")
