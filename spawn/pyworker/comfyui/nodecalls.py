"""Calls as ComfyUI's executor makes them: both kinds of classes, hidden inputs, live objects, the state of instances.

The host sends an envelope beside the inputs and gets one back:

    sent      inputs    {name: value}
              hidden    {name: value} of a V3 node's cls.hidden; absent for V1
              live      {input name: {"mark", "value"?}} of PROMPT and EXTRA_PNGINFO, wherever they go
              state     {attribute: value} for an instance that this worker has to make
              validate  [{name: value}] questions of VALIDATE_INPUTS that nobody has answered yet
    returned  value     what the function returned
              state     the instance's plain attributes, if they changed
              live      {input name: value} of those that the node changed
              graph_index  where GraphBuilder's default prefix arrived
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable

from ..calls import Refused
from ..wire.codecs import as_json
from ..wire.errors import error_object
from .contract import is_v3
from .liveobjects import LiveObjects
from .nodestate import StateWatch, enabled
from .strangers import explained

GRAPH_FIELDS = ("_default_prefix_root", "_default_prefix_call_index", "_default_prefix_graph_index")


class UnknownNode(Refused):
    """A node or a function of it that the pack does not have."""

    def __init__(self, message: str) -> None:
        super().__init__(error_object("unknown_node", message))


class StateMissing(Refused):
    """The instance has to be made, and the host did not send the state that it has: it calls again with it."""

    def __init__(self) -> None:
        super().__init__(error_object("resend", "the worker has no instance for this node any more"))


class ValidationFailed(ValueError):
    """VALIDATE_INPUTS refused the inputs, asked right before the function."""


class _Kept:
    """A node object and what the host knows of it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.watch = StateWatch()


class NodeCalls:
    """The node objects of one worker, and calls of their methods. Everything runs on the main thread, questions of the
    class alone on any."""

    def __init__(self, nodes: dict[str, type], environment: str = "") -> None:
        """`environment` is its name, for messages."""
        self._nodes = nodes
        self._environment = environment
        self._kept: dict[str, _Kept] = {}
        self.live = LiveObjects()
        self._state = enabled()

    def drop(self, token: str) -> None:
        """Forgets a node object; its __del__ may run the pack's code."""
        self._kept.pop(token, None)

    def __len__(self) -> int:
        return len(self._kept)

    def objects(self) -> list[Any]:
        """The node objects."""
        return [kept.value for kept in self._kept.values()]

    def node(self, name: str) -> type:
        """A node's class. Raises UnknownNode."""
        try:
            return self._nodes[name]
        except KeyError:
            raise UnknownNode(f"the pack has no node {name!r} any more: restart ComfyUI, or update the workflow") from None

    def function(
        self, name: str, function: str, token: str, graph: list[Any] | None, validates: bool = False, stateful: bool = False
    ) -> Callable[..., Any]:
        """A function that takes the envelope and returns one: a coroutine function exactly when the pack's is, or when
        the envelope has questions (`validates`) for a VALIDATE_INPUTS that is one. `stateful`: the host has state for
        the instance, in case this worker has to make it. Raises UnknownNode.
        """
        cls = self.node(name)
        if is_v3(cls):
            target = self._v3(cls, function)
        elif token:
            target = self._v1(cls, function, token, stateful)
        else:
            target = _Target(_attribute(cls, function), lambda envelope: (getattr(cls, function), None))
        validator = self._validator(cls)

        def finish(envelope: dict[str, Any], kept: _Kept | None, value: Any) -> dict[str, Any]:
            answer: dict[str, Any] = {"value": _for_browser(value)}
            if kept is not None and self._state:
                state = kept.watch.changed(kept.value)
                if state is not None:
                    answer["state"] = state
            changed = {
                key: envelope["objects"][key]
                for key, sent in envelope.get("live", {}).items()
                if self.live.changed(sent, envelope["objects"][key])
            }
            if changed:
                answer["live"] = changed
            builder = _graph_builder()
            if builder is not None and graph is not None:
                answer["graph_index"] = builder._default_prefix_graph_index
            return answer

        def begin(envelope: dict[str, Any]) -> tuple[Any, _Kept | None, dict[str, Any]]:
            _set_graph(graph)
            inputs = self._take_live(envelope)
            bound, kept = target.bind(envelope)
            return bound, kept, inputs

        if target.is_async or (validates and inspect.iscoroutinefunction(validator)):

            async def run_async(**envelope: Any) -> dict[str, Any]:
                for question in envelope.get("validate", ()):
                    answer = validator(**question)  # type: ignore[misc]
                    _judge(await answer if inspect.isawaitable(answer) else answer, question)
                bound, kept, inputs = begin(envelope)
                try:
                    value = bound(**inputs)
                    if inspect.isawaitable(value):
                        value = await value
                except Exception as error:
                    raise explained(error, name, inputs, self._environment)
                return finish(envelope, kept, value)

            return run_async

        def run(**envelope: Any) -> dict[str, Any]:
            for question in envelope.get("validate", ()):
                _judge(validator(**question), question)  # type: ignore[misc]
            bound, kept, inputs = begin(envelope)
            try:
                value = bound(**inputs)
            except Exception as error:
                raise explained(error, name, inputs, self._environment)
            return finish(envelope, kept, value)

        return run

    def _take_live(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """The inputs with the live objects put where they belong."""
        inputs = dict(envelope["inputs"])
        objects = envelope["objects"] = {}
        for key, sent in envelope.get("live", {}).items():
            objects[key] = self.live.take(sent)
            if "hidden" in envelope:
                envelope["hidden"][key] = objects[key]
            else:
                inputs[key] = objects[key]
        return inputs

    def _v1(self, cls: type, function: str, token: str, stateful: bool) -> _Target:
        def bind(envelope: dict[str, Any]) -> tuple[Any, _Kept | None]:
            kept = self._kept.get(token)
            if kept is None or type(kept.value) is not cls:
                if stateful and "state" not in envelope:
                    raise StateMissing
                kept = _Kept(cls())
                if self._state and envelope.get("state"):
                    kept.watch.restore(kept.value, envelope["state"])
                self._kept[token] = kept
            return _attribute(kept.value, function), kept

        # Looked up on the class first: ComfyUI does the same to see whether it is asynchronous.
        return _Target(getattr(cls, function, None), bind)

    def _v3(self, cls: Any, function: str) -> _Target:
        internal = sys.modules["comfy_api.internal"]
        if cls.SCHEMA is None:
            cls.GET_SCHEMA()
        name = cls.FUNCTION if function == "execute" else function

        def bind(envelope: dict[str, Any]) -> tuple[Any, None]:
            # Here, not before: cls.hidden is an object of its own for each call, on a class of its own.
            clone = cls.PREPARE_CLASS_CLONE({"hidden_inputs": _hidden(envelope.get("hidden") or {})})
            return internal.make_locked_method_func(cls, name, clone), None

        return _Target(_attribute(cls, name), bind)

    @staticmethod
    def _validator(cls: Any) -> Any:
        if is_v3(cls):
            found = sys.modules["comfy_api.internal"].first_real_override(cls, "validate_inputs")
        else:
            found = getattr(cls, "VALIDATE_INPUTS", None)
        return found if callable(found) else None


class _Target:
    """What is called: whether it is asynchronous, and how it is bound once the envelope is there."""

    def __init__(self, function: Any, bind: Callable[[dict[str, Any]], tuple[Any, _Kept | None]]) -> None:
        self.is_async = inspect.iscoroutinefunction(function)
        self.bind = bind


def _attribute(owner: Any, name: str) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        kind = owner if isinstance(owner, type) else type(owner)
        raise UnknownNode(f"{kind.__name__} has no function {name!r}")
    return found


def _hidden(values: dict[str, Any]) -> dict[Any, Any]:
    names = sys.modules["comfy_api.latest"].io.Hidden.__members__
    return {names[name]: value for name, value in values.items() if name in names}


def _for_browser(value: Any) -> Any:
    """A node's return value whose part for the browser is as JSON makes it: subclasses are what they derive from."""
    if type(value) is dict and "ui" in value:
        return {**value, "ui": as_json(value["ui"])}
    return value


def _judge(answer: Any, question: dict[str, Any]) -> None:
    """Raises ValidationFailed for what ComfyUI would refuse at submit."""
    if answer is True or type(answer).__name__ == "ExecutionBlocker":
        return
    names = ", ".join(question)
    details = names if answer is False else f"{names} - {answer}"
    raise ValidationFailed(f"Custom validation failed for node: {details}")


def _graph_builder() -> Any:
    builder = getattr(sys.modules.get("comfy_execution.graph_utils"), "GraphBuilder", None)
    return builder if all(hasattr(builder, name) for name in GRAPH_FIELDS) else None


def _set_graph(graph: list[Any] | None) -> None:
    """Takes over where the host's GraphBuilder stands, so that the prefixes of expanded graphs are the native ones."""
    builder = _graph_builder()
    if builder is not None and graph is not None:
        for name, value in zip(GRAPH_FIELDS, graph):
            setattr(builder, name, value)
