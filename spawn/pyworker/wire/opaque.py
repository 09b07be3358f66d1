"""What crosses without being understood: pickles of another environment, and handles of objects
that stay put.
"""

from __future__ import annotations

from typing import Any, Callable


class Opaque:
    """A pickled object of a worker: only a worker of the same environment opens it; elsewhere it
    passes through.

    Nothing here ever unpickles.
    """

    __slots__ = ("type_name", "environment", "data", "arrays", "__weakref__")

    def __init__(self, type_name: str, environment: str, data: bytes, arrays: list[Any]) -> None:
        """`data` is the pickle; `arrays` are the arrays and tensors it refers to, which crossed as
        such.
        """
        self.type_name = type_name
        self.environment = environment
        self.data = data
        self.arrays = arrays

    def __getattr__(self, name: str) -> Any:
        if name in Opaque.__slots__:  # not set yet
            raise AttributeError(name)
        raise AttributeError(
            f"a value of type {self.type_name} of environment"
            f" {self.environment.partition('/')[0]!r} can not be looked into here (asked for {name!r}): pass it on to a node of that environment"
        )

    def __repr__(self) -> str:
        return f"<opaque {self.type_name} of {self.environment}, {len(self.data)} bytes>"

    def __reduce__(self) -> Any:
        return Opaque, (self.type_name, self.environment, self.data, self.arrays)


class OpaqueStr(str):
    """An instance of an unknown subclass of str: the plain value here, the original where it came
    from.
    """

    opaque: Opaque


class OpaqueInt(int):
    """An instance of an unknown subclass of int."""

    opaque: Opaque


class OpaqueFloat(float):
    """An instance of an unknown subclass of float."""

    opaque: Opaque


class OpaqueBytes(bytes):
    """An instance of an unknown subclass of bytes."""

    opaque: Opaque


class OpaqueTuple(tuple):
    """An instance of an unknown subclass of tuple."""

    opaque: Opaque


# What an unknown subclass looks like where it can not be opened, by the builtin it derives from.
FACES: dict[type, type] = {
    str: OpaqueStr,
    int: OpaqueInt,
    float: OpaqueFloat,
    bytes: OpaqueBytes,
    tuple: OpaqueTuple,
}


class Handle:
    """An object that stays in the worker that made it. Given back to that worker, it is the object
    again.
    """

    __slots__ = (
        "id",
        "type_name",
        "environment",
        "generation",
        "worker",
        "_dropped",
        "__weakref__",
    )

    def __init__(
        self,
        id: int,
        type_name: str,
        environment: str,
        generation: int,
        worker: str,
        dropped: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """`dropped(environment, generation, id)` is called by the finalizer; it must neither lock
        nor block.
        """
        self.id = id
        self.type_name = type_name
        self.environment = environment
        self.generation = generation
        self.worker = worker
        self._dropped = dropped

    def fields(self) -> dict[str, Any]:
        """The handle as it crosses."""
        return {
            "id": self.id,
            "type": self.type_name,
            "environment": self.environment,
            "generation": self.generation,
            "worker": self.worker,
        }

    def __getattr__(self, name: str) -> Any:
        if name in Handle.__slots__:  # not set yet
            raise AttributeError(name)
        raise AttributeError(
            f"a {self.type_name} that lives in the worker of environment {self.environment!r} can"
            f" not be looked into here (asked for {name!r}): pass it on to a node of that environment"
        )

    def __repr__(self) -> str:
        return f"<handle of a {self.type_name} in {self.environment}, generation {self.generation}>"

    def __copy__(self) -> Handle:
        return self  # copies of a reference refer to the same object

    def __deepcopy__(self, memo: Any) -> Handle:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} can not be pickled: the object lives in a process")

    def __del__(self) -> None:
        dropped = getattr(self, "_dropped", None)
        if dropped is not None:
            dropped(self.environment, self.generation, self.id)
