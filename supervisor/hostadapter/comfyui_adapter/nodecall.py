"""One call of a pack's code, as a node proxy asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class NodeCall:
    """What to call, with what. `inputs` are the arguments by name as ComfyUI gave them."""

    node: str
    function: str
    inputs: dict[str, Any]
    # The V1 object whose method it is; None for a method of the class.
    instance: Instance | None = None
    # The values of a V3 node's cls.hidden by name; None for a V1 node.
    hidden: dict[str, Any] | None = None
    # Answers of VALIDATE_INPUTS that could not be had at submit are asked for right before the function.
    runs_node: bool = False


@dataclass
class Instance:
    """A V1 proxy object's counterpart: the worker keeps its own object under the token."""

    token: str
    # The plain attributes that the worker's object had after its last call; it starts from them after a restart.
    state: dict[str, Any] = field(default_factory=dict)
    # The generation that has the object; 0 before the first call.
    generation: int = 0


class Bridge(Protocol):
    """What node proxies need of the rest of the adapter. One per environment."""

    environment: str
    pack: str

    def call(self, call: NodeCall) -> Any:
        """Calls and waits; on ComfyUI's executor thread messages are replayed meanwhile."""
        ...

    async def call_async(self, call: NodeCall) -> Any: ...

    async def validate(self, call: NodeCall) -> Any:
        """Asks a worker that is awake; else True, and the question is repeated right before the function."""
        ...

    def inputs(self, node: str) -> Any:
        """The present INPUT_TYPES of a V1 node, or the NodeInfoV1 fields of a V3 node. Raises what the pack raised."""
        ...

    def drop(self, token: str) -> None:
        """Says that a proxy object is gone. For finalizers: neither locks nor blocks."""
        ...
