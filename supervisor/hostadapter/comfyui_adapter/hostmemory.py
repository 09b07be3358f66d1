"""The host's part in sharing cards and RAM: what it reports, what it lets go of, and what it asks workers to let go of.

ComfyUI's memory is touched on its executor's thread alone, at the moments of that thread (moments), or while that thread waits
in a call of ours.

    memory.release     request        free_memory: ComfyUI's own, by so many bytes; the worker's kinds as a worker serves them
    memory.assign      request        EXTRA_RESERVED_VRAM, the pager's headroom, the ceiling of pinned RAM
    memory.residency   notification   what a worker holds, for ComfyUI's list of models (residents)
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator

from comfy_supervisor.errors import SupervisorError
from comfy_supervisor.wire.channel import Channel
from comfy_supervisor.wire.errors import ChannelGone, error_object

from .census import Census, moved
from .headroom import FLOOR, set_headroom
from .ladder import Ladder
from .moments import Moments
from .pins import bind_pins, cap_pins
from .residents import Held, Residents, own_entries

if TYPE_CHECKING:
    from .link import Link

REQUESTS = frozenset(("memory.release", "memory.assign"))
_UNLOAD_SECONDS = 10.0  # how long ComfyUI waits for a worker to let go, on the executor's thread
_ELSEWHERE_SECONDS = 3.0  # on any other, such as the web server's
_SHARE = 1000.0  # reports take at most a thousandth of the executor's time
_LONGEST_PAUSE = 10.0  # seconds, for machines that are slow with one
_GIB = 1 << 30


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


class OwnCensus(Census):
    """What the host holds itself: its list of models without those of workers."""

    def entries(self) -> Iterator[Any]:
        """The entries that are ComfyUI's own."""
        return own_entries(super().entries())


class _Bound:
    """What there is once ComfyUI's memory management is imported."""

    def __init__(self, management: Any, unload: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.management = management
        self.census = OwnCensus(management)
        self.residents = Residents(management, unload)
        self.ladder = Ladder(management, self.census, lambda: (), lambda: 0)
        # As the operator's flags left them, before anybody assigned others.
        self.reserve = float(getattr(management, "EXTRA_RESERVED_VRAM", 0))
        self.max_pinned = float(getattr(management, "MAX_PINNED_MEMORY", -1))
        self.pins_bound = False


class HostMemory:
    """Made with the adapter."""

    def __init__(self, link: Link, handles: Callable[[], dict[str, int]]) -> None:
        """`handles` counts the objects of workers that ComfyUI holds, by environment."""
        self._link = link
        self._handles = handles
        self.moments = Moments(self._flags, self._reached)
        self._made: _Bound | None = None
        self._serving = threading.local()  # .release: the supervisor itself has ComfyUI free memory
        self._generations: dict[str, int] = {}  # of the workers whose models are listed
        self._needs: dict[str, tuple[int, int, int]] = {}  # as told last
        self._told: Any = None  # the connection that has heard of everything
        self._ram_headroom = 0
        self._next = 0.0  # when the next report may be made

    def _bound(self) -> _Bound | None:
        if self._made is None:
            management = sys.modules.get("comfy.model_management")
            if hasattr(management, "current_loaded_models") and hasattr(management, "LoadedModel"):
                self._made = _Bound(management, self._unload)
        return self._made

    # ---- prompts, on the executor's thread -----------------------------------------------------------------------

    def prompt_began(self, executor: Any, prompt_id: str, prompt: Any) -> None:
        """A prompt begins."""
        sizes = getattr(executor, "cache_args", None)
        size = sizes.get("ram", 0) if isinstance(sizes, dict) else 0
        self._ram_headroom = int(size * _GIB) if isinstance(size, (int, float)) else 0
        environments = environments_of(prompt)
        if environments and not self._link.connected:
            self._link.session()  # their calls are about to do it
        self.moments.now()
        self._tell_prompt(prompt_id, "begin", prompt, environments)

    def prompt_ended(self, prompt_id: str, prompt: Any) -> None:
        """It has ended."""
        self._ram_headroom = 0
        self._tell_prompt(prompt_id, "end", prompt, environments_of(prompt))
        self.moments.now()

    def _tell_prompt(self, prompt_id: str, state: str, prompt: Any, environments: list[str]) -> None:
        kinds = sorted(str(node.get("class_type")) for node in prompt.values()) if isinstance(prompt, dict) else []
        told = {
            "prompt_id": prompt_id,
            "workflow": hashlib.sha256("\n".join(kinds).encode("utf-8", "surrogateescape")).hexdigest()[:16],
            "environments": environments,
            "queued_environments": self._queued(),
            "state": state,
            "ram_headroom": self._ram_headroom,
        }
        self._link.tell("", "memory.prompt", told)

    @staticmethod
    def _queued() -> list[str]:
        queue = getattr(_attribute("server", "PromptServer"), "instance", None)
        queue = getattr(queue, "prompt_queue", None)
        if not hasattr(queue, "get_current_queue_volatile"):
            return []
        found: dict[str, None] = {}
        for item in queue.get_current_queue_volatile()[1]:
            found.update(dict.fromkeys(environments_of(item[2])))
        return list(found)

    # ---- what is heard, on the thread that reads -----------------------------------------------------------------

    def asked(self, channel: Channel, message: dict[str, Any]) -> None:
        """Takes a request; it is served at the executor's next moment."""
        params = message.get("params")
        given: dict[str, Any] = params if isinstance(params, dict) else {}
        self.moments.post(lambda: self._answer(channel, message, given))

    def census(self) -> dict[str, Any]:
        """The answer to a census: the last report, and what the host reads of its cards now."""
        made = self._made
        if made is None:
            return {"census": None, "own": [], "leases": []}
        return {"census": made.census.last, "own": made.census.own(), "leases": []}

    def heard_residency(self, params: dict[str, Any]) -> None:
        """A worker holds other models than before."""
        environment, generation = str(params.get("environment")), params.get("generation")
        listed = params.get("models")
        models = [_held(model) for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []

        def take() -> None:
            made = self._bound()
            if made is None or not isinstance(generation, int) or generation < self._generations.get(environment, 0):
                return
            self._generations[environment] = generation
            made.residents.hear(environment, models)

        self.moments.post(take)

    def heard_gone(self, environment: str, generation: int) -> None:
        """A worker is gone, and with it what it held."""

        def forget() -> None:
            made = self._made
            if made is not None and self._generations.get(environment, 0) <= generation:
                self._generations[environment] = generation + 1
                made.residents.forget(environment)

        self.moments.post(forget)

    # ---- requests, on the executor's thread ----------------------------------------------------------------------

    def serve(self, request: Any) -> dict[str, Any]:
        """Serves a request (comfy_supervisor.CallerRequest) on a thread that waits in a call. Raises RuntimeError on any but
        the executor's."""
        if not self.moments.is_here():
            raise RuntimeError("this thread is not ComfyUI's executor: ask again without a call")
        return self._serve(request.method, request.params)

    def _answer(self, channel: Channel, message: dict[str, Any], params: dict[str, Any]) -> None:
        try:
            try:
                channel.reply(message["id"], self._serve(message["method"], params))
            except ChannelGone:
                raise
            except Exception as error:
                channel.reply_error(message["id"], error_object("internal", f"{type(error).__name__}: {error}"))
        except ChannelGone:
            pass  # nobody waits for it

    def _serve(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        made = self._bound()
        if made is None:
            raise RuntimeError("ComfyUI's memory management is not loaded")
        if method == "memory.assign":
            return self._assign(made, params)
        self._serving.release = True
        try:
            if params.get("kind") == "free_memory":
                receipt = self._free_memory(made, params)
            else:
                receipt = made.ladder.release(params)
        finally:
            self._serving.release = False
        receipt["census"] = self._fresh(made)
        return receipt

    def _free_memory(self, made: _Bound, params: dict[str, Any]) -> dict[str, Any]:
        """Has ComfyUI free so many bytes more than are free now, as it reads its card."""
        census, management = made.census, made.management
        name = str(params.get("device") or "")
        device = census.device(name)
        if device is None:
            raise ValueError(f"ComfyUI has no device {name!r}")
        keep = made.residents.hooks()
        spared = params.get("keep_environments")
        spared = set(spared) if isinstance(spared, list) else set()
        for environment in made.residents.environments():
            if "*" in spared or environment in spared or environment == params.get("keep_environment"):
                keep += made.residents.of(environment)
        names = params.get("keep")
        names = set(names) if isinstance(names, list) else set()
        keep += [entry for entry in census.entries() if census.names.of(entry.model) in names]
        before, pins = census.held(device), census.pinned()
        step: dict[str, Any] = {"name": "free_memory"}
        try:
            wanted = int(params.get("bytes") or 0) + management.get_free_memory(device)
            management.free_memory(wanted, device, keep_loaded=keep)
        except Exception as error:
            step["error"] = f"{type(error).__name__}: {error}"
        step["freed"] = max(0, before - census.held(device))
        return {"kind": "free_memory", "freed": {name: step["freed"]}, "pins_freed": max(0, pins - census.pinned()), "steps": [step]}

    def _assign(self, made: _Bound, params: dict[str, Any]) -> dict[str, Any]:
        applied: dict[str, Any] = {}
        missing = []
        for name, setter in (("reserve", self._reserve), ("headroom", self._headroom), ("pin_cap", self._pin_cap)):
            value = params.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                read_back = setter(made, value)
                if read_back is None:
                    missing.append(name)
                else:
                    applied[name] = read_back
        return {"applied": applied, "missing": missing}

    @staticmethod
    def _reserve(made: _Bound, value: float) -> float | None:
        if not hasattr(made.management, "EXTRA_RESERVED_VRAM"):
            return None
        made.management.EXTRA_RESERVED_VRAM = float(value)
        return float(made.management.EXTRA_RESERVED_VRAM)

    @staticmethod
    def _headroom(made: _Bound, value: float) -> int | None:
        paged = _attribute("comfy.memory_management", "aimdo_enabled", False)
        return int(value) if paged and set_headroom(int(value)) else None

    @staticmethod
    def _pin_cap(made: _Bound, value: float) -> float | None:
        if not made.pins_bound:
            made.pins_bound = True
            bind_pins(made.management)
        return cap_pins(made.management, float(value))

    # ---- what workers are asked for ------------------------------------------------------------------------------

    def _unload(self, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the supervisor to have workers let go; {} when nothing came of it. Bounded in time, never raises."""
        if getattr(self._serving, "release", False) or self._link.connection() is None:
            return {}  # the supervisor plans by itself what workers are to release
        limit = _UNLOAD_SECONDS if self.moments.is_here() else _ELSEWHERE_SECONDS
        try:
            return dict(self._link.session().request("memory.unload", params, timeout=limit))
        except (SupervisorError, TimeoutError) as error:
            logging.debug("workers were asked to let go of memory in vain: %s", error)
            return {}

    def _flags(self, flags: dict[str, Any]) -> None:
        """The user wants memory back; ComfyUI frees its own right after this, and has told the browser already."""
        free = bool(flags.get("free_memory"))
        if not flags.get("unload_models", free) and not free or self._link.connection() is None:
            return
        cause = "free_memory" if free else "unload_models"
        answer = self._unload({"environment": "", "all": True, "cause": cause})
        freed = int(answer.get("freed") or 0)
        if not answer:
            logging.warning("[comfy-supervisor] workers could not be asked to free memory: they keep what they hold")
        elif answer.get("busy"):
            logging.warning("[comfy-supervisor] workers freed %.1f GiB; those that compute keep what they hold", freed / _GIB)
        else:
            logging.info("[comfy-supervisor] workers freed %.1f GiB", freed / _GIB)

    # ---- reports -------------------------------------------------------------------------------------------------

    def _reached(self) -> None:
        """A moment of the executor's thread: reports what has moved, as long as that takes no time worth mentioning."""
        made, connection = self._bound(), self._link.connection()
        if made is None or connection is None:
            return
        if connection is not self._told:  # another supervisor, or one that has forgotten everything
            self._told, made.census.last = connection, None
            self._needs.clear()
        elif time.monotonic() < self._next:
            return
        begin = time.monotonic()
        try:
            report = made.census.read()
            if moved(made.census.last, report):
                made.census.last = report
                self._link.tell("", "memory.census", {**report, **self._facts(made)})
            self._tell_needs(made)
        except Exception:  # a patcher of another kind in ComfyUI's list, say
            logging.debug("what ComfyUI holds could not be counted", exc_info=True)
        end = time.monotonic()
        self._next = end + min((end - begin) * _SHARE, _LONGEST_PAUSE)

    def _fresh(self, made: _Bound) -> dict[str, Any]:
        report = made.census.last = made.census.read()
        return {**report, **self._facts(made)}

    def _facts(self, made: _Bound) -> dict[str, Any]:
        """What a host adds to its reports."""
        return {
            "host": True,
            "reserve": made.reserve,
            "headroom": self._seed(),
            "max_pinned": made.max_pinned,
            "smart_memory": not getattr(made.management, "DISABLE_SMART_MEMORY", False),
            "ram_headroom": self._ram_headroom,
            "stand_ins": made.residents.counts(),
            "handles": self._handles(),
        }

    @staticmethod
    def _seed() -> int:
        """What the pager was started with, in bytes: main.py passes --reserve-vram on."""
        reserved = getattr(_attribute("comfy.cli_args", "args"), "reserve_vram", None)
        return int(reserved * _GIB) if isinstance(reserved, (int, float)) else FLOOR

    def _tell_needs(self, made: _Bound) -> None:
        """Says which workers ComfyUI still needs: whose models or objects it holds."""
        stand_ins, handles = made.residents.counts(), self._handles()
        for environment in stand_ins.keys() | handles.keys() | self._needs.keys():
            generation = self._generations.get(environment, 0)
            need = generation, stand_ins.get(environment, 0), handles.get(environment, 0)
            if self._needs.get(environment) != need:
                self._needs[environment] = need
                told = {"generation": generation, "stand_ins": need[1], "handles": need[2]}
                self._link.tell(environment, "memory.need", told)


def environments_of(prompt: Any) -> list[str]:
    """The environments of a graph's nodes, in its order."""
    classes = _attribute("nodes", "NODE_CLASS_MAPPINGS")
    found: dict[str, None] = {}
    if isinstance(prompt, dict) and isinstance(classes, dict):
        for node in prompt.values():
            bridge = getattr(classes.get(node.get("class_type")), "_comfy_supervisor_bridge", None)
            if bridge is not None:
                found[bridge.environment] = None
    return list(found)


def _held(model: dict[str, Any]) -> Held:
    size, resident = (model.get(name) for name in ("size", "resident"))
    return Held(
        str(model.get("name")),
        size if isinstance(size, int) else 0,
        resident if isinstance(resident, int) else 0,
        str(model.get("device")),
    )
