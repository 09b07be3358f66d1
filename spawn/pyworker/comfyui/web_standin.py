"""What route handlers use of aiohttp.web, for environments that lack aiohttp.

Only the pack's own modules get it (see `standins`): a library that tries whether aiohttp is there must not find it.
"""

from __future__ import annotations

import http
import json
import types
import urllib.parse
from typing import Any, Callable, Iterator

from . import multipart
from .routetable import Application, Route, RouteTable, Static


class Headers(dict):
    """Headers, found whatever the case of their names."""

    def __init__(self, pairs: Any = ()) -> None:
        super().__init__()
        for name, value in dict(pairs).items() if isinstance(pairs, dict) else pairs:
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name.title(), str(value))

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.title())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.title())

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a header."""
        return super().get(name.title(), default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of a header, set when missing."""
        return super().setdefault(name.title(), default)


class MultiDict(dict):
    """Values by name, the first of each; all with getall."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self._pairs = list(pairs)
        for name, value in pairs:
            self.setdefault(name, value)

    def getall(self, name: str, default: Any = None) -> list[Any]:
        """All values of a name. Raises KeyError without any, unless there is a default."""
        values = [value for key, value in self._pairs if key == name]
        if not values and default is None:
            raise KeyError(name)
        return values or default

    def getone(self, name: str, *default: Any) -> Any:
        """The first value of a name."""
        return self.get(name, *default) if default else self[name]


class URL:
    """A request's address."""

    def __init__(self, path: str, query: str) -> None:
        self.raw_path = path
        self.path = urllib.parse.unquote(path)
        self.query_string = query
        self.query = MultiDict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def __str__(self) -> str:
        return self.raw_path + ("?" + self.query_string if self.query_string else "")


class Request(dict):
    """A request as a handler sees it; also a dict for values of its own, as aiohttp's is."""

    def __init__(self, fields: dict[str, Any], body: bytes, app: Application) -> None:
        """`fields`: method, path, query, headers, match_info, remote, scheme."""
        super().__init__()
        self.method: str = fields["method"]
        self.headers = Headers(fields["headers"])
        self.rel_url = URL(fields["path"], fields["query"])
        self.url = self.rel_url
        self.match_info: dict[str, str] = dict(fields["match_info"])
        self.remote = fields.get("remote")
        self.scheme = fields.get("scheme", "http")
        self.app = app
        self._body = body

    path = property(lambda self: self.rel_url.path)
    path_qs = property(lambda self: str(self.rel_url))
    query = property(lambda self: self.rel_url.query)
    query_string = property(lambda self: self.rel_url.query_string)
    host = property(lambda self: self.headers.get("Host", ""))
    body_exists = property(lambda self: bool(self._body))
    can_read_body = property(lambda self: bool(self._body))
    has_body = property(lambda self: bool(self._body))
    content_length = property(lambda self: len(self._body))

    @property
    def content_type(self) -> str:
        """The kind of the body."""
        return multipart.parameters(self.headers.get("Content-Type", "application/octet-stream"))[0]

    @property
    def charset(self) -> str | None:
        """The encoding that the request names."""
        return multipart.parameters(self.headers.get("Content-Type", ""))[1].get("charset")

    @property
    def cookies(self) -> dict[str, str]:
        """The request's cookies."""
        found = {}
        for piece in self.headers.get("Cookie", "").split(";"):
            name, separator, value = piece.strip().partition("=")
            if separator:
                found[name] = value
        return found

    async def read(self) -> bytes:
        """The body."""
        return self._body

    async def text(self) -> str:
        """The body as text."""
        return self._body.decode(self.charset or "utf-8")

    async def json(self, *, loads: Callable[[str], Any] = json.loads) -> Any:
        """The body as JSON. Raises ValueError."""
        return loads(await self.text())

    async def post(self) -> MultiDict:
        """The fields of a form; files as parts with filename and file."""
        if self.content_type == "application/x-www-form-urlencoded":
            return MultiDict(urllib.parse.parse_qsl(await self.text(), keep_blank_values=True))
        if not self.content_type.startswith("multipart/"):
            return MultiDict([])
        pairs: list[tuple[str, Any]] = []
        for part in multipart.parse(self._body, self.headers["Content-Type"]):
            pairs.append((part.name, part.data.decode("utf-8") if part.filename is None else part))
        return MultiDict(pairs)

    async def multipart(self) -> MultipartReader:
        """The parts of the body, one after the other."""
        return MultipartReader(multipart.parse(self._body, self.headers.get("Content-Type", "")))


class MultipartReader:
    """Hands out parts."""

    def __init__(self, parts: list[multipart.Part]) -> None:
        self._parts: Iterator[multipart.Part] = iter(parts)

    async def next(self) -> multipart.Part | None:
        """The next part, None after the last."""
        return next(self._parts, None)

    def __aiter__(self) -> MultipartReader:
        return self

    async def __anext__(self) -> multipart.Part:
        part = await self.next()
        if part is None:
            raise StopAsyncIteration
        return part


class StreamResponse:
    """The base of responses. Sending in pieces does not cross the boundary to a worker."""

    def __init__(self, *, status: int = 200, reason: str | None = None, headers: Any = None) -> None:
        self.status = status
        self.reason = reason
        self.headers = Headers(headers or ())

    def set_status(self, status: int, reason: str | None = None) -> None:
        """Sets the status."""
        self.status = status
        self.reason = reason

    async def prepare(self, request: Any) -> Any:
        """Raises RuntimeError: streaming is not supported."""
        raise RuntimeError("a route of an isolated pack can not stream its answer: return a whole response or a file")


class Response(StreamResponse):
    """A whole response."""

    def __init__(
        self,
        *,
        body: Any = None,
        status: int = 200,
        reason: str | None = None,
        text: str | None = None,
        headers: Any = None,
        content_type: str | None = None,
        charset: str | None = None,
    ) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        if text is not None:
            body = text.encode(charset or "utf-8")
            kind = content_type or "text/plain"
            self.headers.setdefault("Content-Type", f"{kind}; charset={charset or 'utf-8'}")
        elif content_type is not None:
            self.headers.setdefault("Content-Type", content_type + (f"; charset={charset}" if charset else ""))
        self.body: bytes | None = body.encode("utf-8") if isinstance(body, str) else body

    @property
    def text(self) -> str | None:
        """The body as text."""
        return None if self.body is None else bytes(self.body).decode("utf-8")

    @property
    def content_type(self) -> str:
        """The kind of the body."""
        return multipart.parameters(self.headers.get("Content-Type", "application/octet-stream"))[0]


class FileResponse(StreamResponse):
    """A file, which the host sends."""

    def __init__(self, path: Any, *, status: int = 200, reason: str | None = None, headers: Any = None, **_: Any) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        self._path = path


class WebSocketResponse(StreamResponse):
    """Refuses to begin: a websocket does not cross the boundary to a worker."""

    def __init__(self, **_: Any) -> None:
        super().__init__()


def json_response(
    data: Any = None,
    *,
    text: str | None = None,
    body: bytes | None = None,
    status: int = 200,
    reason: str | None = None,
    headers: Any = None,
    content_type: str = "application/json",
    dumps: Callable[[Any], str] = json.dumps,
) -> Response:
    """A response of JSON."""
    if body is not None:
        return Response(body=body, status=status, reason=reason, headers=headers, content_type=content_type)
    text = dumps(data) if text is None else text
    return Response(text=text, status=status, reason=reason, headers=headers, content_type=content_type)


class HTTPException(Response, Exception):
    """A response that a handler raises."""

    status_code = 500

    def __init__(self, *, headers: Any = None, reason: str | None = None, text: str | None = None, **options: Any) -> None:
        phrase = reason or http.HTTPStatus(self.status_code).phrase
        Response.__init__(
            self, status=self.status_code, reason=phrase, headers=headers, text=text or f"{self.status_code}: {phrase}"
        )
        Exception.__init__(self, phrase)


def _exceptions() -> dict[str, type]:
    """The classes HTTPNotFound and its like, one for each status."""
    made: dict[str, type] = {"HTTPException": HTTPException}
    for status in http.HTTPStatus:
        if status < 200:
            continue
        name = "HTTP" + status.phrase.title().replace(" ", "").replace("-", "").replace("'", "")
        made[name] = type(name, (HTTPException,), {"status_code": int(status)})
    made["HTTPFound"] = _redirect(made["HTTPFound"])
    made["HTTPSeeOther"] = _redirect(made["HTTPSeeOther"])
    return made


def _redirect(base: type) -> type:
    def __init__(self: Any, location: Any, **options: Any) -> None:
        base.__init__(self, **options)  # type: ignore[misc]
        self.headers["Location"] = str(location)

    return type(base.__name__, (base,), {"__init__": __init__})


def modules() -> dict[str, types.ModuleType]:
    """The modules `aiohttp` and `aiohttp.web`."""
    web = types.ModuleType("aiohttp.web", "What route handlers of isolated packs use of aiohttp.")
    for item in (Application, FileResponse, Request, Response, StreamResponse, WebSocketResponse, json_response):
        setattr(web, item.__name__, item)
    web.BaseRequest = Request  # type: ignore[attr-defined]
    web.RouteTableDef = RouteTable  # type: ignore[attr-defined]
    web.static = lambda prefix, path, **_: Static(prefix, str(path))  # type: ignore[attr-defined]
    for method in ("get", "post", "put", "delete", "patch", "head", "options"):
        maker = lambda path, handler, _method=method, **_: Route(_method.upper(), path, handler)  # noqa: E731
        setattr(web, method, maker)
    for name, kind in _exceptions().items():
        setattr(web, name, kind)
    package = types.ModuleType("aiohttp", web.__doc__)
    package.web = web  # type: ignore[attr-defined]
    package.__path__ = []  # type: ignore[attr-defined]  # a package, so that `import aiohttp.web` finds the rest
    return {"aiohttp": package, "aiohttp.web": web}
