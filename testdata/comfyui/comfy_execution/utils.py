"""Which node of which prompt is computing, per thread of execution."""

import contextvars
from typing import NamedTuple, Optional


class ExecutionContext(NamedTuple):
    """The node that computes, and its place in a list of inputs."""

    prompt_id: str
    node_id: str
    list_index: Optional[int]


current_executing_context: contextvars.ContextVar[Optional[ExecutionContext]] = (
    contextvars.ContextVar("current_executing_context", default=None)
)


def get_executing_context() -> Optional[ExecutionContext]:
    """The context of the caller, or None outside any node."""
    return current_executing_context.get(None)


class CurrentNodeContext:
    """Sets the context for a ``with`` block."""

    def __init__(self, prompt_id: str, node_id: str, list_index: Optional[int] = None):
        self.context = ExecutionContext(prompt_id, node_id, list_index)
        self.token = None

    def __enter__(self):
        self.token = current_executing_context.set(self.context)
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        if self.token is not None:
            current_executing_context.reset(self.token)
