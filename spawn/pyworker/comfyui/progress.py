"""Progress of both kinds: ComfyUI's ProgressBar, and the registry that comfy_api's set_progress writes to.

Nothing is shown here; the host replays it on its executor's thread, under the ids of the call.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Reporter(Protocol):
    """Takes progress to the host."""

    def bar(self, value: Any, total: Any, preview: Any, prompt_id: Any, node_id: Any) -> None:
        """What a ProgressBar shows."""
        ...

    def registry(self, node_id: Any, value: Any, total: Any, preview: Any) -> None:
        """What a node reports through comfy_api."""
        ...


def hook_bars(utils: Any, reporter: Reporter) -> None:
    """The post-import hook of comfy.utils."""
    register = getattr(utils, "set_progress_bar_global_hook", None)
    if register is None:
        return

    def hook(value: Any, total: Any, preview: Any = None, prompt_id: Any = None, node_id: Any = None) -> None:
        management = sys.modules.get("comfy.model_management")
        check = getattr(management, "throw_exception_if_processing_interrupted", None)
        if check is not None:
            check()  # as the host's own hook does: a node that shows progress can be interrupted
        reporter.bar(value, total, preview, prompt_id, node_id)

    register(hook)


class ForwardingRegistry:
    """Stands in for comfy_execution.progress.ProgressRegistry."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.prompt_id = ""
        self.nodes: dict[str, dict[str, Any]] = {}
        self.handlers: dict[str, Any] = {}

    def ensure_entry(self, node_id: str) -> dict[str, Any]:
        """The state of a node's progress as far as it is known here."""
        return self.nodes.setdefault(node_id, {"state": "pending", "value": 0, "max": 1})

    def start_progress(self, node_id: str) -> None:
        """The host starts nodes by itself."""
        self.ensure_entry(node_id)

    def update_progress(self, node_id: str, value: float, max_value: float, image: Any = None) -> None:
        """Reports a node's progress."""
        self.ensure_entry(node_id).update(state="running", value=value, max=max_value)
        self._reporter.registry(node_id, value, max_value, image)

    def finish_progress(self, node_id: str) -> None:
        """The host finishes nodes by itself."""
        self.nodes.pop(node_id, None)

    def register_handler(self, handler: Any) -> None:
        """Keeps a handler; progress is shown by the host's own ones."""
        self.handlers[handler.name] = handler

    def unregister_handler(self, name: str) -> None:
        """Forgets a handler."""
        self.handlers.pop(name, None)

    def reset_handlers(self) -> None:
        """Nothing is shown here."""


def hook_registry(module: Any, reporter: Reporter) -> None:
    """The post-import hook of comfy_execution.progress."""
    if hasattr(module, "global_progress_registry"):
        module.global_progress_registry = ForwardingRegistry(reporter)
