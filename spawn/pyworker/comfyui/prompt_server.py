"""PromptServer.instance as packs use it in a worker: it forwards to the host's real one.

The real server.py needs a web server's packages and is never imported here. The module that packs get for
`import server` is made by `server_module`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import types
from contextvars import ContextVar
from typing import Any, Callable, Protocol

from .routetable import Application, RouteTable

TEXT_EVENT = 3  # protocol.BinaryEventTypes.TEXT of ComfyUI 0.30


class Messenger(Protocol):
    """How the stand-in reaches the host."""

    def send_event(self, event: Any, data: Any, sid: Any) -> None:
        """Passes a websocket message on, in the order of the current call's other messages."""
        ...

    def ask_host(self, question: str, *arguments: Any) -> Any:
        """Asks the host's server something and waits."""
        ...

    def register_replacement(self, fields: dict[str, Any]) -> None:
        """Registers a node replacement on the host."""
        ...


class HostState:
    """What the host's server says about the present prompt; each call brings its own, threads see the latest."""

    def __init__(self) -> None:
        self._here: ContextVar[dict[str, Any] | None] = ContextVar("comfy_supervisor_host_state", default=None)
        self._latest: dict[str, Any] = {}

    def enter(self, state: dict[str, Any]) -> None:
        """Takes over what came with a call, for the context that runs it."""
        self._here.set(state)
        self._latest = state

    def get(self, name: str) -> Any:
        """A value such as client_id; None when the host said nothing."""
        here = self._here.get()
        return (self._latest if here is None else here).get(name)


class PromptQueue:
    """What packs ask of the queue, answered by the host."""

    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger

    def get_tasks_remaining(self) -> int:
        """How many prompts run or wait."""
        return self._messenger.ask_host("queue.tasks_remaining")

    def get_current_queue(self) -> Any:
        """What runs and what waits."""
        return self._messenger.ask_host("queue.current")

    get_current_queue_volatile = get_current_queue

    def get_history(self, prompt_id: str | None = None, max_items: int | None = None, offset: int = -1) -> Any:
        """What has run."""
        return self._messenger.ask_host("queue.history", prompt_id, max_items, offset)

    def set_flag(self, name: str, data: Any) -> None:
        """Sets one of the flags that the host's loop reads, such as free_memory."""
        self._messenger.ask_host("queue.set_flag", name, data)


class NodeReplaceManager:
    """Registers replacements on the host."""

    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger

    def register(self, replacement: Any) -> None:
        """Takes a comfy_api NodeReplace."""
        self._messenger.register_replacement(replacement.as_dict())


def _host_value(name: str) -> Any:
    """An attribute that the host decides, until a pack assigns its own."""

    def read(self: PromptServer) -> Any:
        return self.__dict__.get("_own_" + name, self._state.get(name))

    def write(self: PromptServer, value: Any) -> None:
        self.__dict__["_own_" + name] = value

    return property(read, write)


class PromptServer:
    """The worker's PromptServer; one per process."""

    instance: PromptServer

    def __init__(self, messenger: Messenger, state: HostState, loop: asyncio.AbstractEventLoop) -> None:
        self._messenger = messenger
        self._state = state
        self.routes = RouteTable()
        self.app = Application(self.routes)
        self.loop = loop
        self.prompt_queue = PromptQueue(messenger)
        self.node_replace_manager = NodeReplaceManager(messenger)
        self.on_prompt_handlers: list[Callable[[Any], Any]] = []
        self.supports = ["custom_nodes_from_web"]
        self.sockets: dict[str, Any] = {}
        self.sockets_metadata: dict[str, Any] = {}
        self.number = 0

    client_id = _host_value("client_id")
    last_node_id = _host_value("last_node_id")
    last_prompt_id = _host_value("last_prompt_id")
    address = _host_value("address")
    port = _host_value("port")

    def send_sync(self, event: Any, data: Any, sid: Any = None) -> None:
        """Sends a websocket message through the host; to one client, or to all."""
        self._messenger.send_event(event, data, sid)

    async def send(self, event: Any, data: Any, sid: Any = None) -> None:
        """The same for coroutines."""
        self._messenger.send_event(event, data, sid)

    send_json = send
    send_bytes = send

    def send_progress_text(self, text: Any, node_id: Any, sid: Any = None) -> None:
        """Shows a line of text on a node."""
        if isinstance(text, str):
            text = text.encode("utf-8")
        node = str(node_id).encode("utf-8")
        self.send_sync(TEXT_EVENT, struct.pack(">I", len(node)) + node + bytes(text), sid)

    def add_on_prompt_handler(self, handler: Callable[[Any], Any]) -> None:
        """Registers a function that may change a prompt as it is submitted."""
        self.on_prompt_handlers.append(handler)

    def trigger_on_prompt(self, json_data: Any) -> Any:
        """Runs the handlers; one that raises is skipped with its traceback in the log, as in ComfyUI."""
        for handler in self.on_prompt_handlers:
            try:
                json_data = handler(json_data)
            except Exception:
                logging.warning("An error occurred in an on_prompt handler", exc_info=True)
        return json_data

    def queue_updated(self) -> None:
        """Tells the clients how long the queue is."""
        self._messenger.ask_host("queue.updated")

    def get_queue_info(self) -> Any:
        """How long the queue is."""
        return {"exec_info": {"queue_remaining": self.prompt_queue.get_tasks_remaining()}}



def server_module(server: PromptServer) -> types.ModuleType:
    """The module for `import server`."""
    module = types.ModuleType("server", "ComfyUI's server as a worker sees it.")
    PromptServer.instance = server
    module.PromptServer = PromptServer  # type: ignore[attr-defined]
    return module
