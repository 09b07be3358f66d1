"""The routes that a pack registers at import: recorded here, served by the host, answered by the side lane.

Packs reach the table in many ways: decorators of PromptServer.instance.routes, app.add_routes with a table of their
own, app.router.add_get, a module-level list called ROUTES. All of them end as a Route or a Static.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Iterator

_METHODS = ("get", "post", "put", "delete", "patch", "head", "options")


@dataclass(frozen=True)
class Route:
    """One handler. `method` is in capitals, "*" for a class-based view."""

    method: str
    path: str
    handler: Callable[..., Any]


@dataclass(frozen=True)
class Static:
    """A folder whose files the host serves by itself."""

    prefix: str
    folder: str


class RouteTable:
    """What a pack registered. Behaves like aiohttp.web.RouteTableDef."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.statics: list[Static] = []

    def route(self, method: str, path: str, **options: Any) -> Callable[[Any], Any]:
        """Decorator for a handler of any method."""

        def register(handler: Any) -> Any:
            self.add(method, path, handler)
            return handler

        return register

    def view(self, path: str, **options: Any) -> Callable[[Any], Any]:
        """Decorator for a class-based view."""
        return self.route("*", path, **options)

    def static(self, prefix: str, path: Any, **options: Any) -> None:
        """Registers a folder."""
        self.statics.append(Static(prefix, os.path.abspath(os.fspath(path))))

    def add(self, method: str, path: str, handler: Callable[..., Any]) -> None:
        """Registers one handler."""
        self.routes.append(Route(method.upper(), path, handler))

    def extend(self, definitions: Any) -> None:
        """Takes over aiohttp's route definitions, or another table. Raises TypeError for anything else."""
        for definition in definitions:
            if isinstance(definition, Route):
                self.routes.append(definition)
            elif isinstance(definition, Static):
                self.statics.append(definition)
            elif hasattr(definition, "prefix") and hasattr(definition, "path"):
                self.static(definition.prefix, definition.path)
            elif hasattr(definition, "handler"):
                self.add(definition.method, definition.path, definition.handler)
            else:
                raise TypeError(f"not a route definition: {definition!r}")

    def find(self, method: str, path: str) -> Route | None:
        """The handler registered for a method and a path template; one for GET answers HEAD too, as aiohttp has it."""
        for wanted in (method, "GET") if method == "HEAD" else (method,):
            for route in self.routes:
                if route.path == path and route.method in (wanted, "*"):
                    return route
        return None

    def describe(self) -> dict[str, Any]:
        """What the host needs to register them."""
        return {
            "routes": [[route.method, route.path] for route in self.routes],
            "statics": [[static.prefix, static.folder] for static in self.statics],
        }

    def __iter__(self) -> Iterator[Any]:
        return iter([*self.routes, *self.statics])

    def __len__(self) -> int:
        return len(self.routes) + len(self.statics)


def _add_method(name: str) -> None:
    def decorator(self: RouteTable, path: str, **options: Any) -> Callable[[Any], Any]:
        return self.route(name.upper(), path, **options)

    decorator.__name__ = name
    decorator.__doc__ = f"Decorator for a handler of {name.upper()}."
    setattr(RouteTable, name, decorator)


for _name in _METHODS:
    _add_method(_name)


class Router:
    """What packs use of aiohttp's UrlDispatcher."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table

    def add_route(self, method: str, path: str, handler: Any, **options: Any) -> None:
        """Registers a handler."""
        self._table.add(method, path, handler)

    def add_view(self, path: str, handler: Any, **options: Any) -> None:
        """Registers a class-based view."""
        self._table.add("*", path, handler)

    def add_static(self, prefix: str, path: Any, **options: Any) -> None:
        """Registers a folder."""
        self._table.static(prefix, path)

    def add_routes(self, definitions: Any) -> None:
        """Registers several."""
        self._table.extend(definitions)

    def routes(self) -> list[Route]:
        """What this pack registered; the host's own are not known here."""
        return list(self._table.routes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("add_") and name[4:] in _METHODS:
            return lambda path, handler, **options: self._table.add(name[4:], path, handler)
        raise AttributeError(f"the web server's router has no {name!r} in a worker")


class Application(dict):
    """What packs use of aiohttp's Application: a place for values, and for routes."""

    def __init__(self, table: RouteTable) -> None:
        super().__init__()
        self._table = table
        self.router = Router(table)
        self.on_startup: list[Any] = []
        self.on_shutdown: list[Any] = []
        self.on_cleanup: list[Any] = []
        self.middlewares: list[Any] = []
        self.frozen = False

    def add_routes(self, definitions: Any) -> None:
        """Registers several."""
        self._table.extend(definitions)
