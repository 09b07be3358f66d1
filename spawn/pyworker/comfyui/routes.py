"""Answering a route in a worker: the host passes a whole request in, a whole response or the path of a file goes back."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import traceback
from typing import Any

from . import web_standin
from .routetable import RouteTable

_STREAMS = (
    "a route of an isolated pack can not stream its answer or open a websocket: return a whole response or a file"
)


class Refused(Exception):
    """What the host answers with instead of the handler's response; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def answer(table: RouteTable, app: Any, fields: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Runs the handler for a request. `fields`: method, route (the path template), path, query, headers, match_info,
    remote, scheme. The answer has status, reason, headers and either body or file. Never raises an Exception."""
    route = table.find(fields["method"], fields["route"])
    if route is None:
        return refusal(404, f"the pack in this worker has no route {fields['method']} {fields['route']}")
    try:
        response = await _call(route.handler, fields, body, app)
        return describe(response)
    except Refused as error:
        return refusal(error.status, str(error))
    except asyncio.CancelledError:
        raise
    except Exception as error:
        if _is_response(error):  # aiohttp's HTTPNotFound and its like are raised
            return describe(error)
        traceback.print_exc()
        return refusal(500, f"{type(error).__name__}: {error}")


async def _call(handler: Any, fields: dict[str, Any], body: bytes, app: Any) -> Any:
    request = _request(fields, body, app)
    if inspect.isclass(handler):  # a class-based view
        method = getattr(handler(request), fields["method"].lower(), None)
        if method is None:
            raise Refused(405, f"this view does not answer {fields['method']}")
        result = method()
    else:
        result = handler(request)
    if inspect.isawaitable(result):
        result = await result
    return result


def _request(fields: dict[str, Any], body: bytes, app: Any) -> Any:
    """The request object: aiohttp's own where the environment has it, else the stand-in's."""
    aiohttp = sys.modules.get("aiohttp")
    if aiohttp is None or not hasattr(aiohttp, "__version__"):
        return web_standin.Request(fields, body, app)
    from aiohttp import streams, test_utils
    from multidict import CIMultiDict

    loop = asyncio.get_running_loop()
    protocol = _Protocol()
    payload = streams.StreamReader(protocol, 2**16, loop=loop)  # type: ignore[arg-type]
    payload.feed_data(body)
    payload.feed_eof()
    path = fields["path"] + ("?" + fields["query"] if fields["query"] else "")
    return test_utils.make_mocked_request(
        fields["method"],
        path,
        headers=CIMultiDict(fields["headers"]),
        match_info=dict(fields["match_info"]),
        payload=payload,
        client_max_size=0,  # the host has applied its own limit
        loop=loop,
    )


class _Protocol:
    """What aiohttp's stream reader asks of its connection; the whole body is there already."""

    _reading_paused = False

    def pause_reading(self, *_: Any, **__: Any) -> None:
        """Nothing to pause."""

    def resume_reading(self, *_: Any, **__: Any) -> None:
        """Nothing to resume."""


def _is_response(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("status", "headers", "body"))


def describe(response: Any) -> dict[str, Any]:
    """A response as it crosses. Raises Refused for what can not."""
    if response is None:
        raise Refused(500, "the handler returned nothing")
    path = getattr(response, "_path", None)
    if path is not None and not hasattr(response, "body"):
        if not os.path.isfile(path):
            raise Refused(404, f"the handler answers with a file that does not exist: {path}")
        return {**_head(response), "file": os.path.abspath(os.fspath(path))}
    if not _is_response(response):
        raise Refused(501, _STREAMS if hasattr(response, "prepare") else f"not a response: {type(response).__name__}")
    body = response.body
    if body is None:
        body = b""
    elif not isinstance(body, (bytes, bytearray, memoryview)):
        body = getattr(body, "_value", None)  # aiohttp wraps text and bytes in payloads
        if isinstance(body, str):
            body = body.encode("utf-8")
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise Refused(501, _STREAMS)
    return {**_head(response), "body": bytes(body)}


def _head(response: Any) -> dict[str, Any]:
    headers = [[str(name), str(value)] for name, value in response.headers.items()]
    cookies = getattr(response, "cookies", None)
    if cookies:
        headers += [["Set-Cookie", morsel.OutputString()] for morsel in cookies.values()]
    return {"status": int(response.status), "reason": response.reason, "headers": headers}


def refusal(status: int, message: str) -> dict[str, Any]:
    """An answer of ours."""
    return {
        "status": status,
        "reason": None,
        "headers": [["Content-Type", "text/plain; charset=utf-8"]],
        "body": message.encode("utf-8", "replace"),
    }
