"""What a worker says while its node runs, replayed as if the node had said it here.

ComfyUI's progress hook clears the interrupt flag before it raises, and its progress registry is iterated without a lock:
both belong to the executor's thread. So whoever waits for a node replays its messages, on that thread. Only what goes to
the websocket directly may come from any thread.

| module | name | when it is missing |
| --- | --- | --- |
| comfy.utils | PROGRESS_BAR_HOOK | bars of isolated nodes are not shown |
| comfy_execution.progress | get_progress_state | set_progress of isolated nodes is not shown |
| app.logger | log_startup_warning | warnings of isolated packs are not repeated at the end of the start |
| server | PromptServer.instance.send_sync | websocket messages of isolated nodes are dropped |
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import Any


def replay(message: dict[str, Any], prompt_id: str | None, node_id: str | None) -> None:
    """Replays one message of a call on the thread that runs the node.

    Raises ComfyUI's InterruptProcessingException as the node itself would see it.
    """
    kind = message.get("kind")
    if kind == "bar":
        _bar(message, prompt_id, node_id)
    elif kind == "registry":
        _registry(message, node_id)
    else:
        replay_anywhere(message)


def replay_anywhere(message: dict[str, Any]) -> None:
    """Replays a message that needs no particular thread; others are left out."""
    kind = message.get("kind")
    if kind == "event":
        server = _server()
        if server is not None:
            server.send_sync(message["event"], message["data"], message["sid"])
    elif kind == "replacement":
        _replacement(message["fields"])
    elif kind == "startup_warning":
        warn = getattr(sys.modules.get("app.logger"), "log_startup_warning", None)
        if warn is not None:
            warn(message["text"])


def _server() -> Any:
    module = sys.modules.get("server")
    return getattr(getattr(module, "PromptServer", None), "instance", None)


def _bar(message: dict[str, Any], prompt_id: str | None, node_id: str | None) -> None:
    hook = getattr(sys.modules.get("comfy.utils"), "PROGRESS_BAR_HOOK", None)
    if hook is None:
        return
    value, total, preview = message["value"], message["total"], message["preview"]
    named = {"prompt_id": message["prompt_id"] or prompt_id, "node_id": message["node_id"] or node_id}
    hook(value, total, preview, **{name: named[name] for name in _accepted(hook, tuple(named))})


def _accepted(function: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that a function takes; older versions of the hook take none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return names
    return tuple(name for name in names if name in parameters)


def _registry(message: dict[str, Any], node_id: str | None) -> None:
    state = getattr(sys.modules.get("comfy_execution.progress"), "get_progress_state", None)
    if state is None:
        return
    state().update_progress(
        message["node_id"] or node_id, message["value"], message["total"], message["preview"]
    )


def _replacement(fields: dict[str, Any]) -> None:
    """Registers a node replacement that a pack registered in its worker."""
    manager = getattr(_server(), "node_replace_manager", None)
    module = sys.modules.get("comfy_api.latest")
    if manager is None or module is None:
        return
    try:
        manager.register(module.io.NodeReplace(**fields))
    except (AttributeError, TypeError) as error:
        logging.warning("a node replacement of an isolated pack was not registered: %s", error)
