"""Ties ComfyUI's side of a worker to its lanes and its connection. One object per worker, made when it loads its pack.

Requests of the host, with the lane that serves them:

    comfyui.scan    side   everything that the host needs to register the pack
    comfyui.inputs  side   the INPUT_TYPES of all its nodes
    comfyui.ask     side   one question of a node's class (validation)
    comfyui.route   side   one HTTP request
    comfyui.prompt  side   the pack's on_prompt handlers, for one submitted prompt
    memory.*        main   between calls (see memory)

Calls of nodes arrive as any call does; `comfyui` in their parameters says that the body is an envelope (see nodecalls).
What a node says while it runs goes out as comfyui.message, with the call that it belongs to.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ..calls import Refused
from ..pack import REPORTED_PACKAGES, versions
from ..wire import decode, values
from ..wire.errors import CannotCross, error_object
from . import cacheproviders, comfy_env_standin, extranodes, guests, loanbook, progress, prompt_server, routes, scanning, web_standin
from .absent import Absent
from .flags import Flags
from .folders import Folders
from .loglines import configure_logging
from .nodecalls import NodeCalls
from .memory import Memory
from .pager import HostMemory, Pager
from .standins import StandIns

if TYPE_CHECKING:
    from ..calls import Call
    from ..worker import Worker


class ComfyUI:
    """Everything of this package that a worker has."""

    def __init__(self, worker: Worker, params: dict[str, Any]) -> None:
        """`params` are those of the load request."""
        self._worker = worker
        self._comfyui = str(params.get("comfyui") or "")
        worker.role.guest = guests.Guest
        worker.role.weigh = guests.weight
        pack = params["pack"]
        self._standins = StandIns(str(pack.get("directory") or pack["nodes"]))
        self._folders = Folders()
        self.flags = Flags()
        self.pager = Pager()
        self._host_memory = HostMemory()
        given = params.get("memory")
        self.memory = Memory(worker, self.pager, given if isinstance(given, dict) else {})
        self._ready = False
        self._loaded = False
        self._state = prompt_server.HostState()
        self._messenger = Messenger(worker)
        self.server = prompt_server.PromptServer(self._messenger, self._state, worker.side.loop())
        self.calls = NodeCalls(worker.pack.nodes, worker.role.name)
        described = params.get("folders")
        if isinstance(described, dict):
            self._folders.hear(described)
        self._serving: dict[str, Callable[[dict[str, Any], Any], Any]] = {
            "comfyui.scan": lambda params, value: self._scan(),
            "comfyui.inputs": lambda params, value: scanning.inputs(worker.pack.nodes),
            "comfyui.ask": self._ask,
            "comfyui.route": self._route,
            "comfyui.prompt": lambda params, value: self.server.trigger_on_prompt(value),
        }

    # ---- around the pack's import, on the main thread --------------------------------------------------------------

    def before_import(self) -> None:
        """Prepares what the pack may import."""
        worker = self._worker
        configure_logging()
        if self._comfyui:
            sys.path.append(os.path.join(self._comfyui, "comfy"))  # for old packs' bare `import model_management`
        self._standins.install({"server": prompt_server.server_module(self.server)})
        self._standins.install(comfy_env_standin.modules(worker.role.codecs))
        self._standins.offer("aiohttp", web_standin.modules)
        absent = Absent()
        hooks = worker.hooks
        hooks.watch("comfy_api.latest", absent.forget)
        hooks.watch("comfy.cli_args", self.flags.apply)
        hooks.watch("comfy_execution.cache_provider", cacheproviders.refuse)
        hooks.watch("comfy.model_management", self._host_memory.apply)
        hooks.watch("comfy.model_management", self.memory.arrived)
        hooks.watch("comfy.model_patcher", self.pager.complete)
        hooks.watch("comfy.model_patcher", lambda module: self.memory.pager_started())
        hooks.watch("comfy.model_patcher", lambda module: self._loaded and self.report_ready())
        hooks.watch("folder_paths", self._folders.apply)
        hooks.watch("comfy.utils", lambda utils: progress.hook_bars(utils, self._messenger))
        hooks.watch("comfy_execution.progress", lambda module: progress.hook_registry(module, self._messenger))
        hooks.watch("nodes", self._nodes_arrived)
        hooks.watch("app.logger", self._logger_arrived)
        comfy_env_standin.load_serializers(os.environ.get("COMFY_ENV_SERIALIZER_FILES", ""))
        self.pager.prepare()

    def _nodes_arrived(self, module: Any) -> None:
        extranodes.hook_nodes(module, self._messenger.quietly)
        extranodes.add_own(self._worker.pack.nodes, module)

    def _logger_arrived(self, module: Any) -> None:
        """Warnings that ComfyUI prints at the end of its start."""
        if hasattr(module, "log_startup_warning"):
            module.log_startup_warning = self._messenger.startup_warning

    def after_import(self) -> None:
        """Completes what depends on the pack's modules."""
        Absent.forget()  # of an import that failed
        for name in ("aiohttp", "aiohttp.web"):
            if not hasattr(sys.modules.get(name), "__spec__") or sys.modules[name].__spec__ is None:
                sys.modules.pop(name, None)
        module = self._worker.pack.module
        for entry in getattr(module, "ROUTES", None) or ():
            self.server.routes.add(str(entry["method"]), str(entry["path"]), entry["handler"])
        nodes = sys.modules.get("nodes")
        if nodes is not None:
            extranodes.add_own(self._worker.pack.nodes, nodes)
        # ComfyUI applies its own policy once more after its packs are imported; some change it.
        benchmark = getattr(sys.modules.get("comfy.model_management"), "set_cudnn_benchmark", None)
        if benchmark is not None:
            benchmark()
        self._loaded = True
        if "comfy.model_patcher" in sys.modules:
            self.report_ready()

    def report_ready(self) -> None:
        """Says once, when the pack has first imported comfy, what came of everything that was mirrored."""
        if self._ready:
            return
        self._ready = True
        attention = getattr(sys.modules.get("comfy.ldm.modules.attention"), "optimized_attention", None)
        report = {
            "flags": self.flags.read_back(),
            "skipped": self.flags.skipped,
            "attention": getattr(attention, "__name__", "").removeprefix("attention_"),
            "pager": {"outcome": self.pager.outcome, "reason": self.pager.reason},
            "missing": loanbook.missing(),
            # Told here as well: a pack that imports comfy at once is reported on before it is loaded.
            "python": ".".join(map(str, sys.version_info[:3])),
            "packages": versions(REPORTED_PACKAGES),
        }
        for name, reason in self.flags.skipped.items():
            logging.warning("the host's flag %s is not in force here: %s", name, reason)
        self._worker.channel.notify("comfy-ready", report)

    # ---- calls, on the main thread ---------------------------------------------------------------------------------

    def function(self, call: Call) -> Callable[..., Any]:
        """The function for a call that has an envelope. Raises UnknownNode."""
        fields = call.params["comfyui"]
        self.hear(fields)
        return self.calls.function(
            call.node,
            str(call.params.get("function") or ""),
            str(call.params.get("instance") or ""),
            fields.get("graph"),
            bool(fields.get("validates")),
            bool(fields.get("stateful")),
        )

    def hear(self, fields: dict[str, Any]) -> None:
        """Takes over what a message says about the host."""
        state = fields.get("host")
        if isinstance(state, dict):
            self._state.enter(state)
            set_preview_method(state.get("preview_method"))
        folders = fields.get("folders")
        if isinstance(folders, dict):
            self._folders.hear(folders, str(fields.get("folders_version") or ""))

    # ---- the side lane ---------------------------------------------------------------------------------------------

    def serves(self, method: str) -> bool:
        """Whether a request is one of ours."""
        return method in self._serving or method in self.memory.requests

    def post(self, message: dict[str, Any], body: bytes) -> None:
        """Hands a request to its lane, mostly the side lane. On the thread that reads."""
        if message["method"] in self.memory.requests:
            self.memory.post(message)
            return
        self._worker.side.post(lambda: self._serve(message, body))

    async def _serve(self, message: dict[str, Any], body: bytes) -> None:
        worker = self._worker
        request, method = message["id"], message["method"]
        params = message.get("params")
        try:
            value = decode.decode(message, body, worker.memory, worker.role, method) if body or message.get("body_file") else None
            answer = self._serving[method](params if isinstance(params, dict) else {}, value)
            if inspect.isawaitable(answer):
                answer = await answer
            encoded = values.encode(answer, worker.memory, worker.role, method)
        except CannotCross as error:
            worker.channel.reply_error(request, error_object(error.kind, str(error)))
            return
        except Refused as error:
            worker.channel.reply_error(request, error.error)
            return
        except BaseException as error:
            from .. import report

            worker.channel.reply_error(request, report.raised("node_raised", error))
            return
        encoded.lend()
        worker.channel.reply(request, {}, encoded.body, **encoded.fields)

    def _scan(self) -> dict[str, Any]:
        document = scanning.scan(self._worker.pack.nodes, self._worker.pack.display_names)
        document.update(self.server.routes.describe())
        document["folders"] = self._folders.added()
        document["on_prompt"] = len(self.server.on_prompt_handlers)
        document["messages"] = self._messenger.early
        return document

    async def _ask(self, params: dict[str, Any], value: Any) -> Any:
        function = self.calls.function(str(params["node"]), str(params["function"]), "", None)
        answer = function(**value)
        return await answer if inspect.isawaitable(answer) else answer

    async def _route(self, params: dict[str, Any], value: Any) -> dict[str, Any]:
        return await routes.answer(self.server.routes, self.server.app, params, value or b"")


def set_preview_method(wanted: Any) -> None:
    """Takes over how this prompt wants its previews; ComfyUI reads it from its flags."""
    arguments = getattr(sys.modules.get("comfy.cli_args"), "args", None)
    present = getattr(arguments, "preview_method", None)
    if wanted is not None and isinstance(present, enum.Enum) and present.value != wanted:
        try:
            arguments.preview_method = type(present)(wanted)
        except ValueError:
            pass  # a method of another version of ComfyUI


class Messenger:
    """Takes to the host what the pack says; the implementation of progress.Reporter and prompt_server.Messenger."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # What the pack said while it was imported and that each start of the host has to repeat.
        self.early: list[dict[str, Any]] = []
        self._quiet = False

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Nothing is registered meanwhile."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def startup_warning(self, text: Any) -> None:
        """Shows a line at the end of ComfyUI's start, at this one and at later ones."""
        logging.warning("%s", text)
        self.early.append({"kind": "startup_warning", "text": str(text)})

    def bar(self, value: Any, total: Any, preview: Any, prompt_id: Any, node_id: Any) -> None:
        """What a ProgressBar shows."""
        call = self._call()
        if call is not None and "comfyui" not in call.params:
            self._worker.report_progress(value, total, node_id)  # a caller that is not ComfyUI
            return
        message = {"value": value, "total": total, "preview": preview, "prompt_id": prompt_id, "node_id": node_id}
        self._send({"kind": "bar", **message})

    def registry(self, node_id: Any, value: Any, total: Any, preview: Any) -> None:
        """What a node reports through comfy_api."""
        self._send({"kind": "registry", "node_id": node_id, "value": value, "total": total, "preview": preview})

    def send_event(self, event: Any, data: Any, sid: Any) -> None:
        """Passes a websocket message on."""
        self._send({"kind": "event", "event": event, "data": data, "sid": sid})

    def register_replacement(self, fields: dict[str, Any]) -> None:
        """Registers a node replacement on the host, now and at later starts."""
        if not self._quiet:
            message = {"kind": "replacement", "fields": fields}
            self.early.append(message)
            if self._worker.pack.nodes:  # later than at import, where the scan brings it
                self._send(message)

    def ask_host(self, question: str, *arguments: Any) -> Any:
        """Asks the host's server something and waits."""
        worker = self._worker
        encoded = values.encode(list(arguments), worker.memory, worker.role, question)
        encoded.lend()
        # Not for the thread that waits for the present call: the host's server answers on threads of its own.
        message, body = worker.channel.request("comfyui.host", {"question": question}, encoded.body, **encoded.fields)
        return decode.decode(message, body, worker.memory, worker.role, question)

    def _call(self) -> Call | None:
        from ..calls import current_call

        return current_call.get() or self._worker.main.only_call()

    def _send(self, message: dict[str, Any]) -> None:
        worker = self._worker
        if worker.channel.gone is not None:
            return
        encoded = values.encode(message, worker.memory, worker.role, "message")
        call = self._call()
        fields = dict(encoded.fields)
        if call is not None:
            fields["call"] = call.request
        encoded.lend()
        worker.channel.notify("comfyui.message", {}, encoded.body, **fields)
