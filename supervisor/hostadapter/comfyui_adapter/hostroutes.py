"""A pack's routes on ComfyUI's real server: each request goes whole to the worker, a whole response comes back.

ComfyUI adds its routes once, after all packs are loaded, and aiohttp ends the start when a route comes twice: so a
duplicate is refused here, with a line.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Awaitable, Callable

Ask = Callable[[dict[str, Any], bytes], Awaitable[dict[str, Any]]]


def register(routes: list[list[str]], statics: list[list[str]], ask: Ask, pack: str) -> int:
    """Registers a pack's routes; `ask(request, body)` gets the answer of the worker. Returns how many it took."""
    server = getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
    if server is None:
        return 0
    table = server.routes
    taken = {(route.method, route.path) for route in table if hasattr(route, "method")}
    prefixes = {route.prefix for route in table if hasattr(route, "prefix")}
    declared = {(method, path) for method, path in map(tuple, routes)}
    count = 0
    for method, path in routes:
        if (method, path) in taken or ("*", path) in taken:
            logging.warning("[%s] the route %s %s exists already; the pack's is left out", pack, method, path)
            continue
        taken.add((method, path))
        options: dict[str, Any] = {}
        if method == "GET" and (("HEAD", path) in declared or ("HEAD", path) in taken):
            options["allow_head"] = False  # aiohttp would add a second HEAD
        table.route(method, path, **options)(_handler(path, ask, pack))
        count += 1
    for prefix, folder in statics:
        if prefix in prefixes:
            logging.warning("[%s] the static route %s exists already; the pack's is left out", pack, prefix)
            continue
        prefixes.add(prefix)
        try:
            table.static(prefix, folder)
            count += 1
        except ValueError as error:
            logging.warning("[%s] the static route %s was not added: %s", pack, prefix, error)
    return count


def _handler(path: str, ask: Ask, pack: str) -> Callable[[Any], Awaitable[Any]]:
    async def handle(request: Any) -> Any:
        from aiohttp import web

        if request.headers.get("Upgrade", "").lower() == "websocket":
            return web.Response(status=501, text=f"{pack} runs in a worker of its own, where websockets do not reach")
        fields = {
            "method": request.method,
            "route": path,
            "path": request.rel_url.raw_path,
            "query": request.rel_url.raw_query_string,
            "headers": [[name, value] for name, value in request.headers.items()],
            "match_info": dict(request.match_info),
            "remote": request.remote,
            "scheme": request.scheme,
        }
        try:
            answer = await ask(fields, await request.read())
        except Exception as error:
            logging.error("[%s] %s %s: %s", pack, request.method, path, error)
            return web.Response(status=503, text=f"{pack}: {error}")
        return _response(web, answer)

    return handle


def _response(web: Any, answer: dict[str, Any]) -> Any:
    from multidict import CIMultiDict

    headers = CIMultiDict((name, value) for name, value in answer["headers"] if name.lower() != "content-length")
    if "file" in answer:
        return web.FileResponse(answer["file"], status=answer["status"], reason=answer["reason"], headers=headers)
    return web.Response(body=answer["body"], status=answer["status"], reason=answer["reason"], headers=headers)
