"""The adapter's connection: calls of nodes, questions to workers, and what workers say of their own accord."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Protocol

import comfy_supervisor
from comfy_supervisor import errors, raising
from comfy_supervisor.calls import Options
from comfy_supervisor.wire import decode, values
from comfy_supervisor.wire.channel import Channel, Message, Waiter, encode_json
from comfy_supervisor.wire.errors import CannotCross, ChannelGone, ProtocolError, RemoteError, error_object

from . import hostmemory
from .hostcall import HostCall, Replay
from .hostrole import ComfyRole

# ComfyUI runs an asynchronous node to its end before it goes on, if that node waits for nothing. One that answers within
# this time counts as such: it is longer than a round trip, and short enough not to be noticed by the others.
AT_ONCE_SECONDS = 0.003
_HOST_THREADS = 4  # that answer what workers ask the host's server


class Listener(Protocol):
    """Hears what belongs to no call. On the thread that reads: it must neither block nor call."""

    def heard_message(self, environment: str, message: dict[str, Any]) -> None: ...
    def heard_worker(self, environment: str, generation: int, state: str) -> None: ...
    def heard_line(self, line: dict[str, Any]) -> None: ...
    @property
    def memory(self) -> Any:
        """What serves requests about memory (hostmemory.HostMemory)."""
        ...

    def asked(self, question: str, arguments: list[Any]) -> Any:
        """Answers a worker's question about the host, on a thread of its own."""
        ...


class NotAwake(Exception):
    """The worker does not run, and the question was not worth starting it."""


class Link:
    """Made once; connects when it is first used."""

    def __init__(self, comfyui: str, facts: Callable[[], dict[str, Any]], listener: Listener) -> None:
        """`comfyui` is the host's folder; `facts` returns what the host says about itself."""
        self._comfyui = comfyui
        self._facts = facts
        self._listener = listener
        self._lock = threading.Lock()
        self._session: Any = None
        self._answers: ThreadPoolExecutor | None = None

    def session(self) -> Any:
        """The session, connected. Raises SupervisorUnavailable."""
        session = self._session
        if session is None:
            with self._lock:
                session = self._session
                if session is None:
                    session = comfy_supervisor.connect(comfyui=self._comfyui, name="ComfyUI", facts=self._facts)
                    session.role = ComfyRole(session._due)
                    session.extension = self
                    for method in hostmemory.REQUESTS:
                        session.on_request(method, self._listener.memory.serve)
                    session.request("comfyui.logs", {})
                    self._session = session
        return session

    @property
    def connected(self) -> bool:
        """Whether there has been a connection; nothing is awake before that."""
        return self._session is not None

    def connection(self) -> Any:
        """The connection of the moment, None if there is none. Never connects."""
        return self._session.connection if self._session is not None else None

    def handles(self) -> dict[str, int]:
        """How many objects of workers are held here, by environment."""
        role = self._session.role if self._session is not None else None
        return role.held_handles() if isinstance(role, ComfyRole) else {}

    def drop_instance(self, environment: str, token: str) -> None:
        """Lets a worker forget a node object. For finalizers: neither locks nor blocks."""
        session = self._session
        if session is not None:
            session.drop_instance(environment, token)

    def settle(self, seconds: float) -> None:
        """Waits for workers to let go of the objects whose handles have gone, for `seconds` at most. Never connects."""
        session = self._session
        if session is not None:
            session.settle(seconds)

    # ---- calls -----------------------------------------------------------------------------------------------------

    def call(
        self, environment: str, node: str, options: Options, fields: dict[str, Any], envelope: dict[str, Any], replay: Replay
    ) -> tuple[dict[str, Any], int]:
        """Calls a node and waits. Returns the answer and the generation that gave it."""
        call = HostCall(self.session(), environment, node, options, Waiter(), fields, replay)
        call.send(envelope)
        return call.result(), call.generation

    async def call_async(
        self, environment: str, node: str, options: Options, fields: dict[str, Any], envelope: dict[str, Any], replay: Replay
    ) -> tuple[dict[str, Any], int]:
        """The same as a coroutine, on whatever loop runs: nothing of it outlives that loop."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # the loop has ended; so has whoever waited

        call = HostCall(self.session(), environment, node, options, Waiter(notify), fields, replay)
        call.send(envelope)
        call.linger(AT_ONCE_SECONDS)
        return await call.wait(event), call.generation

    # ---- questions -------------------------------------------------------------------------------------------------

    def ask(
        self, environment: str, method: str, params: dict[str, Any], value: Any = None, timeout: float | None = None
    ) -> Any:
        """Asks a worker's side lane and waits; it is started if need be. Raises what it raises, SupervisorError, and
        TimeoutError after `timeout` seconds."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        request = self._begin(environment, method, params, value, answers.put)
        try:
            return self._answer(environment, answers.get(timeout=timeout))
        except queue.Empty:
            self._forget(request)
            raise TimeoutError(f"no answer to {method!r} from {environment!r} within {timeout} s") from None

    async def ask_async(
        self,
        environment: str,
        method: str,
        params: dict[str, Any],
        value: Any = None,
        timeout: float | None = None,
        if_awake: bool = False,
    ) -> Any:
        """The same as a coroutine. With `if_awake` it raises NotAwake instead of starting a worker."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def arrived(waiter: Waiter) -> None:
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(waiter))
            except RuntimeError:
                pass  # the loop has ended

        params = {**params, "if_awake": True} if if_awake else params
        request = await loop.run_in_executor(None, self._begin, environment, method, params, value, arrived)
        try:
            return self._answer(environment, await asyncio.wait_for(future, timeout))
        except (asyncio.TimeoutError, asyncio.CancelledError):
            self._forget(request)
            raise

    def ask_later(self, environment: str, method: str, answered: Callable[[Any], None]) -> bool:
        """Asks a worker that is awake, without waiting: `answered(value or None)` follows, on the thread that reads.
        False, and no answer, when nothing could be asked."""

        def arrived(waiter: Waiter) -> None:
            try:
                answered(self._answer(environment, waiter))
            except Exception:  # not awake, gone, or unreadable: the last answer stays
                answered(None)

        try:
            self._begin(environment, method, {"if_awake": True}, None, arrived)
        except (errors.SupervisorError, CannotCross):
            return False
        return True

    def tell(self, environment: str, method: str, params: dict[str, Any]) -> None:
        """Notifies the supervisor, or an awake worker. Nothing happens when there is no connection."""
        session = self._session
        if session is not None:
            try:
                session.channel().notify(method, {"environment": environment, **params})
            except (ChannelGone, errors.SupervisorError):
                pass

    def _begin(
        self, environment: str, method: str, params: dict[str, Any], value: Any, done: Callable[[Any], None]
    ) -> tuple[Channel, int]:
        session = self.session()
        encoded = values.encode(value, session.memory, session.role, method)
        waiter = Waiter(lambda: done(waiter))
        channel = session.channel()
        request = 0
        try:
            request = channel.begin(waiter)
            message = {"jsonrpc": "2.0", "id": request, "method": method, "params": {"environment": environment, **params}}
            encoded.lend(channel)
            channel.send(encode_json({**message, **encoded.fields}).encode(), encoded.body)
        except (ChannelGone, ProtocolError) as error:
            channel.forget(request)
            if not request:
                encoded.withdraw()
            raise errors.SupervisorGone(f"asking {environment!r}: {error}") from error
        return channel, request

    @staticmethod
    def _forget(request: tuple[Channel, int]) -> None:
        channel, number = request
        channel.forget(number)

    def _answer(self, environment: str, waiter: Waiter) -> Any:
        session = self._session
        try:
            message, body = Channel.result(waiter)
        except RemoteError as error:
            described = error.data.get("exception")
            if error.kind == "node_raised" and isinstance(described, dict):
                raise raising.rebuild(described, None, f"the worker of environment {environment!r}") from None
            raise errors.from_remote(error) from None
        except ChannelGone as error:
            raise errors.SupervisorGone(f"the supervisor went away: {error}") from None
        result = message.get("result")
        if isinstance(result, dict) and result.get("awake") is False:
            raise NotAwake
        return decode.decode(message, body, session.memory, session.role, "answer")

    # ---- what arrives by itself ------------------------------------------------------------------------------------

    def on_notification(self, message: Message, body: bytes) -> bool:
        """Takes what belongs to no call."""
        method, params = message["method"], message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "log":
            self._listener.heard_line(params)
        elif method == "memory.residency":
            self._listener.memory.heard_residency(params)
        elif method == "comfyui.worker":
            generation = params.get("generation")
            self._listener.heard_worker(
                str(params.get("environment")), generation if isinstance(generation, int) else 0, str(params.get("state"))
            )
        elif method == "comfyui.message":
            session = self._session
            try:
                said = decode.decode(message, body, session.memory, session.role, "message")
            except CannotCross as error:
                logging.debug("a message of a worker could not be read: %s", error)
            else:
                if isinstance(said, dict):
                    self._listener.heard_message(str(params.get("environment")), said)
        else:
            return False
        return True

    def on_request(self, channel: Channel, message: Message, body: bytes) -> bool:
        """Takes what workers ask the host's server; answered on a thread of ours, for an answer may have to wait."""
        method = message["method"]
        if method in hostmemory.REQUESTS:
            self._listener.memory.asked(channel, message)
            return True
        if method == "census":
            channel.reply(message["id"], self._listener.memory.census())
            return True
        if method != "comfyui.host":
            return False
        if self._answers is None:
            self._answers = ThreadPoolExecutor(_HOST_THREADS, "comfy-supervisor-host")
        self._answers.submit(self.answer_host, channel, message, body)
        return True

    def answer_host(self, channel: Channel, message: Message, body: bytes) -> None:
        """Answers one question about the host."""
        session = self._session
        params = message.get("params")
        try:
            arguments = decode.decode(message, body, session.memory, session.role, "question")
            answer = self._listener.asked(str((params or {}).get("question")), arguments)
            encoded = values.encode(answer, session.memory, session.role, "answer")
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            reply_error(channel, message, text)
            return
        try:
            encoded.lend(channel)
            channel.reply(message["id"], {}, encoded.body, **encoded.fields)
        except ChannelGone:
            pass  # nobody waits for it any more


def reply_error(channel: Channel, message: Message, text: str) -> None:
    """Answers a request with an error; a connection that is gone needs no answer."""
    try:
        channel.reply_error(message["id"], error_object("internal", text))
    except ChannelGone:
        pass
