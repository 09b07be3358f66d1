"""The object of a worker process: it takes what arrives to the lane that serves it."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

from . import comfy, report, streams
from .calls import Call, Calls, context_arrived, current_call
from .imports import ImportHooks
from .mainlane import MainLane
from .modes import CHOICES, Modes
from .pack import REPORTED_PACKAGES, Pack, versions
from .role import WorkerRole
from .sidelane import SideLane
from .wire import PROTOCOL, decode
from .wire.channel import Channel, Message, encode_json
from .wire.descriptors import move_high
from .wire.errors import ChannelGone, SupervisorChanged, error_object
from .wire.memory import Memory
from .wire.transport import Transport
from .wire.values import envelope

if TYPE_CHECKING:
    from .comfyui.adapter import ComfyUI

_MOST_NODES_BYTES = 128 << 10  # of contracts in a header; longer ones go into the body


class Worker:
    """Made once per process."""

    def __init__(self, transport: Transport, worker_id: str) -> None:
        """`worker_id` begins the ids of the memory files made here."""
        self.id = worker_id
        self.generation = 0
        self.channel = Channel(transport, self, "comfy-supervisor-reader", move_high)
        self.memory = Memory(worker_id, lambda: self.channel)
        self.channel.set_chore(self.memory.notices)
        self.role = WorkerRole()
        self.role.worker = worker_id
        self.modes = Modes()
        self.pack = Pack()
        self.calls = Calls(self)
        self.main = MainLane(self)
        self.side = SideLane()
        self.hooks = ImportHooks()
        self.comfyui: ComfyUI | None = None  # what a host that is ComfyUI gets, from load on
        self._loaded = False
        self._ready = False  # the pack is imported
        self._on_reader: dict[str, Callable[[Message], Any]] = {
            "ping": lambda message: self.main.state(),
            "census": lambda message: self._census(),
            "stacks": lambda message: {"text": stacks()},
            "memory.inventory": lambda message: self._inventory(),
        }
        self._on_main: dict[str, Callable[[Message], None]] = {
            "load": self._load,
            "shutdown": self._shutdown,
        }
        self._on_side: dict[str, Callable[[Message], None]] = {"nodes": self._nodes}

    def run(self) -> None:
        """Says hello and serves until the connection ends. The main thread's."""
        self.channel.start()
        hello = {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "executable": sys.executable,
            "worker": self.id,
        }
        self.channel.notify("hello", hello)
        self.main.run()

    # ---- the thread that reads -------------------------------------------------------------------

    def on_request(self, message: Message, body: bytes) -> None:
        """Takes a request to its lane."""
        method, request = message["method"], message["id"]
        generation = message.get("generation")
        if generation and self.generation and generation != self.generation:
            decode.discard(message, self.memory)
            text = f"a request for generation {generation} reached generation {self.generation}"
            self.channel.reply_error(request, error_object("wrong_generation", text))
        elif method == "call":
            self.main.post_call(Call(message, body))
        elif method in self._on_reader:
            self.channel.reply(request, self._on_reader[method](message))
        elif method == "handle.settle":
            self._settle(request)
        elif self.comfyui is not None and self.comfyui.serves(method):
            self.comfyui.post(message, body)
        elif method in self._on_main:
            serve = self._on_main[method]
            self.main.post(lambda: serve(message))
        elif method in self._on_side:
            serve = self._on_side[method]
            self.side.post(lambda: serve(message))
        else:
            decode.discard(message, self.memory)
            self.channel.reply_error(
                request, error_object("unknown_method", f"a worker has no method {method!r}")
            )

    def on_notification(self, message: Message, body: bytes) -> None:
        """Handles a notification; unknown ones are ignored."""
        method, params = message["method"], message.get("params")
        if not isinstance(params, dict):
            params = {}
        if method == "cancel":
            self.main.cancel(message.get("call") or params.get("call") or 0)
            if self.comfyui is not None:
                self.comfyui.memory.cancelled()
        elif method == "memory.prompt" and self.comfyui is not None:
            self.comfyui.memory.prompt(params)
        elif method == "memory.released":
            self.memory.on_released(params)
        elif method == "instance.drop":
            token = str(params.get("instance") or "")
            self.main.post(lambda: self._dropped(self.calls.drop_instance, token))
        elif method == "handle.drop":
            generation, handles = params.get("generation"), params.get("handles")
            if generation and self.generation and generation != self.generation:
                return  # of a worker that is gone, whose objects had the same numbers
            self.main.post(lambda: self._dropped(self.role.drop, handles))
        else:
            decode.discard(message, self.memory)

    def on_stray(self, message: Message) -> None:
        """A reply that came too late: its files are let go."""
        decode.discard(message, self.memory)

    def on_gone(self, error: ChannelGone) -> None:
        """The launcher has closed the connection; the main thread ends when it is idle."""
        self.main.wake_loop()

    def _inventory(self) -> dict[str, Any]:
        """What a supervisor asks that has taken over: the one before may have died with questions
        of ours unanswered.
        """
        self.channel.end_pending(SupervisorChanged("another supervisor has taken over"))
        return self.memory.inventory()

    def _census(self) -> dict[str, Any]:
        census: dict[str, Any] = {
            "memory_files": {
                **self.memory.pool.sizes(),
                "mapped_bytes": self.memory.mappings.mapped_bytes(),
            },
            "handles": self.role.held(),
            "instances": self.calls.instances,
        }
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            census["torch"] = {
                "reserved_bytes": cuda.memory_reserved(),
                "allocated_bytes": cuda.memory_allocated(),
            }
        if self.comfyui is not None:
            census.update(self.comfyui.memory.answer())
        return census

    # ---- the main thread -------------------------------------------------------------------------

    def _dropped(self, drop: Callable[[Any], None], what: Any) -> None:
        """Lets go of something, and of what it may have held on a card."""
        try:
            drop(what)
        finally:
            if self.comfyui is not None:
                self.comfyui.memory.changed()

    def _settle(self, request: int) -> None:
        """Answers once what was to be dropped before is gone; at once while calls keep it waiting.
        On the thread that reads.
        """
        if self.main.state()["lane_busy"]:
            self.channel.reply(request, {"settled": False})
        else:
            self.main.post(lambda: self.channel.reply(request, {"settled": True}))

    def _load(self, message: Message) -> None:
        request = message["id"]
        params = message.get("params")
        if self._ready:  # a supervisor that has taken over does not know
            self._reply_nodes(request, self._facts())
            return
        if self._loaded or not isinstance(params, dict) or not isinstance(params.get("pack"), dict):
            text = "a worker is loaded once, with a pack"
            self.channel.reply_error(request, error_object("bad_request", text))
            return
        self._loaded = True
        self._configure(params)
        self.hooks.watch("torch", self.modes.torch_arrived)
        self.hooks.watch("asyncio", self.main.asyncio_arrived)
        self.hooks.watch("comfy_execution.utils", context_arrived)
        self.hooks.watch("comfy.model_management", lambda module: self.main.interrupts_arrived())
        self.hooks.watch(
            "comfy.utils", lambda utils: comfy.hook_progress(utils, self.report_progress)
        )
        if params.get("comfyui"):
            from .comfyui.adapter import ComfyUI

            self.comfyui = ComfyUI(self, params)
            self.comfyui.before_import()
        self.channel.notify(
            "phase", {"phase": "pack", "detail": str(params["pack"].get("name") or "")}
        )
        try:
            self.pack.load(params, self.main.run_coroutine)
            if self.comfyui is not None:
                self.comfyui.after_import()
        except (
            BaseException
        ) as error:  # a pack that calls sys.exit at import has failed, not ended the worker
            streams.flush()
            name = params["pack"].get("name") or params["pack"].get("nodes")
            self.channel.reply_error(
                request, report.raised("pack_failed", error, f"importing pack {name!r}: ")
            )
            return
        streams.flush()
        self.channel.notify("phase", {"phase": "contracts", "detail": ""})
        self._ready = True
        self._reply_nodes(request, self._facts())

    @staticmethod
    def _facts() -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "platform": sys.platform,
            "packages": versions(REPORTED_PACKAGES),
        }

    def _configure(self, params: dict[str, Any]) -> None:
        self.generation = int(params.get("generation") or 0)
        self.role.generation = self.generation
        self.role.name = str(params.get("environment") or "")
        self.role.environment = str(params.get("environment_root_id") or self.role.name)
        self.memory.pool.configure(params.get("memory"))
        options = params.get("options")
        inference = options.get("inference") if isinstance(options, dict) else None
        if inference in CHOICES:
            self.modes.choice = inference

    def _reply_nodes(self, request: int, facts: dict[str, Any]) -> None:
        """Answers with the contracts: in the result, or in the body when they are long
        (`nodes_in_body`).
        """
        described = self.pack.describe(report.describe)
        text = encode_json(described)
        if len(text) <= _MOST_NODES_BYTES:
            self.channel.reply(request, {**facts, **described})
            return
        encoded = envelope(text, self.memory)
        encoded.lend()
        self.channel.reply(
            request, {**facts, "nodes_in_body": True}, encoded.body, **encoded.fields
        )

    def _shutdown(self, message: Message) -> None:
        self.channel.reply(message["id"], {})
        finish(0)

    # ---- around computing, on the main thread ----------------------------------------------------

    def begin_computing(self, call: Call, inputs: Any) -> None:
        """Right before a node's code."""
        if self.comfyui is not None:
            self.comfyui.memory.before(call, inputs)

    def end_computing(self, call: Call, result: Any) -> None:
        """Right after it and before its answer; `result` is None if it failed."""
        if self.comfyui is not None:
            self.comfyui.memory.after(call, result)

    def between_calls(self) -> None:
        """A call has been answered."""
        if self.comfyui is not None:
            self.comfyui.memory.between()

    def patience(self) -> float | None:
        """Seconds after which `idle` is to be called if nothing arrives; None for never."""
        return self.comfyui.memory.patience() if self.comfyui is not None else None

    def idle(self) -> None:
        """Nothing has arrived for that long."""
        if self.comfyui is not None:
            self.comfyui.memory.report_if_due()

    def report_progress(self, value: Any, total: Any, node_id: Any) -> None:
        """Sends a node's progress. From any thread; what is not a number is sent as text."""
        call = current_call.get() or self.main.only_call()
        if call is not None and self.channel.gone is None:
            params = {
                "value": _number(value),
                "max": _number(total),
                "node_id": node_id and str(node_id),
            }
            self.channel.notify("progress", params, call=call.request)

    def ask_caller(self, method: str, params: Any, body: bytes = b"") -> tuple[Message, bytes]:
        """Asks the thread in the host that waits for the present call. Raises RemoteError and
        ChannelGone.
        """
        call = current_call.get()
        if call is None:
            raise RuntimeError(f"{method!r} can only be asked while a call runs")
        return self.channel.request(method, params, body, lane="caller", call=call.request)

    # ---- the side lane ---------------------------------------------------------------------------

    def _nodes(self, message: Message) -> None:
        if self._ready:
            self._reply_nodes(message["id"], {"loaded": True})
        else:
            self.channel.reply(
                message["id"], {"loaded": False, "nodes": [], "display_names": {}}
            )


def _number(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value if value - value == 0 else str(value)
    try:
        return float(value)
    except Exception:
        return str(value)[:100]


def stacks() -> str:
    """The Python stacks of all threads, the innermost frame last."""
    import traceback

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def finish(code: int) -> None:
    """Ends the process: exit functions run, but threads that never end do not hold it up."""
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # printed by atexit itself
    streams.flush()
    os._exit(code)
