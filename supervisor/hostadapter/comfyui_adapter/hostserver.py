"""What packs in workers ask of the host's server, and their on_prompt handlers in it."""

from __future__ import annotations

from typing import Any, Callable

from . import executor


class HostServer:
    """Answers on threads of the adapter's own; the queue has a lock."""

    def answer(self, question: str, arguments: list[Any]) -> Any:
        """Answers a question. Raises LookupError for one that is not known, and what the server raises."""
        server = executor.server()
        if server is None:
            raise LookupError("ComfyUI's server is not there yet")
        queue = server.prompt_queue
        if question == "queue.tasks_remaining":
            return queue.get_tasks_remaining()
        if question == "queue.current":
            running, waiting = queue.get_current_queue()
            return [[list(item[:5]) for item in part] for part in (running, waiting)]
        if question == "queue.history":
            prompt_id, max_items, offset = arguments
            return queue.get_history(prompt_id=prompt_id, max_items=max_items, offset=offset)
        if question == "queue.set_flag":
            return queue.set_flag(*arguments)
        if question == "queue.updated":
            return server.queue_updated()
        raise LookupError(f"a host is not asked {question!r}")

    def add_on_prompt(self, handler: Callable[[Any], Any]) -> None:
        """Registers a handler for submitted prompts."""
        server = executor.server()
        if server is not None:
            server.add_on_prompt_handler(handler)
