"""What crosses opaquely, seen from a host: it pickles what only it can make, and opens nothing."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable

from .wire import pickles
from .wire.codecs import Codecs
from .wire.errors import CannotCross
from .wire.opaque import Handle, Opaque
from .wire.values import Encoder

HOST = "host"  # the environment of what a host has pickled: any worker opens it


class HostRole:
    """Passes pickles and handles on unchanged, and remembers which handles are no longer held."""

    devices = False  # tensors stay in host memory here

    def __init__(self, due: Callable[[], None]) -> None:
        """`due` is called from finalizers; it must neither lock nor block."""
        self._due = due
        self.codecs = Codecs()
        self._dropped: deque[tuple[str, int, int]] = deque()
        self._unsettled: set[str] = set()  # environments with drops since the last look

    def encode_other(self, value: Any, encoder: Encoder) -> dict[str, Any]:
        """A handle as itself, a class with a codec by that, else a pickle. Raises CannotCross for
        what does not pickle.
        """
        if type(value) is Handle:
            return {"h": value.fields()}
        passed = pickles.passed_on(value, encoder) or self.codecs.tree(value, encoder)
        if passed is not None:
            return passed
        try:
            return pickles.dump(value, HOST, encoder)
        except CannotCross:
            raise
        except Exception as error:
            kind = type(value)
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise CannotCross(
                f"a {name} can not be sent to a worker: {type(error).__name__}: {error}"
            ) from error

    def open_opaque(self, fields: dict[str, Any], data: bytes, arrays: list[Any], face: Any) -> Any:
        """The pickle as an object that holds it; nothing is opened."""
        return pickles.faced(Opaque(str(fields.get("t")), str(fields.get("e")), data, arrays), face)

    def open_coded(self, name: str, payload: Any) -> Any:
        """What a codec makes of a payload; without that codec it passes through."""
        return self.codecs.decode(name, payload)

    def open_handle(self, fields: dict[str, Any]) -> Handle:
        """A handle that tells its worker when it is no longer held."""
        number, generation = fields.get("id"), fields.get("generation")
        if type(number) is not int:
            raise CannotCross("a handle without a number")
        return Handle(
            number,
            str(fields.get("type")),
            str(fields.get("environment")),
            generation if type(generation) is int else 0,
            str(fields.get("worker")),
            self._drop,
        )

    def _drop(self, environment: str, generation: int, number: int) -> None:
        self._dropped.append((environment, generation, number))
        self._unsettled.add(environment)  # only now: who finds it here sends what is above
        self._due()

    def unsettled(self) -> list[str]:
        """The environments of which handles have been dropped since this was asked last."""
        found = list(self._unsettled)
        self._unsettled.difference_update(found)
        return found

    def collect(self) -> list[dict[str, Any]]:
        """The parameters of `handle.drop` notifications that are due, one for each worker."""
        counts: dict[tuple[str, int], dict[int, int]] = {}
        while self._dropped:
            environment, generation, number = self._dropped.popleft()
            handles = counts.setdefault((environment, generation), {})
            handles[number] = handles.get(number, 0) + 1
        return [
            {
                "environment": environment,
                "generation": generation,
                "handles": [{"id": number, "count": count} for number, count in handles.items()],
            }
            for (environment, generation), handles in counts.items()
        ]
