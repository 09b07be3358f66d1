"""Modules in the shape of ComfyUI's, for what the adapter looks up in sys.modules."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any, Iterator


@contextlib.contextmanager
def modules(**named: Any) -> Iterator[None]:
    """Puts modules into sys.modules for a while; `__` in a name is a dot."""
    names = {name.replace("__", "."): value for name, value in named.items()}
    before = {name: sys.modules.get(name) for name in names}
    for name, value in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(value)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


class Server:
    """What is used of a PromptServer."""

    def __init__(self) -> None:
        self.client_id = "client"
        self.sent: list[tuple[Any, ...]] = []
        self.routes = Routes()
        self.handlers: list[Any] = []

    def send_sync(self, *arguments: Any) -> None:
        self.sent.append(arguments)

    def add_on_prompt_handler(self, handler: Any) -> None:
        self.handlers.append(handler)


class Routes(list):
    """What is used of a RouteTableDef."""

    def route(self, method: str, path: str, **options: Any) -> Any:
        def keep(handler: Any) -> Any:
            self.append(types.SimpleNamespace(method=method, path=path, handler=handler, options=options))
            return handler

        return keep

    def static(self, prefix: str, path: str) -> None:
        self.append(types.SimpleNamespace(prefix=prefix, folder=path))
