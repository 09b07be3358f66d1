"""The adapter of this process: one object that ties ComfyUI's start, its executor and its server to the supervisor."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from comfy_supervisor.errors import StartFailed

from . import discovery, executor, hostfacts, hostroutes, loanbook, ramrelease, settings, stuck
from .bridge import Bridge
from .environments import Environments, Unusable
from .fingerprint import Fingerprints
from .hostmemory import HostMemory
from .hostrole import Held
from .hostserver import HostServer
from .inputcache import Answers, InputCache
from .link import Link
from .loglines import LogLines
from .proxy_v1 import make_v1
from .proxy_v3 import make_v3
from .replay import replay_anywhere
from .scancache import ScanCache, cache_folder
from .scans import Scans, Wanted
from .shapes import Builder

_SCAN_GRACE_SECONDS = 10.0  # in which the supervisor tells why a worker was not ready in time
_ON_PROMPT_SECONDS = 1.0  # a worker's on_prompt handlers hold up the web server no longer
_FOLDERS_SECONDS = 1.0  # how long a look at the folder registry is good for
_PROGRAM = Path(__file__).with_name("program.txt")  # the version of the worker's program, written when laid out


class Adapter:
    """Made when the first pack asks for something."""

    def __init__(self) -> None:
        self.link = Link(hostfacts.comfyui_directory(), hostfacts.facts, self)
        self.memory = HostMemory(self.link, self.link.handles)
        self.inputs = InputCache()
        self.environments = Environments(self.link)
        self._server = HostServer()
        self._lines = LogLines()
        self._scans = Scans(ScanCache(cache_folder()), self._scan, lambda text: logging.warning("[comfy-supervisor] %s", text))
        self._fingerprints = Fingerprints()
        self._bridges: dict[str, Bridge] = {}
        self._packs: dict[str, str] = {}  # by environment, from before there is a bridge
        self._lock = threading.Lock()
        self._folders: tuple[float, str, dict[str, Any]] = (0.0, "", {})
        self._prepared = False
        self._prepare_lock = threading.Lock()

    # ---- registration ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Once: hooks the executor and starts the scans of all packs that ComfyUI is going to load."""
        with self._prepare_lock:
            if self._prepared:
                return
            self._prepared = True
            executor.watch_prompts(self._prompt_began, self._prompt_ended)
            self.memory.moments.install(getattr(executor.server(), "prompt_queue", None))
            ramrelease.install(self.link.settle)
            for line in loanbook.missing():
                logging.warning("[comfy-supervisor] %s", line)
            wanted = []
            for pack in discovery.packs_to_load():
                for source in discovery.isolated_sources(pack):
                    found = self.environments.find(source, again=False)
                    if found.name and not found.problem:
                        wanted.append(self._wanted(pack, source, found.name, found.revision))
            self._scans.begin(wanted)

    def register(self, pack: Path, source: discovery.Source) -> tuple[dict[str, type], dict[str, str]]:
        """The node classes and display names of one isolated folder. Raises what makes it unusable."""
        self.prepare()
        found = self.environments.find(source)
        wanted = self._wanted(pack, source, found.name, found.revision)
        if found.problem:
            document = self._scans.outdated(wanted)
            if document is None or settings.falls_back_to_host():
                raise Unusable(found.problem)
            logging.error("[%s] %s", pack.name, found.problem)
        else:
            document = self._scanned(pack, wanted)
        bridge = Bridge(self, found.name or wanted.place, pack.name, found.problem)
        with self._lock:
            self._bridges[bridge.environment] = bridge
        return self._take(bridge, document)

    def _scanned(self, pack: Path, wanted: Wanted) -> dict[str, Any]:
        try:
            return self._scans.result(wanted)
        except StartFailed as error:
            place = stuck.place(error.stderr, pack)
            if not place:
                raise
            raise StartFailed(f"{error}; its import was at {place}", error.data) from None

    def _wanted(self, pack: Path, source: discovery.Source, environment: str, revision: str) -> Wanted:
        place = hashlib.sha256(os.path.realpath(pack).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        version = str(getattr(sys.modules.get("comfyui_version"), "__version__", ""))
        self._packs[environment] = pack.name
        mark = self._fingerprints.get(pack, source.module, environment, revision, version, _program())
        return Wanted(environment, f"{pack.name}-{source.module}-{place}", mark)

    def _scan(self, environment: str) -> dict[str, Any]:
        """Starts a worker, asks what is in its pack, and ends it. Raises what goes wrong."""
        limit = settings.scan_seconds()
        wait = {"start_ms": int(limit * 1000)}
        document = self.link.ask(environment, "comfyui.scan", wait, timeout=limit + _SCAN_GRACE_SECONDS)
        if not settings.keeps_scanned() and not document.get("on_prompt"):
            self.link.session().stop(environment)
        # As the cache would give it: a pack registers in the same way at its first start and at later ones.
        return json.loads(json.dumps(document))

    def _take(self, bridge: Bridge, document: dict[str, Any]) -> tuple[dict[str, type], dict[str, str]]:
        builder = Builder(document["tables"])
        self.inputs.take(
            bridge.environment,
            {
                "inputs": {node["name"]: node["inputs"] for node in document["nodes"] if "inputs" in node},
                "tables": document["tables"],
            },
        )
        classes = {}
        for contract in document["nodes"]:
            name = contract["name"]
            if "error" in contract:
                logging.error("[%s] node %s can not be used: %s", bridge.pack, name, contract["error"]["message"])
                continue
            try:
                make = make_v3 if contract["kind"] == "v3" else make_v1
                classes[name] = make(contract, builder, bridge)
            except Exception:
                logging.exception("[%s] node %s can not be registered", bridge.pack, name)
        if not bridge.unavailable:
            self.inputs.add(bridge.environment, lambda answers: self._ask_inputs(bridge, answers))
            hostroutes.register(document["routes"], document["statics"], lambda *request: self._route(bridge, *request), bridge.pack)
            hostfacts.add_folders(document["folders"])
            for message in document["messages"]:
                replay_anywhere(message)
            if document["on_prompt"]:
                self._server.add_on_prompt(lambda data: self._on_prompt(bridge, data))
        names = {name: text for name, text in document["display_names"].items() if name in classes}
        return classes, names

    # ---- questions of the server -----------------------------------------------------------------------------------

    def _ask_inputs(self, bridge: Bridge, answers: Answers) -> bool:
        return bridge.awake and self.link.ask_later(bridge.environment, "comfyui.inputs", answers)

    async def _route(self, bridge: Bridge, fields: dict[str, Any], body: bytes) -> dict[str, Any]:
        return await self.link.ask_async(bridge.environment, "comfyui.route", fields, body)

    def _on_prompt(self, bridge: Bridge, data: Any) -> Any:
        """Lets a worker's on_prompt handlers change a prompt, as long as that takes no time worth mentioning."""
        if not bridge.awake:
            logging.warning("[%s] its worker sleeps: the pack did not see this prompt as it was submitted", bridge.pack)
            return data
        try:
            return self.link.ask(bridge.environment, "comfyui.prompt", {}, data, timeout=_ON_PROMPT_SECONDS)
        except Exception as error:
            logging.warning("[%s] the pack did not see this prompt as it was submitted: %s", bridge.pack, error)
            return data

    def folders(self) -> tuple[str, dict[str, Any]]:
        """The version and content of ComfyUI's folder registry."""
        looked, version, registry = self._folders
        now = time.monotonic()
        if not version or now - looked > _FOLDERS_SECONDS:
            registry = hostfacts.folders()
            text = json.dumps(registry, sort_keys=True).encode("utf-8", "surrogateescape")
            fresh = hashlib.sha256(text).hexdigest()[:16]
            if version and fresh != version:
                self.link.tell("", "comfyui.folders", {"folders": registry})
            version = fresh
            self._folders = now, version, registry
        return version, registry

    # ---- around prompts, on the executor's thread ------------------------------------------------------------------

    def _prompt_began(self, prompt_executor: Any, prompt_id: str, prompt: Any) -> None:
        self.memory.moments.install(getattr(executor.server(), "prompt_queue", None))
        self.memory.prompt_began(prompt_executor, prompt_id, prompt)
        self._forget_dead(prompt_executor)

    def _forget_dead(self, prompt_executor: Any) -> None:
        """Has the nodes run again whose outputs live in workers that are gone."""
        with self._lock:
            dead = {name: bridge.dead_generation for name, bridge in self._bridges.items() if bridge.dead_generation}
        if not dead:
            return

        def doomed(output: Any) -> bool:
            if type(output) is not Held:
                return False
            handle = output.handle
            return handle.generation <= dead.get(handle.environment, 0)

        count = executor.forget_outputs(prompt_executor, doomed)
        if count:
            logging.info("[comfy-supervisor] %d cached outputs lived in workers that are gone; their nodes run again", count)

    def _prompt_ended(self, prompt_id: str, prompt: Any) -> None:
        if self.link.connected:
            self.link.session().role.forget_lent()
        self.memory.prompt_ended(prompt_id, prompt)

    # ---- what is heard, on the thread that reads -------------------------------------------------------------------

    def heard_message(self, environment: str, message: dict[str, Any]) -> None:
        """A message that belongs to no call: of a route, or of a thread that a pack started."""
        replay_anywhere(message)

    def heard_worker(self, environment: str, generation: int, state: str) -> None:
        """A worker has another state."""
        bridge = self._bridges.get(environment)
        if bridge is not None:
            bridge.heard_state(generation, state)
        if state in ("gone", "backoff", "quarantined"):
            self.memory.heard_gone(environment, generation)

    def heard_line(self, line: dict[str, Any]) -> None:
        """A worker printed or logged a line."""
        environment = str(line.get("environment"))
        self._lines.show(self._packs.get(environment, environment), line)

    def asked(self, question: str, arguments: list[Any]) -> Any:
        """A worker asks the host's server something."""
        return self._server.answer(question, arguments)


@functools.cache
def _program() -> str:
    return _PROGRAM.read_text(encoding="ascii") if _PROGRAM.exists() else ""


_adapter: Adapter | None = None
_adapter_lock = threading.Lock()


def adapter() -> Adapter:
    """The adapter of this process."""
    global _adapter
    with _adapter_lock:
        if _adapter is None:
            _adapter = Adapter()
        return _adapter


