"""The errors of the protocol itself, before either side turns them into its own."""

from __future__ import annotations

from typing import Any


class ProtocolError(ValueError):
    """Bytes that are not what the protocol allows; the stream they came from can not be read
    further.
    """


class ChannelGone(ConnectionError):
    """The other side is gone: nothing more arrives, and what was pending gets no reply."""


class SupervisorChanged(ChannelGone):
    """The connection goes on, but whoever was asked is gone: another supervisor has taken over, and
    does not know of the request.
    """


class CannotCross(ValueError):
    """A value that can not be sent or opened. `path` names the place inside the value, innermost
    part first.
    """

    def __init__(self, reason: str, kind: str = "value") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.path: list[str] = []

    def __str__(self) -> str:
        place = "".join(reversed(self.path))
        return f"at {place}: {self.reason}" if place else self.reason


class RemoteError(Exception):
    """The error of a reply: its message, and the data that Go calls ErrorData."""

    def __init__(self, error: dict[str, Any], body: bytes = b"", files: Any = None) -> None:
        data = error.get("data")
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        self.message = str(error.get("message") or "an error without a message")
        self.kind = str(self.data.get("kind") or "internal")
        self.body = body
        self.files = files
        super().__init__(self.message)


def error_object(kind: str, message: str, **data: Any) -> dict[str, Any]:
    """The JSON-RPC error of a kind, as Go's wire.Error; `data` adds fields of ErrorData."""
    code = {"unknown_method": -32601, "bad_request": -32602}.get(kind, -32000)
    return {"code": code, "message": message[:16384], "data": {"kind": kind, **data}}
