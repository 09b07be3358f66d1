"""One call, from the side that waits for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from . import errors, raising
from .wire import decode, values
from .wire.channel import Channel, Message, Waiter, encode_json
from .wire.errors import CannotCross, ChannelGone, ProtocolError, RemoteError, error_object

if TYPE_CHECKING:
    from .session import Session

_POLL_SECONDS = 0.05  # how often a foreign cancel event is looked at
_GRACE_SECONDS = 1.0  # beyond a call's timeout, for the supervisor's own answer about it


class Progress(NamedTuple):
    """What a node reported: `value` of `total`, and for which node of the graph."""

    value: Any
    total: Any
    text: str | None
    node_id: str | None


class CallerRequest(NamedTuple):
    """A request that a worker or the supervisor makes of the thread that waits in a call."""

    method: str
    params: dict[str, Any]
    message: Message
    body: bytes


class Cancellation:
    """Cancels the calls it was given to, present and future. `cancel` may be called from any
    thread.
    """

    def __init__(self) -> None:
        self._set = False
        self._calls: set[Call] = set()

    def cancel(self) -> None:
        """Cancels."""
        self._set = True
        for call in list(self._calls):
            call.cancel()

    def is_set(self) -> bool:
        """Whether `cancel` was called."""
        return self._set


class Options(NamedTuple):
    """How a call is made; see Session.options."""

    progress: Callable[[Progress], Any] | None = None
    cancel: Any = None
    timeout: float | None = None
    silence: float | None = None
    instance: str | None = None
    context: Mapping[str, Any] | None = None
    function: str | None = None


DEFAULT = Options()


class Call:
    """A call under way. Made by Session; waited for once, with `result` or `await`."""

    __slots__ = (
        "environment",
        "node",
        "options",
        "_session",
        "_channel",
        "_waiter",
        "_request",
        "_end",
        "_cancelled",
        "_outcome",
        "__weakref__",
    )

    def __init__(
        self, session: Session, environment: str, node: str, options: Options, waiter: Waiter
    ) -> None:
        self.environment = environment
        self.node = node
        self.options = options
        self._session = session
        self._waiter = waiter
        self._end: float | None = (
            None if options.timeout is None else time.monotonic() + options.timeout
        )
        self._cancelled = False
        self._channel: Channel | None = None
        self._request = 0
        self._outcome: tuple[bool, Any] | None = None  # (is an error, value or error), once known

    # ---- sending ---------------------------------------------------------------------------------

    def send(self, inputs: dict[str, Any]) -> None:
        """Sends the call. Raises SupervisorError."""
        for last in (False, True):  # a connection that broke while nobody looked is replaced once
            channel = self._session.channel()
            try:
                self._send(channel, inputs)
                break
            except CannotCross as error:
                raise errors.from_value(error) from error
            except ProtocolError as error:
                raise errors.ValueCannotCross(f"calling {self.node}: {error}") from error
            except ChannelGone as error:
                self._waiter.reply = None
                if last:
                    raise errors.SupervisorGone(f"calling {self.node}: {error}") from error
        cancel = self.options.cancel
        if isinstance(cancel, Cancellation):
            cancel._calls.add(self)
            if cancel.is_set():
                self.cancel()

    def _send(self, channel: Channel, inputs: dict[str, Any]) -> None:
        session = self._session
        # Encoded for this connection: at a reconnect the supervisor takes back files that it has
        # not seen in a message.
        encoded = values.encode(inputs, session.memory, session.role, "inputs")
        self._channel = channel
        request, lent = 0, False
        try:
            self._request = request = channel.begin(self._waiter)
            header = session.call_header(self, request, encoded.fields)
            encoded.lend(channel)
            lent = True
            channel.send(header, encoded.body)
        except BaseException as error:
            channel.forget(request)
            if not lent and isinstance(error, Exception):
                encoded.withdraw()
            elif isinstance(error, ProtocolError):
                encoded.recall()
            raise

    def params(self) -> dict[str, Any]:
        """The parameters of the request."""
        options = self.options
        params: dict[str, Any] = {
            "environment": self.environment,
            "node": self.node,
            "encoding": "python",
        }
        if options.function is not None:
            params["function"] = options.function
        if options.instance is not None:
            params["instance"] = options.instance
        if options.context is not None:
            params["context"] = dict(options.context)
        if options.silence is not None:
            params["silence_ms"] = int(options.silence * 1000)
        return params

    # ---- the caller's side -----------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancels the call, from any thread; nothing happens if it has ended."""
        channel = self._channel
        if channel is None or self._cancelled or self._waiter.reply is not None:
            return
        self._cancelled = True
        try:
            channel.notify("cancel", {}, call=self._request)
        except ChannelGone:
            pass  # whoever waits learns of it

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._outcome is not None or self._waiter.reply is not None

    def result(self) -> Any:
        """Waits, serves what is asked of the caller meanwhile, and returns what the node's function
        returned.

        Raises the node's exception, or a SupervisorError.
        """
        if self._outcome is None:
            channel, waiter = self._channel, self._waiter
            assert channel is not None, "the call was not sent"
            try:
                while True:
                    channel.wait(waiter, self._patience())
                    while waiter.inbox:
                        self._serve(waiter.inbox.popleft())
                    if waiter.reply is not None:
                        break
                    if channel.gone is not None:
                        waiter.reply = channel.gone
                        break
                    self._look_around()
            except BaseException:
                self.abandon()
                raise
            self._finish()
        return self._answer()

    async def wait(self, event: Any) -> Any:
        """The same for a coroutine; `event` is an asyncio.Event that the waiter sets."""
        import asyncio

        waiter, channel = self._waiter, self._channel
        assert channel is not None, "the call was not sent"
        try:
            while waiter.reply is None:
                try:
                    await asyncio.wait_for(event.wait(), self._patience())
                except asyncio.TimeoutError:
                    pass
                event.clear()
                while waiter.inbox:
                    await self._serve_async(waiter.inbox.popleft())
                if waiter.reply is None:
                    self._look_around()
        except (
            BaseException
        ):  # CancelledError above all: the prompt was cancelled, and so is the node
            self.abandon()
            raise
        while waiter.inbox:
            await self._serve_async(waiter.inbox.popleft())
        self._finish()
        return self._answer()

    def _patience(self) -> float | None:
        """Seconds to wait before looking around; None when only a message can change anything."""
        limits = []
        if self._end is not None:
            limits.append(max(0.0, self._end + _GRACE_SECONDS - time.monotonic()))
        cancel = self.options.cancel
        if cancel is not None and not self._cancelled and not isinstance(cancel, Cancellation):
            limits.append(_POLL_SECONDS)
        return min(limits) if limits else None

    def _look_around(self) -> None:
        cancel = self.options.cancel
        if cancel is not None and not self._cancelled and cancel.is_set():
            self.cancel()
        if self._end is not None and time.monotonic() >= self._end + _GRACE_SECONDS:
            message = f"{self.node} in {self.environment} took longer than {self.options.timeout} s"
            raise errors.CallSilent(
                message, {"kind": "silent", "environment": self.environment, "node": self.node}
            )

    def abandon(self) -> None:
        """Stops waiting: the call is cancelled, and its reply, if it still comes, dropped."""
        self._detach()
        if self._channel is not None and self._waiter.reply is None:
            self.cancel()
            self._channel.forget(self._request)
        elif isinstance(self._waiter.reply, tuple) and self._outcome is None:
            decode.discard(self._waiter.reply[0], self._session.memory)

    def _detach(self) -> None:
        if isinstance(self.options.cancel, Cancellation):
            self.options.cancel._calls.discard(self)

    # ---- what arrives meanwhile ------------------------------------------------------------------

    def _serve(self, item: tuple[Message, bytes]) -> None:
        message, body = item
        assert self._channel is not None
        if message.get("id"):
            self._session.serving.serve(self._channel, message, body)
        else:
            self._progress(message)

    async def _serve_async(self, item: tuple[Message, bytes]) -> None:
        message, body = item
        assert self._channel is not None
        if message.get("id"):
            await self._session.serving.serve_async(self._channel, message, body)
        else:
            result = self._progress(message)
            if hasattr(result, "__await__"):
                await result

    def _progress(self, message: Message) -> Any:
        params, report = message.get("params"), self.options.progress
        if report is not None and isinstance(params, dict):
            return report(
                Progress(
                    params.get("value"),
                    params.get("max"),
                    params.get("text"),
                    params.get("node_id"),
                )
            )
        return None

    # ---- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._detach()
        try:
            message, body = Channel.result(self._waiter)
            self._outcome = False, decode.decode(
                message, body, self._session.memory, self._session.role, "result"
            )
        except RemoteError as error:
            self._outcome = True, self._error(error)
        except CannotCross as error:
            self._outcome = True, errors.from_value(error)
        except ChannelGone as error:
            text = f"the supervisor went away during {self.node} in {self.environment}: {error}"
            self._outcome = True, errors.SupervisorGone(text)

    def _answer(self) -> Any:
        assert self._outcome is not None
        failed, value = self._outcome
        if failed:
            self._outcome = True, value
            try:
                raise value
            finally:
                del value  # the traceback refers to this frame
        return value

    def _error(self, error: RemoteError) -> BaseException:
        described = error.data.get("exception")
        cause = None
        if isinstance(described, dict):
            where = f"the worker of environment {self.environment!r}"
            cause = raising.rebuild(described, self._arguments(error), where)
            if error.kind == "node_raised":
                return cause
        elif error.files:
            decode.discard({"files": error.files}, self._session.memory)
        result = errors.from_remote(error)
        result.__cause__ = cause
        return result

    def _arguments(self, error: RemoteError) -> tuple[Any, ...] | None:
        if not error.body:
            return None
        try:
            message = {"files": error.files}
            value = decode.decode(message, error.body, self._session.memory, self._session.role)
            arguments = value["args"]
        except (CannotCross, KeyError, TypeError):
            return None  # the text is enough
        return arguments if type(arguments) is tuple else None


def refuse(channel: Channel, message: Message, kind: str, text: str) -> None:
    """Answers a request with an error; a connection that is gone needs no answer."""
    try:
        channel.reply_error(message["id"], error_object(kind, text))
    except ChannelGone:
        pass


def header_template(params: dict[str, Any]) -> tuple[bytes, bytes]:
    """What stands before and after the id in the header of a call without further fields."""
    text = encode_json(params).encode()
    return b'{"jsonrpc":"2.0","id":', b',"method":"call","params":%s}' % text
