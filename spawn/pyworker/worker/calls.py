"""One node call, from its frame to its reply. Everything here runs on the main thread."""

from __future__ import annotations

import contextvars
import time
from typing import TYPE_CHECKING, Any

from . import comfy, contract, report, streams
from .wire import decode, plain, values
from .wire.channel import Message
from .wire.errors import CannotCross, ChannelGone, ProtocolError, error_object

if TYPE_CHECKING:
    from .worker import Worker

# The call whose code is running: for progress, from whatever thread a node reports it.
current_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar(
    "comfy_supervisor_call", default=None
)


class Refused(Exception):
    """A call that does not reach the node; carries the error object of the reply."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class Call:
    """A call that has arrived."""

    __slots__ = (
        "request",
        "message",
        "body",
        "params",
        "node",
        "cancelled",
        "task",
        "began",
        "json",
        "context",
        "_manager",
    )

    def __init__(self, message: Message, body: bytes) -> None:
        self.request: int = message["id"]
        self.message = message
        self.body = body
        params = message.get("params")
        self.params: dict[str, Any] = params if isinstance(params, dict) else {}
        self.node = str(self.params.get("node", ""))
        self.json = self.params.get("encoding") == "json"
        self.cancelled = False  # set by the thread that reads, under the main lane's lock
        self.task: Any = None
        self.began = 0.0
        context = self.params.get("context")
        self.context: dict[str, Any] = context if isinstance(context, dict) else {}
        self._manager: Any = None

    def enter_context(self) -> None:
        """Sets ComfyUI's context for the call, where ComfyUI's module for it is there."""
        if self._manager is None:
            manager = comfy.call_context(self.context)
            if manager is not None:
                manager.__enter__()
                self._manager = manager

    def leave_context(self) -> None:
        """Takes it back."""
        manager, self._manager = self._manager, None
        if manager is not None:
            try:
                manager.__exit__(None, None, None)
            except ValueError:
                # entered in another context, by an import on another thread: it ends with that one
                pass


def context_arrived(module: Any) -> None:
    """The post-import hook of ComfyUI's call context: a node that imports it in mid-call finds its
    own.
    """
    call = current_call.get()
    if call is not None and call.context:
        call.enter_context()


class Calls:
    """Runs calls for a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._instances: dict[tuple[str, str], Any] = {}
        self._accepted: dict[Any, frozenset[str] | None] = {}

    # ---- what a call is about --------------------------------------------------------------------

    def function(self, call: Call) -> Any:
        """The bound function of a call. Raises Refused for names that do not exist, and what the
        class raises.
        """
        if "comfyui" in call.params and self._worker.comfyui is not None:
            return self._worker.comfyui.function(call)
        nodes = self._worker.pack.nodes
        node = nodes.get(call.node)
        if node is None:
            nearest = contract.nearest(call.node, nodes)
            hint = f"; the nearest is {nearest!r}" if nearest else ""
            message = f"the environment has no node {call.node!r}{hint}"
            raise Refused(error_object("unknown_node", message, node=call.node, nearest=nearest))
        token = str(call.params.get("instance") or "")
        key = (call.node if not token else "", token)
        instance = self._instances.get(key)
        if instance is None or (token and type(instance) is not node and isinstance(node, type)):
            instance = self._instances[key] = node()
        name = str(call.params.get("function") or getattr(node, "FUNCTION", ""))
        function = getattr(instance, name, None)
        if function is None:
            message = f"node {call.node!r} has no function {name!r}, which its FUNCTION names"
            raise Refused(error_object("unknown_node", message, node=call.node))
        return function

    def inputs(self, call: Call, function: Any) -> dict[str, Any]:
        """The decoded inputs, their names checked. Raises Refused and CannotCross."""
        worker = self._worker
        if call.json:
            inputs = plain.decode_inputs(decode.read_body(call.message, call.body, worker.memory))
        elif call.body or "body_file" in call.message:
            inputs = decode.decode(call.message, call.body, worker.memory, worker.role, "inputs")
        else:
            inputs = {}
        if type(inputs) is not dict:
            raise CannotCross(f"inputs have to be a dict, not a {type(inputs).__name__}")
        if "comfyui" in call.params:
            return inputs  # an envelope; the node's inputs are in it
        key = getattr(function, "__func__", function)
        try:
            accepted = self._accepted[key]
        except KeyError:
            accepted = self._accepted[key] = contract.accepted_names(function)
        except TypeError:
            accepted = None  # a callable that can not be hashed says nothing about names either
        if accepted is not None and not accepted.issuperset(inputs):
            name = next(name for name in inputs if name not in accepted)
            nearest = contract.nearest(str(name), accepted)
            hint = f"; the nearest is {nearest!r}" if nearest else ""
            message = f"node {call.node!r} has no input {name!r}{hint}"
            raise Refused(error_object("unknown_input", message, node=call.node, nearest=nearest))
        call.body = b""
        return inputs

    def drop_instance(self, token: str) -> None:
        """Forgets the instance of a token; its __del__ may run the pack's code."""
        self._instances.pop(("", token), None)
        if self._worker.comfyui is not None:
            self._worker.comfyui.calls.drop(token)

    def objects(self) -> list[Any]:
        """The node instances that are kept."""
        comfyui = self._worker.comfyui
        return [*self._instances.values(), *(comfyui.calls.objects() if comfyui is not None else ())]

    @property
    def instances(self) -> int:
        """How many node instances are kept."""
        comfyui = self._worker.comfyui
        return len(self._instances) + (len(comfyui.calls) if comfyui is not None else 0)

    # ---- running ---------------------------------------------------------------------------------

    def run(self, call: Call, function: Any) -> None:
        """Runs a synchronous function and replies."""
        worker = self._worker
        lane = worker.main
        try:
            inputs = self.inputs(call, function)
        except BaseException as error:
            self.fail(call, error)
            return
        if not lane.begin_sync(call):
            self.reply_cancelled(call)
            return
        token = current_call.set(call)
        try:
            worker.modes.enter()
            worker.modes.in_call = True
            if call.context:
                call.enter_context()
            worker.begin_computing(call, inputs)
            result = function(**inputs)
        except (
            BaseException
        ) as error:  # SystemExit and KeyboardInterrupt of a node are its errors as well
            lane.end_sync()
            worker.end_computing(call, None)
            self.fail(call, error)
        else:
            lane.end_sync()
            worker.end_computing(call, result)
            self.reply(call, result)
        finally:
            worker.modes.in_call = False
            call.leave_context()
            current_call.reset(token)

    async def run_async(self, call: Call, function: Any) -> None:
        """Runs a coroutine function and replies. Nothing escapes but what asyncio itself needs."""
        worker = self._worker
        try:
            inputs = self.inputs(call, function)
            if call.cancelled:
                self.reply_cancelled(call)
                return
            call.began = time.monotonic()
            current_call.set(call)  # a task has a context of its own
            worker.modes.enter()
            if call.context:
                call.enter_context()
            worker.begin_computing(call, inputs)
            result = await function(**inputs)
        except BaseException as error:
            worker.end_computing(call, None)
            self.fail(call, error)
        else:
            worker.end_computing(call, result)
            self.reply(call, result)
        finally:
            call.leave_context()

    # ---- replies ---------------------------------------------------------------------------------

    def reply(self, call: Call, result: Any) -> None:
        """Encodes and sends a result; one that can not cross becomes the call's error."""
        worker = self._worker
        streams.flush()
        try:
            if call.json:
                encoded = plain.encode_result(result, worker.memory)
            else:
                encoded = values.encode(result, worker.memory, worker.role, "result")
        except BaseException as error:
            self.fail(call, error)
            return
        encoded.lend()
        worker.main.forget(call)
        try:
            if encoded.fields:
                worker.channel.reply(call.request, {}, encoded.body, **encoded.fields)
            else:
                worker.channel.reply_empty(call.request, encoded.body)
        except ChannelGone:
            pass  # nobody waits any more; the main lane ends by itself

    def reply_cancelled(self, call: Call) -> None:
        """Answers a call that was cancelled before it began."""
        error = error_object(
            "cancelled", f"node {call.node!r} was cancelled before it began", node=call.node
        )
        self._refuse(call, error)

    def _refuse(self, call: Call, error: dict[str, Any], body: bytes = b"") -> None:
        self._worker.main.forget(call)
        try:
            try:
                self._worker.channel.reply_error(call.request, error, body)
            except ProtocolError:  # a traceback that does not fit into a header, escaped
                exception = error["data"].get("exception", {})
                exception.update(
                    frames=[], traceback=ascii(exception.get("traceback", ""))[-20000:]
                )
                error["message"] = error["message"][:1000]
                exception["message"] = str(exception.get("message", ""))[:1000]
                self._worker.channel.reply_error(call.request, error)
        except ChannelGone:
            pass  # nobody waits any more; the main lane ends by itself

    def fail(self, call: Call, error: BaseException) -> None:
        """Answers a call with an error."""
        streams.flush()
        worker = self._worker
        if isinstance(error, Refused):
            if call.body:
                decode.discard(call.message, worker.memory)
            self._refuse(call, error.error)
            return
        if isinstance(error, CannotCross):
            self._refuse(call, error_object(error.kind, str(error), node=call.node))
            return
        interrupted = comfy.is_interrupt(error) or (call.cancelled and _is_cancelled_error(error))
        if interrupted:
            refusal = report.raised(
                "cancelled", error, f"node {call.node!r} was cancelled: ", node=call.node
            )
        else:
            refusal = report.raised("node_raised", error, node=call.node)
        body = b""
        arguments = report.plain_arguments(error)
        if arguments is not None:
            body = values.encode({"args": arguments}, worker.memory, worker.role).body
        self._refuse(call, refusal, body)


def _is_cancelled_error(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"
