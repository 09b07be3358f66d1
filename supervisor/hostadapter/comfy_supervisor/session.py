"""A process's session with a supervisor: the connection, and what it takes to keep it."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import deque
from typing import Any, Callable, Mapping, Protocol

from . import calls, errors, introduction, locations, starting
from .calls import DEFAULT, Call, CallerRequest, Options
from .role import HostRole
from .serving import Serving
from .wire import decode
from .wire.channel import Channel, Message, Waiter, encode_json
from .wire.errors import ChannelGone, RemoteError
from .wire.frames import pack
from .wire.memory import Memory

RECONNECT_SECONDS = 10.0  # the supervisor keeps a session that long without its connection
_RETRY_SECONDS = 0.1
_ANOTHER_SECONDS = 10.0  # for a supervisor that another process has started to accept clients
_MOST_TEMPLATES = 256

_sessions: dict[str, Session] = {}
_sessions_lock = threading.Lock()


class Extension(Protocol):
    """What a program adds to its session: it gets what no call of this client waits for, on the
    thread that reads.
    """

    def on_request(self, channel: Channel, message: Message, body: bytes) -> bool:
        """Takes a request, to be answered later; False for one that is not its own."""
        ...

    def on_notification(self, message: Message, body: bytes) -> bool:
        """Takes a notification that belongs to no call; False for one that is not its own."""
        ...


def connect(
    socket: str | None = None,
    start: bool = True,
    *,
    comfyui: str = "",
    name: str = "",
    facts: Callable[[], dict[str, Any]] | None = None,
) -> Session:
    """This process's session with the supervisor at `socket`, by default where the settings have
    it.

    Where none listens one is started, unless `start` is False. `comfyui` is the host's ComfyUI
    folder, `name` the program's name for people; `facts` returns what the host says about itself
    when it introduces itself. A process has one session a supervisor: a second call returns the
    first one's. Raises SupervisorUnavailable.
    """
    path = os.path.abspath(socket or locations.socket_path())
    with _sessions_lock:
        session = _sessions.get(path)
        if session is None or session.closed:
            session = Session(path, start, comfyui, name)
            session.facts = facts
            session.channel()
            _sessions[path] = session
    return session


class Session:
    """Made by `connect`. Every method may be called from every thread."""

    def __init__(self, path: str, start: bool, comfyui: str, name: str) -> None:
        self.path = path
        self.memory = Memory(secrets.token_hex(16), self._present)
        self.role = HostRole(self._due)
        self.serving = Serving(self.memory)
        self.supervisor: dict[str, Any] = {}  # pid, start_time, version: of the one connected last
        self.id = ""
        self.closed = False
        self.extension: Extension | None = None
        self.facts: Callable[[], dict[str, Any]] | None = None
        self._start = start
        self._comfyui = comfyui
        self._name = name or "comfy_supervisor"
        self._pid = os.getpid()
        self._token = ""
        self._channel: Channel | None = None
        self._connecting = threading.RLock()
        self._templates: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._listening: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._dropped: deque[tuple[str, str]] = deque()

    # ---- calls -----------------------------------------------------------------------------------

    def call(self, environment: str, node: str, /, **inputs: Any) -> Any:
        """Runs a node's function in the environment's worker and returns what it returned.

        Raises what the node raised, or a SupervisorError. An input may have any name; see `options`
        for the rest.
        """
        return self._begin(environment, node, inputs, DEFAULT, Waiter()).result()

    async def call_async(self, environment: str, node: str, /, **inputs: Any) -> Any:
        """The same as a coroutine, on whatever asyncio loop runs. Its cancel is the node's."""
        return await self._call_async(environment, node, inputs, DEFAULT)

    def start(self, environment: str, node: str, /, **inputs: Any) -> Call:
        """Sends the call and returns at once; `Call.result()` waits for it."""
        return self._begin(environment, node, inputs, DEFAULT, Waiter())

    def options(
        self,
        *,
        progress: Callable[[calls.Progress], Any] | None = None,
        cancel: Any = None,
        timeout: float | None = None,
        silence: float | None = None,
        instance: str | None = None,
        context: Mapping[str, Any] | None = None,
        function: str | None = None,
    ) -> Caller:
        """The same three ways to call, with options.

        `progress` is called on the waiting thread; `cancel` is a Cancellation, or anything with
        `is_set`; `timeout` limits the whole call and `silence` its time without progress, in
        seconds; `instance` names the instance of the node class; `context` holds prompt_id,
        node_id, list_index; `function` replaces the node's own.
        """
        chosen = Options(progress, cancel, timeout, silence, instance, context, function)
        return Caller(self, chosen)

    def _begin(
        self, environment: str, node: str, inputs: dict[str, Any], options: Options, waiter: Waiter
    ) -> Call:
        call = Call(self, environment, node, options, waiter)
        call.send(inputs)
        return call

    async def _call_async(
        self, environment: str, node: str, inputs: dict[str, Any], options: Options
    ) -> Any:
        import asyncio

        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # the loop has ended; so has whoever waited

        return await self._begin(environment, node, inputs, options, Waiter(notify)).wait(event)

    def call_header(self, call: Call, request: int, fields: dict[str, Any]) -> bytes:
        """The header of a call's request."""
        if call.options is DEFAULT and not fields:
            key = call.environment, call.node
            template = self._templates.get(key)
            if template is None:
                template = calls.header_template(call.params())
                if len(self._templates) < _MOST_TEMPLATES:
                    self._templates[key] = template
            return b"%b%d%b" % (template[0], request, template[1])
        message = {
            "jsonrpc": "2.0",
            "id": request,
            "method": "call",
            "params": call.params(),
            **fields,
        }
        if call.options.timeout is not None:
            message["deadline_ms"] = max(1, int(call.options.timeout * 1000))
        return encode_json(message).encode()

    # ---- everything else the supervisor does -----------------------------------------------------

    def stop(self, environment: str = "") -> list[dict[str, Any]]:
        """Ends the session's worker of an environment, or all; they are gone when it returns.
        Returns what was ended.
        """
        return (
            self.request("stop", {"environment": environment} if environment else {}).get("stopped")
            or []
        )

    def restart(self, environment: str = "") -> list[dict[str, Any]]:
        """Ends workers and starts their replacements."""
        return (
            self.request("restart", {"environment": environment} if environment else {}).get(
                "stopped"
            )
            or []
        )

    def environments(self) -> list[dict[str, Any]]:
        """The environments this session can use: name, stack, pack, python, prefix, revision, error
        ...
        """
        found: list[dict[str, Any]] = []
        while True:  # a long list comes in parts
            answer = self.request("environments", {"after": len(found)})
            part = answer.get("environments") or []
            found += part
            if not part or not answer.get("more"):
                return found

    def nodes(self, environment: str) -> dict[str, Any]:
        """The contracts of an environment's nodes, as {"nodes": [...], "display_names": {...}};
        starts its worker.
        """
        message, body = self._request("nodes", {"environment": environment})
        result = message.get("result")
        if isinstance(result, dict) and result.get("nodes_in_body"):
            return decode.read_envelope(message, body, self.memory)
        return result if isinstance(result, dict) else {}

    def status(self) -> dict[str, Any]:
        """Everything the supervisor knows."""
        return self.request("status", {})

    def ping(self) -> float:
        """Seconds that a sign of life takes."""
        begin = time.monotonic()
        self.request("ping", {})
        return time.monotonic() - begin

    def request(
        self, method: str, params: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """Sends any request and returns its result. Raises SupervisorError, and TimeoutError after
        `timeout` seconds.
        """
        message, body = self._request(method, params, timeout)
        result = message.get("result")
        if isinstance(result, dict) and result.get("in_body"):  # it was too large for a header
            import json

            result = json.loads(body)
        return result if isinstance(result, dict) else {}

    def _request(
        self, method: str, params: Any, timeout: float | None = None
    ) -> tuple[Message, bytes]:
        try:
            return self.channel().request(method, params, timeout=timeout)
        except RemoteError as error:
            raise errors.from_remote(error) from None
        except ChannelGone as error:
            raise errors.SupervisorGone(
                f"the supervisor went away during {method!r}: {error}"
            ) from error

    def drop_instance(self, environment: str, instance: str) -> None:
        """Lets the worker forget a node instance. Takes no lock and never blocks, so a finalizer
        may call it.
        """
        self._dropped.append((environment, instance))
        self._due()

    def settle(self, seconds: float) -> bool:
        """Sends out which handles were dropped since the last time, and waits until their workers
        have let go of the objects, for `seconds` at most.

        False if some may still be there: a worker computes, does not know the question or does not
        answer, or there is no connection. Never connects.
        """
        environments, channel = self.role.unsettled(), self.connection
        if not environments:
            return True
        if channel is None:
            return False
        end = time.monotonic() + seconds
        waiters: dict[int, Waiter] = {}
        try:
            channel.due()  # by now; a finalizer on another thread may not have come to say so
            for environment in environments:
                waiter = Waiter()
                request = channel.begin(waiter)
                waiters[request] = waiter
                params = {"environment": environment, "if_awake": True}
                message = {
                    "jsonrpc": "2.0",
                    "id": request,
                    "method": "handle.settle",
                    "params": params,
                }
                channel.send(encode_json(message).encode())
            for waiter in waiters.values():
                channel.wait(waiter, end - time.monotonic())
        except ChannelGone:
            return False
        finally:
            for request in waiters:
                channel.forget(request)
        return all(map(_settled, waiters.values()))

    def on_request(self, method: str, function: Callable[[CallerRequest], Any] | None) -> None:
        """Serves requests that are meant for the thread that waits in a call.

        `function` runs on that thread and returns a dict for JSON, or None; for `call_async` it may
        be a coroutine function. None takes it back.
        """
        self.serving.register(method, function)

    def on_notification(
        self, method: str, function: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        """Hears notifications that belong to no call, on the thread that reads: it must neither
        block nor call.
        """
        if function is None:
            self._listening.pop(method, None)
        else:
            self._listening[method] = function

    def close(self) -> None:
        """Ends the session. Its workers end with it, at the latest ten seconds after."""
        with self._connecting:
            self.closed = True
            channel = self._channel
        if channel is not None:
            try:
                channel.notify("goodbye", {})
            except ChannelGone:
                pass
            channel.close()
        with _sessions_lock:
            if _sessions.get(self.path) is self:
                del _sessions[self.path]

    # ---- the connection --------------------------------------------------------------------------

    def channel(self) -> Channel:
        """The connection, made anew if it is gone. Raises SupervisorUnavailable."""
        channel = self._channel
        if channel is not None and channel.gone is None:
            return channel
        return self._connect(self._start)

    @property
    def connection(self) -> Channel | None:
        """The connection of the moment, None if it is gone. Never connects."""
        channel = self._channel
        return channel if channel is not None and channel.gone is None else None

    def _present(self) -> Channel:
        """The connection of the moment, gone or not, for the memory files. Never connects."""
        channel = self._channel
        if channel is None:
            raise ChannelGone("not connected yet")
        return channel

    def _due(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.due()

    def _connect(self, start: bool) -> Channel:
        if self._pid != os.getpid():
            raise errors.SupervisorGone(
                "this session belongs to the parent process: call connect() in the child"
            )
        with self._connecting:
            if self.closed:
                raise errors.SupervisorGone("the session was closed")
            channel = self._channel
            if channel is not None and channel.gone is None:
                return channel
            channel = _dial(self.path, start, _Link(self))
            channel.start()
            try:
                self._introduce(channel)
            except BaseException:
                channel.close()
                raise
            channel.set_chore(self._notices)
            self._channel = channel
            channel.due()
            return channel

    def _introduce(self, channel: Channel) -> None:
        facts = self.facts() if self.facts is not None else None
        params = introduction.hello(self.memory.owner, self._name, self._comfyui, facts)
        if self._token:
            params["token"] = self._token
            params.update(self.memory.inventory())
        introduction.shorten(params)
        answer = introduction.introduce(channel, self.path, params)
        self.supervisor = answer["supervisor"]
        self.id = str(answer.get("session") or "")
        self._token = str(answer.get("token") or "")
        self.memory.pool.configure(answer.get("memory"))

    def _notices(self) -> list[bytes]:
        """What finalizers have left to say."""
        frames = self.memory.notices()
        for params in self.role.collect():
            frames.append(_notification("handle.drop", params))
        while self._dropped:
            environment, instance = self._dropped.popleft()
            frames.append(
                _notification("instance.drop", {"environment": environment, "instance": instance})
            )
        return frames

    def lost(self) -> None:
        """The connection has ended: a supervisor that comes back within the window finds the
        session again.
        """
        if self._channel is not None and not self.closed and self._pid == os.getpid():
            threading.Thread(
                target=self._come_back, name="comfy-supervisor-reconnect", daemon=True
            ).start()

    def _come_back(self) -> None:
        end = time.monotonic() + RECONNECT_SECONDS
        while time.monotonic() < end and not self.closed:
            channel = self._channel
            if channel is not None and channel.gone is None:
                return
            try:
                self._connect(start=False)
                return
            except errors.SupervisorError:
                # A socket that does not exist yet has no event to wait for.
                time.sleep(_RETRY_SECONDS)

    # ---- what arrives ----------------------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """Handles a notification that belongs to no call."""
        method, params = message["method"], message.get("params")
        if method == "memory.released":
            self.memory.on_released(params)
            return
        function = self._listening.get(method)
        if function is not None:
            function(params if isinstance(params, dict) else {})


class Caller:
    """A session with options for its calls."""

    __slots__ = ("_session", "_options")

    def __init__(self, session: Session, options: Options) -> None:
        self._session = session
        self._options = options

    def call(self, environment: str, node: str, /, **inputs: Any) -> Any:
        """See Session.call."""
        return self._session._begin(environment, node, inputs, self._options, Waiter()).result()

    async def call_async(self, environment: str, node: str, /, **inputs: Any) -> Any:
        """See Session.call_async."""
        return await self._session._call_async(environment, node, inputs, self._options)

    def start(self, environment: str, node: str, /, **inputs: Any) -> Call:
        """See Session.start."""
        return self._session._begin(environment, node, inputs, self._options, Waiter())


class _Link:
    """What one connection's frames lead to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.channel: Channel | None = None

    def on_request(self, message: Message, body: bytes) -> None:
        """Requests for the caller go to the call that they name; the rest is answered where frames
        are read.
        """
        channel, session = self.channel, self._session
        assert channel is not None
        method = message["method"]
        if message.get("lane") == "caller":
            waiter = channel.waiter_of(message.get("call"))
            if waiter is None:
                decode.discard(message, session.memory)
                calls.refuse(
                    channel,
                    message,
                    "bad_request",
                    f"{method}: the call is not waited for any more",
                )
            else:
                channel.post(waiter, (message, body))
        elif method == "ping":
            channel.reply(message["id"], {})
        elif method == "memory.inventory":
            channel.reply(message["id"], session.memory.inventory())
        elif session.extension is not None and session.extension.on_request(channel, message, body):
            pass
        else:
            decode.discard(message, session.memory)
            calls.refuse(channel, message, "unknown_method", f"a host has no method {method!r}")

    def on_notification(self, message: Message, body: bytes) -> None:
        """Progress goes to its call."""
        channel = self.channel
        assert channel is not None
        waiter = channel.waiter_of(message.get("call"))
        if waiter is not None:
            channel.post(waiter, (message, body))
            return
        extension = self._session.extension
        if extension is not None and extension.on_notification(message, body):
            return
        decode.discard(message, self._session.memory)
        self._session.heard(message)

    def on_stray(self, message: Message) -> None:
        """The reply to a call that was abandoned: its files are let go."""
        decode.discard(message, self._session.memory)

    def on_gone(self, error: ChannelGone) -> None:
        """The connection has ended."""
        if self._session._channel is self.channel:
            self._session.lost()


def _after_fork_in_child() -> None:
    """A forked child has no session yet; whatever lock another thread held stays in the parent."""
    global _sessions_lock
    _sessions_lock = threading.Lock()
    _sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _dial(path: str, start: bool, link: _Link) -> Channel:
    try:
        transport = starting.dial(path)
    except OSError as error:
        if not start or not starting.nobody_listens(error):
            raise errors.SupervisorUnavailable(
                f"no supervisor answers at {path}: {error}"
            ) from error
        ours = starting.start()
        end = time.monotonic() + (0.0 if ours else _ANOTHER_SECONDS)
        while True:
            try:
                transport = starting.dial(path)
                break
            except OSError as again:
                if time.monotonic() >= end or not starting.nobody_listens(again):
                    raise errors.SupervisorUnavailable(
                        f"a supervisor was started, but none answers at {path}: {again}; do its"
                        " settings name another socket?"
                    ) from again
                # One that somebody else started comes up; a socket that is not there has no event.
                time.sleep(_RETRY_SECONDS)
    link.channel = Channel(transport, link, "comfy-supervisor-reader")
    return link.channel


def _settled(waiter: Waiter) -> bool:
    if not isinstance(waiter.reply, tuple):
        return False
    result = waiter.reply[0].get("result")
    if not isinstance(result, dict):
        return False
    return result.get("settled") is True or result.get("awake") is False  # nobody keeps anything


def _notification(method: str, params: Any) -> bytes:
    return pack(encode_json({"jsonrpc": "2.0", "method": method, "params": params}).encode())
