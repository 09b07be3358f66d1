"""All that the worker touches of ComfyUI. Each is looked up in sys.modules: who has not imported it
can not see it.

| module | name | when it is missing |
| --- | --- | --- |
| comfy.model_management | interrupt_current_processing | a synchronous node does not see a cancel |
| comfy.model_management | InterruptProcessingException | an interrupt is the node's error |
| comfy.model_management | throw_exception_if_processing_interrupted | progress does not interrupt |
| comfy.utils | set_progress_bar_global_hook | no progress |
| comfy_execution.utils | CurrentNodeContext | no call context |
| comfy_execution.graph_utils | GraphBuilder.set_default_prefix | prefixes are not unique per call |
"""

from __future__ import annotations

import sys
from typing import Any, Callable


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def interrupt(value: bool) -> None:
    """Sets or clears the flag that ComfyUI's loops poll. From any thread."""
    function = _attribute("comfy.model_management", "interrupt_current_processing")
    if function is not None:
        function(value)


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is the one that the flag leads to."""
    kind = _attribute("comfy.model_management", "InterruptProcessingException")
    return isinstance(kind, type) and isinstance(error, kind)


def call_context(context: dict[str, Any]) -> Any:
    """The context manager for a node's call, or None; also sets the prefix of expanded graphs."""
    if not context:
        return None
    index = context.get("list_index")
    builder = _attribute("comfy_execution.graph_utils", "GraphBuilder")
    if builder is not None and hasattr(builder, "set_default_prefix"):
        unique_id = context.get("unique_id", context.get("node_id"))
        builder.set_default_prefix(unique_id, context.get("call_index", index or 0), 0)
    current = _attribute("comfy_execution.utils", "CurrentNodeContext")
    if current is None:
        return None
    return current(context.get("prompt_id"), context.get("node_id"), index)


def hook_progress(utils: Any, report: Callable[[Any, Any, Any], None]) -> None:
    """The post-import hook of comfy.utils: `report(value, total, node_id)` gets what progress bars
    show.
    """
    register = getattr(utils, "set_progress_bar_global_hook", None)
    if register is None:
        return

    def hook(
        value: Any, total: Any, preview: Any = None, prompt_id: Any = None, node_id: Any = None
    ) -> None:
        check = _attribute("comfy.model_management", "throw_exception_if_processing_interrupted")
        if check is not None:
            check()  # as the host's own hook does: a node that shows progress can be interrupted
        report(value, total, node_id)

    register(hook)
