"""What stands between the node proxies of one environment and its worker."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from comfy_supervisor import errors
from comfy_supervisor.calls import Options
from comfy_supervisor.wire.marks import mark

from . import executor
from .live import apply_change
from .link import NotAwake
from .nodecall import NodeCall
from .replay import replay

if TYPE_CHECKING:
    from .adapter import Adapter

_LIVE_KINDS = ("PROMPT", "EXTRA_PNGINFO")  # hidden inputs that nodes write into
_LIVE_HIDDEN = ("prompt", "extra_pnginfo")  # the same, by their names in cls.hidden
_MARKS_KEPT = 8  # of objects that the worker knows; it keeps more
_QUESTIONS_KEPT = 512  # nodes whose VALIDATE_INPUTS is still to be asked
_LINES_SHOWN = 20  # of a worker that died
_VALIDATE_SECONDS = 30.0  # a worker that answers later is asked again right before the function


class Bridge:
    """One per environment and pack folder."""

    def __init__(self, adapter: Adapter, environment: str, pack: str, unavailable: str = "") -> None:
        """`unavailable` says why no worker can be had; calls then raise it."""
        self.environment = environment
        self.pack = pack
        self.unavailable = unavailable
        self.awake = False  # as far as has been heard
        self.generation = 0  # the last that answered
        self.dead_generation = 0  # what this one or an older one kept is gone
        self._adapter = adapter
        self._lock = threading.Lock()
        self._marks: OrderedDict[str, None] = OrderedDict()
        self._folders = ""  # the version of the registry that the worker has
        self._questions: OrderedDict[tuple[str, str], list[dict[str, Any]]] = OrderedDict()

    # ---- calls -----------------------------------------------------------------------------------------------------

    def call(self, call: NodeCall) -> Any:
        """Calls and waits, on the executor's thread or any other."""
        questions = self._take_questions(call)
        for complete in (False, True):
            sent = _Sent(self, call, questions, complete)
            try:
                answer, generation = self._adapter.link.call(*sent.arguments())
            except BaseException as error:
                if self._again(error, complete):
                    continue
                raise self._as_host(error) from None
            return self._finish(sent, answer, generation)
        raise AssertionError("the second attempt returns or raises")

    async def call_async(self, call: NodeCall) -> Any:
        """The same as a coroutine; cancelling it cancels the node."""
        questions = self._take_questions(call)
        for complete in (False, True):
            sent = _Sent(self, call, questions, complete)
            try:
                answer, generation = await self._adapter.link.call_async(*sent.arguments())
            except BaseException as error:
                if self._again(error, complete):
                    continue
                raise self._as_host(error) from None
            return self._finish(sent, answer, generation)
        raise AssertionError("the second attempt returns or raises")

    def _again(self, error: BaseException, complete: bool) -> bool:
        """Whether the worker lacks something that it was thought to have."""
        if complete or getattr(error, "kind", "") != "resend":
            return False
        with self._lock:
            self._marks.clear()
            self._folders = ""
        return True

    def _as_host(self, error: BaseException) -> BaseException:
        """A call's error as ComfyUI knows it."""
        if isinstance(error, errors.CallCancelled):
            return executor.interrupted() or error
        if isinstance(error, errors.SupervisorError) and executor.StopButton.is_set():
            return executor.interrupted() or error  # its worker was ended for a node that did not look at the button
        if isinstance(error, errors.WorkerDied):
            self.heard_state(int(error.data.get("generation") or 0), "gone")
            return _with_last_lines(error)
        return error

    def _finish(self, sent: _Sent, answer: dict[str, Any], generation: int) -> Any:
        call = sent.call
        self.generation = generation
        self.awake = True
        with self._lock:
            self._folders = sent.folders_version
            for name in sent.marks:
                self._marks[name] = None
                self._marks.move_to_end(name)
            while len(self._marks) > _MARKS_KEPT:
                self._marks.popitem(last=False)
        if call.instance is not None:
            call.instance.generation = generation
            if "state" in answer:
                call.instance.state = answer["state"]
        for name, changed in answer.get("live", {}).items():
            apply_change(sent.live[name], changed)
        executor.advance_graph(sent.graph, answer.get("graph_index"))
        return answer["value"]

    # ---- validation ------------------------------------------------------------------------------------------------

    async def validate(self, call: NodeCall) -> Any:
        """Asks VALIDATE_INPUTS of a worker that is awake; one that sleeps is asked right before the function."""
        context = executor.context()
        envelope: dict[str, Any] = {"inputs": call.inputs}
        if call.hidden is not None:
            envelope["hidden"] = call.hidden
        if self.awake and not self.unavailable:
            try:
                answer = await self._adapter.link.ask_async(
                    self.environment,
                    "comfyui.ask",
                    {"node": call.node, "function": call.function},
                    envelope,
                    timeout=_VALIDATE_SECONDS,
                    if_awake=True,
                )
                return answer["value"]
            except (NotAwake, TimeoutError, errors.SupervisorGone, errors.WorkerDied):
                pass
        if context is not None:
            with self._lock:
                key = context.prompt_id, context.node_id
                self._questions.setdefault(key, []).append(call.inputs)
                while len(self._questions) > _QUESTIONS_KEPT:
                    self._questions.popitem(last=False)
        return True

    def _take_questions(self, call: NodeCall) -> list[dict[str, Any]]:
        """The questions about a node that nobody has answered yet."""
        context = executor.context() if call.runs_node and self._questions else None
        if context is None:
            return []
        with self._lock:
            return self._questions.pop((context.prompt_id, context.node_id), [])

    # ---- what proxies read -----------------------------------------------------------------------------------------

    def inputs(self, node: str) -> Any:
        """See nodecall.Bridge."""
        on_server = threading.current_thread() is threading.main_thread()
        return self._adapter.inputs.get(self.environment, node, refresh=on_server)

    def live_names(self, node: str) -> list[str]:
        """The inputs of a V1 node through which it gets live objects."""
        described = self._adapter.inputs.peek(self.environment, node)
        hidden = described.get("hidden") if isinstance(described, dict) else None
        if not isinstance(hidden, dict):
            return []
        return [name for name, kind in hidden.items() if kind in _LIVE_KINDS]

    def drop(self, token: str) -> None:
        """See nodecall.Bridge."""
        self._adapter.link.drop_instance(self.environment, token)

    # ---- what is heard ---------------------------------------------------------------------------------------------

    def heard_state(self, generation: int, state: str) -> None:
        """Takes note of the worker's state."""
        self.awake = state in ("ready", "busy", "released")
        if state in ("stopping", "gone", "backoff", "quarantined") and generation > self.dead_generation:
            self.dead_generation = generation
        if state in ("starting", "ready"):
            with self._lock:
                self._marks.clear()
                self._folders = ""

    def knows(self, name: str) -> bool:
        """Whether the worker has the live object of a mark."""
        with self._lock:
            return name in self._marks

    def folders(self) -> tuple[str, dict[str, Any] | None]:
        """The version of the folder registry, and the registry itself if the worker has another one."""
        version, registry = self._adapter.folders()
        return version, (None if version == self._folders else registry)


def _with_last_lines(error: errors.WorkerDied) -> errors.WorkerDied:
    """The error with what the worker wrote last, for whoever reads it in the browser."""
    lines = error.stderr[-_LINES_SHOWN:]
    if not lines:
        return error
    shown = "\n".join(lines)
    return type(error)(f"{error}\n\nIts last lines were:\n{shown}", error.data)


class _Sent:
    """What one attempt of a call sends, and what its answer is matched with."""

    def __init__(self, bridge: Bridge, call: NodeCall, questions: list[dict[str, Any]], complete: bool) -> None:
        """`complete`: nothing is left out that the worker might have."""
        if bridge.unavailable:
            raise RuntimeError(bridge.unavailable)
        self.call = call
        self.marks: list[str] = []
        self.live: dict[str, Any] = {}
        self.graph = executor.graph()
        self._bridge = bridge
        self._context = executor.context()
        self._questions = questions
        self.folders_version, self._registry = bridge.folders()
        self._envelope = self._wrap(complete)
        self._complete = complete

    def _wrap(self, complete: bool) -> dict[str, Any]:
        call, bridge = self.call, self._bridge
        inputs = dict(call.inputs)
        envelope: dict[str, Any] = {"inputs": inputs}
        if call.hidden is None:
            holder, names = inputs, [name for name in bridge.live_names(call.node) if name in inputs]
        else:
            holder = envelope["hidden"] = dict(call.hidden)
            names = [name for name in _LIVE_HIDDEN if name in holder]
        live = {}
        for name in names:
            value = holder.pop(name)
            if value is None:
                holder[name] = None
                continue
            self.live[name] = value
            live[name] = self._mark(value, complete)
        if live:
            envelope["live"] = live
        instance = call.instance
        if instance is not None and instance.state and (complete or instance.generation != bridge.generation):
            envelope["state"] = instance.state
        if self._questions:
            envelope["validate"] = self._questions
        return envelope

    def _mark(self, value: Any, complete: bool) -> dict[str, Any]:
        name = mark(value)
        if not name:
            return {"mark": "", "value": value}
        known = not complete and self._bridge.knows(name)
        self.marks.append(name)
        return {"mark": name} if known else {"mark": name, "value": value}

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of Link.call."""
        call, context, bridge = self.call, self._context, self._bridge
        fields: dict[str, Any] = {"host": executor.server_state(), "graph": self.graph}
        if self._registry is not None:
            fields["folders"], fields["folders_version"] = self._registry, self.folders_version
        if self._questions:
            fields["validates"] = True
        if call.instance is not None and call.instance.state and not self._complete:
            fields["stateful"] = call.instance.generation > 0
        options = Options(function=call.function)
        prompt_id = node_id = None
        if context is not None:
            prompt_id, node_id = context.prompt_id, context.node_id
            described = {"prompt_id": prompt_id, "node_id": node_id, "list_index": context.list_index}
            options = options._replace(cancel=executor.StopButton, context=described)
        if call.instance is not None:
            options = options._replace(instance=call.instance.token)

        def replayed(message: dict[str, Any]) -> None:
            try:
                replay(message, prompt_id, node_id)
            except Exception as error:
                logging.warning("[%s] a message of %s could not be shown: %s", bridge.pack, call.node, error)

        return bridge.environment, call.node, options, fields, self._envelope, replayed
