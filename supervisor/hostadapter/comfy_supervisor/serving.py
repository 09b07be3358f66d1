"""Requests that are meant for the thread that waits in a call."""

from __future__ import annotations

from typing import Any, Callable

from . import calls
from .calls import CallerRequest
from .wire import decode
from .wire.channel import Channel, Message
from .wire.errors import ChannelGone, error_object
from .wire.memory import Memory


class Serving:
    """The functions that serve such requests, by method."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._functions: dict[str, Callable[[CallerRequest], Any]] = {}

    def register(self, method: str, function: Callable[[CallerRequest], Any] | None) -> None:
        """Sets a method's function; None takes it back."""
        if function is None:
            self._functions.pop(method, None)
        else:
            self._functions[method] = function

    def serve(self, channel: Channel, message: Message, body: bytes) -> None:
        """Answers a request. To be called on the thread that waits in its call."""
        function = self._functions.get(message["method"])
        if function is None:
            self._unknown(channel, message)
            return
        try:
            result = function(_request(message, body))
            if hasattr(result, "__await__"):
                if hasattr(result, "close"):
                    result.close()
                raise TypeError(f"{message['method']!r} is served by a coroutine: use call_async")
        except Exception as error:
            _answer_failure(channel, message, error)
            return
        _answer(channel, message, result)

    async def serve_async(self, channel: Channel, message: Message, body: bytes) -> None:
        """The same for a coroutine that waits."""
        function = self._functions.get(message["method"])
        if function is None:
            self._unknown(channel, message)
            return
        try:
            result = function(_request(message, body))
            if hasattr(result, "__await__"):
                result = await result
        except Exception as error:
            _answer_failure(channel, message, error)
            return
        _answer(channel, message, result)

    def _unknown(self, channel: Channel, message: Message) -> None:
        decode.discard(message, self._memory)
        text = f"this host does not serve {message['method']!r}"
        calls.refuse(channel, message, "unknown_method", text)


def _request(message: Message, body: bytes) -> CallerRequest:
    params = message.get("params")
    return CallerRequest(
        message["method"], params if isinstance(params, dict) else {}, message, body
    )


def _answer(channel: Channel, message: Message, result: Any) -> None:
    try:
        channel.reply(message["id"], result if result is not None else {})
    except ChannelGone:
        pass
    except (TypeError, ValueError) as error:
        _answer_failure(channel, message, error)


def _answer_failure(channel: Channel, message: Message, error: Exception) -> None:
    text = f"serving {message['method']!r} in the host: {type(error).__name__}: {error}"
    try:
        channel.reply_error(message["id"], error_object("internal", text))
    except ChannelGone:
        pass
