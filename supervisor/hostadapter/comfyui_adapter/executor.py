"""The moments of ComfyUI's executor, and what a call needs to know of it.

| module | name | when it is missing |
| --- | --- | --- |
| execution | PromptExecutor.execute_async | loaders do not run again by themselves after a worker's restart |
| comfy_execution.utils | get_executing_context | nodes of workers do not know their prompt and node |
| comfy_execution.graph_utils | GraphBuilder | prefixes of expanded graphs are not those of the host |
| comfy.model_management | processing_interrupted, throw_exception_if_processing_interrupted, InterruptProcessingException | Cancel does not reach workers |
| server | PromptServer.instance: client_id, last_node_id, last_prompt_id, address, port | nodes of workers do not see them |
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any, Callable

_GRAPH_FIELDS = ("_default_prefix_root", "_default_prefix_call_index", "_default_prefix_graph_index")
_SERVER_FIELDS = ("client_id", "last_node_id", "last_prompt_id", "address", "port")


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def context() -> Any:
    """The prompt_id, node_id and list_index of the node that runs on this thread or in this task; None outside one."""
    get = _attribute("comfy_execution.utils", "get_executing_context")
    return get() if get is not None else None


def graph() -> list[Any] | None:
    """Where GraphBuilder's default prefix stands."""
    builder = _attribute("comfy_execution.graph_utils", "GraphBuilder")
    if builder is None or not all(hasattr(builder, name) for name in _GRAPH_FIELDS):
        return None
    return [getattr(builder, name) for name in _GRAPH_FIELDS]


def advance_graph(before: list[Any] | None, index: Any) -> None:
    """Moves the default prefix on by what a worker's node has used, unless another node has set it meanwhile."""
    now = graph()
    if before is not None and now is not None and now[:2] == before[:2] and isinstance(index, int) and index > now[2]:
        _attribute("comfy_execution.graph_utils", "GraphBuilder")._default_prefix_graph_index = index


def server() -> Any:
    """ComfyUI's PromptServer, None before it is there."""
    return getattr(_attribute("server", "PromptServer"), "instance", None)


def server_state() -> dict[str, Any]:
    """What packs read of the server, and the preview method of this prompt."""
    instance = server()
    state = {name: getattr(instance, name, None) for name in _SERVER_FIELDS} if instance is not None else {}
    method = getattr(_attribute("comfy.cli_args", "args"), "preview_method", None)
    if method is not None:
        state["preview_method"] = getattr(method, "value", method)
    return state


class StopButton:
    """ComfyUI's interrupt flag, only read: who clears it would lose the user's Cancel."""

    @staticmethod
    def is_set() -> bool:
        """Whether Cancel was pressed for the prompt that runs."""
        check = _attribute("comfy.model_management", "processing_interrupted")
        return bool(check()) if check is not None else False


def interrupted() -> BaseException | None:
    """The exception of a cancelled node, the flag cleared as natively; None where ComfyUI has no such thing."""
    kind = _attribute("comfy.model_management", "InterruptProcessingException")
    check = _attribute("comfy.model_management", "throw_exception_if_processing_interrupted")
    if not isinstance(kind, type):
        return None
    if check is not None:
        try:
            check()
        except kind as error:
            return error
    return kind()


def watch_prompts(began: Callable[[Any, str, Any], None], ended: Callable[[str, Any], None]) -> bool:
    """Calls `began(executor, prompt_id, prompt)` and `ended(prompt_id, prompt)` around each prompt, on the executor's thread. False where this
    ComfyUI has no such moment."""
    executor = _attribute("execution", "PromptExecutor")
    original = getattr(executor, "execute_async", None)
    if original is None:
        return False

    @functools.wraps(original)
    async def execute_async(self: Any, prompt: Any, prompt_id: str, *arguments: Any, **named: Any) -> Any:
        _guarded(began, self, prompt_id, prompt)
        try:
            return await original(self, prompt, prompt_id, *arguments, **named)
        finally:
            _guarded(ended, prompt_id, prompt)

    executor.execute_async = execute_async
    return True


def _guarded(function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:
        logging.exception("comfy-supervisor: a prompt goes on without what was to be done around it")


def forget_outputs(executor: Any, doomed: Callable[[Any], bool]) -> int:
    """Removes the cached outputs for which `doomed(output)` is true, so that their nodes, and no others, run again.

    Touches caches.outputs of ComfyUI 0.30: `cache`, `subcaches`, and the lists beside them. Returns how many went.
    """
    outputs = getattr(getattr(executor, "caches", None), "outputs", None)
    return _forget(outputs, doomed)


def _forget(cache: Any, doomed: Callable[[Any], bool]) -> int:
    entries = getattr(cache, "cache", None)
    if not isinstance(entries, dict):
        return 0
    gone = [key for key, entry in entries.items() if _any_doomed(getattr(entry, "outputs", None), doomed)]
    for key in gone:
        del entries[key]
        for name in ("used_generation", "timestamps", "children"):
            beside = getattr(cache, name, None)
            if isinstance(beside, dict):
                beside.pop(key, None)
    subcaches = getattr(cache, "subcaches", None)
    below = sum(_forget(sub, doomed) for sub in subcaches.values()) if isinstance(subcaches, dict) else 0
    return len(gone) + below


def _any_doomed(outputs: Any, doomed: Callable[[Any], bool]) -> bool:
    """Whether an output, or something in a list, tuple or dict of them, is doomed."""
    if doomed(outputs):
        return True
    if isinstance(outputs, (list, tuple)):
        return any(_any_doomed(item, doomed) for item in outputs)
    if isinstance(outputs, dict):
        return any(_any_doomed(item, doomed) for item in outputs.values())
    return False
