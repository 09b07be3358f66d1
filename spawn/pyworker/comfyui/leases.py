"""Asking for room before a load: `load_models_gpu` waits for a lease, then does what it always does.

Only the main thread asks: elsewhere upstream's own rules count, as they do when nobody answers in time. While it waits, the
thread lets go of other models if it is asked to; never of those of the load, which the caller may be computing with.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from ..calls import current_call
from ..wire.channel import Channel, Waiter, encode_json
from ..wire.errors import ChannelGone, RemoteError
from .census import Census, is_processor, label, torch_backend

if TYPE_CHECKING:
    from ..worker import Worker
    from .assignments import Assignments

WAIT_SECONDS = 300.0  # how long a load waits for its lease before it goes on by itself
_GRACE_SECONDS = 5.0  # beyond that, for the supervisor's own answer about it


class _Interrupted(Exception):
    """The user cancelled the node that waits."""


class Lease:
    """One load's lease, until the computation that it was for has ended."""

    def __init__(self, number: int, device: Any, call: int, models: list[str], paged: bool) -> None:
        self.id = number
        self.paged = paged  # the weights come when they are used, not when they are loaded
        self.models = models  # by name
        self.device = device
        self.call = call  # the request of the call that loads, 0 outside of one
        self.bytes = 0
        self.working = False
        self.peak = 0  # bytes that computing took at most beyond what was resident
        self._base: int | None = None

    def describe(self, identity: str) -> dict[str, Any]:
        """As the answer to a census has it."""
        named = {"device": label(self.device), "identity": identity}
        return {"id": self.id, **named, "bytes": self.bytes, "working": self.working}

    def begin_measuring(self) -> None:
        """From now on the allocator's peak is this computation's."""
        backend = torch_backend(self.device)
        if hasattr(backend, "reset_peak_memory_stats"):
            backend.reset_peak_memory_stats(self.device)
            self._base = int(backend.memory_allocated(self.device))

    def end_measuring(self) -> None:
        """Takes the peak; another computation may begin."""
        backend = torch_backend(self.device)
        if self._base is not None and hasattr(backend, "max_memory_allocated"):
            self.peak = max(self.peak, int(backend.max_memory_allocated(self.device)) - self._base)
        self._base = None


class Leases:
    """The leases of a worker."""

    def __init__(self, worker: Worker, assignments: Assignments, wait_seconds: float = WAIT_SECONDS) -> None:
        self._worker = worker
        self._assignments = assignments
        self._limit = wait_seconds
        self._numbers = itertools.count(1)
        self._management: Any = None
        self._census: Census | None = None
        self._original: Callable[..., Any] | None = None
        self._signature: inspect.Signature | None = None
        self._off = False  # nobody gives leases here
        self._warned = False
        self.loaded = False  # something was loaded since the last report
        self._held: dict[int, Lease] = {}
        self._used: set[str] = set()  # the names of the models that calls under way have loaded
        self._headroom = False  # an answer's is in force
        self._repeat: Callable[[], None] = _nothing  # asks once more for the lease that a load waits for
        self._lock = threading.Lock()
        self._waiting: Waiter | None = None  # of the load that waits; what is posted to it runs meanwhile
        self._loading: list[str] = []  # the names of that load's models
        self.on_left: Callable[[Callable[[], None]], None] = lambda item: item()  # gets what came too late to run meanwhile

    def arrived(self, management: Any, census: Census) -> None:
        """Wraps ComfyUI's loader."""
        original = getattr(management, "load_models_gpu", None)
        if original is None:
            return
        self._management, self._census, self._original = management, census, original
        self._signature = inspect.signature(original)

        @functools.wraps(original)
        def load_models_gpu(*arguments: Any, **named: Any) -> Any:
            return self._load(arguments, named)

        management.load_models_gpu = load_models_gpu

    # ---- from the thread that reads ------------------------------------------------------------------------------

    def post_meanwhile(self, item: Callable[[], None]) -> bool:
        """Has the waiting load run something; False when none waits."""
        with self._lock:
            if self._waiting is None:
                return False
            self._worker.channel.post(self._waiting, item)
            return True

    def wake(self) -> None:
        """Has the waiting load look at ComfyUI's interrupt flag."""
        self.post_meanwhile(lambda: None)

    def ask_again(self) -> None:
        """A supervisor wants to know what there is: it may be a new one that has not heard what the waiting load asked."""
        self._off = False
        self.post_meanwhile(lambda: self._repeat())

    def describe(self) -> list[dict[str, Any]]:
        """The leases that this process still counts on."""
        census = self._census
        if census is None:
            return []
        return [lease.describe(census.identity(lease.device)) for lease in list(self._held.values()) if lease.bytes]

    def keeping(self) -> list[str]:
        """The names of the models of the load that waits, and of those that its call may compute with already."""
        return [*self._loading, *self._used]

    # ---- loads, on the main thread -------------------------------------------------------------------------------

    def _load(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        original = self._original
        assert original is not None
        self.loaded = True
        if self._off or threading.current_thread() is not threading.main_thread() or self._waiting is not None:
            return original(*arguments, **named)
        try:
            asks = self._asks(arguments, named)
        except Exception:  # what upstream will not like either, or a patcher of another kind
            logging.debug("a load is not asked for: its models can not be measured", exc_info=True)
            return original(*arguments, **named)
        if not asks:
            return original(*arguments, **named)
        leases = []
        try:
            for ask in asks:
                self._supersede(ask)
                lease, answer = self._ask(ask)
                leases.append(lease)
                self._prepare(lease, answer)
            result = original(*arguments, **named)
        except BaseException:
            for lease in leases:
                self._finish(lease)
            raise
        finally:
            self._assignments.set_after_load()
        for lease in leases:
            self._resident(lease)
        return result

    def _asks(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[dict[str, Any]]:
        """What the load takes of each card, in upstream's own terms."""
        management, census, signature = self._management, self._census, self._signature
        assert signature is not None and census is not None
        given = signature.bind(*arguments, **named).arguments
        models: dict[Any, None] = {}
        for model in given["models"]:
            models[model] = None
            for patched in model.model_patches_models():
                models[patched] = None
        by_device: dict[str, list[Any]] = {}
        for model in models:
            entry = management.LoadedModel(model)
            census.sizes.see(model)
            if not is_processor(entry.device):
                by_device.setdefault(label(entry.device), []).append(entry)
        minimum = given.get("minimum_memory_required")
        call = current_call.get() or self._worker.main.only_call()
        asks = []
        for name, entries in by_device.items():
            device = entries[0].device
            free, total = census.reading(device)
            asks.append(
                {
                    "id": next(self._numbers),
                    "call": call.request if call is not None else 0,
                    "device": name,
                    "identity": census.identity(device),
                    "node": call.node if call is not None else "",
                    "models": [census.names.of(entry.model) for entry in entries],
                    "load": {
                        "weights": int(sum(entry.model_memory_required(device) for entry in entries)),
                        "activation": float(given.get("memory_required", 0)),
                        "minimum": -1.0 if minimum is None else float(minimum),
                        "reserve": self._assignments.base,
                    },
                    "largest_tensor": max(census.sizes.tensor(entry.model) for entry in entries),
                    "streams": int(getattr(management, "NUM_STREAMS", 0)),
                    "cast_buffers": census.cast_buffers(device),
                    "context": census.context(device),
                    "overhead": 0,
                    "keep": int(sum(entry.model_loaded_memory() for entry in entries)),
                    "paged": all(entry.model.is_dynamic() for entry in entries),
                    "wait_ms": int(self._limit * 1000),
                    "own_free": free,
                    "own_total": total,
                    "process_local": census.process_local(device),
                }
            )
        return asks

    def _ask(self, ask: dict[str, Any]) -> tuple[Lease, dict[str, Any]]:
        """Waits for a lease. The answer is {} when the load is to go on by itself."""
        census = self._census
        assert census is not None
        lease = Lease(ask["id"], census.device(ask["device"]), ask["call"], ask["models"], ask["paged"])
        if self._off:
            return lease, {}
        waiter, channel = Waiter(), self._worker.channel
        with self._lock:
            self._waiting, self._loading = waiter, ask["models"]
        try:
            answer = self._wait(channel, waiter, ask)
        except _Interrupted:
            self._management.throw_exception_if_processing_interrupted()
            answer = {}  # somebody else has taken the interrupt
        finally:
            with self._lock:
                self._waiting, self._loading = None, []
            while waiter.inbox:
                self.on_left(waiter.inbox.popleft())
        lease.bytes = int(answer.get("lease") or 0)
        if answer:
            self._held[lease.id] = lease
        return lease, answer

    def _wait(self, channel: Channel, waiter: Waiter, ask: dict[str, Any]) -> dict[str, Any]:
        request, end = 0, time.monotonic() + self._limit + _GRACE_SECONDS

        def send() -> None:
            nonlocal request
            channel.forget(request)
            request = channel.begin(waiter)
            fields = {"call": ask["call"]} if ask["call"] else {}
            message = {"jsonrpc": "2.0", "id": request, "method": "memory.lease", "params": ask, **fields}
            channel.send(encode_json(message).encode())

        self._repeat = send
        try:
            send()
            while waiter.reply is None:
                if not channel.wait(waiter, max(0.0, end - time.monotonic())):
                    channel.notify("memory.withdraw", {"id": ask["id"]})
                    self._warn(f"no room was promised within {self._limit:.0f} s")
                    return {}
                while waiter.inbox:
                    waiter.inbox.popleft()()
                if channel.gone is not None:
                    return {}
                if isinstance(waiter.reply, ChannelGone):  # of the supervisor that was asked; another one has taken its place
                    waiter.reply = None
                    send()
                if waiter.reply is None and self._management.processing_interrupted():
                    channel.notify("memory.withdraw", {"id": ask["id"]})
                    raise _Interrupted
            result = Channel.result(waiter)[0].get("result")
            return result if isinstance(result, dict) else {}
        except RemoteError as error:
            self._off = error.kind == "unknown_method"
            if not self._off:
                self._warn(str(error))
            return {}
        except ChannelGone:
            return {}
        finally:
            self._repeat = _nothing
            channel.forget(request)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            logging.warning("a model is loaded without a lease, under ComfyUI's own rules: %s", why)

    def _prepare(self, lease: Lease, answer: dict[str, Any]) -> None:
        """Puts in force what the answer says."""
        assigned = answer.get("assign")
        if isinstance(assigned, dict):
            self._assignments.take(assigned)
        census = self._census
        assert census is not None
        free, held = census.reading(lease.device)[0], census.held(lease.device)
        self._assignments.set_for_load(_number(answer.get("reserve")), free, held)
        if _number(answer.get("headroom")):
            self._headroom = True
            self._assignments.set_for_computing(answer["headroom"])

    def _resident(self, lease: Lease) -> None:
        """The weights are there, or are about to come page by page; the computation begins.

        Of paged weights nothing is there yet that could be told: their lease holds as it was granted until they are measured
        on the card, or the computation ends.
        """
        census = self._census
        assert census is not None
        if lease.id not in self._held:
            return
        for other in self._held.values():
            other.end_measuring()
        self._used.update(lease.models)
        lease.working = not lease.paged
        lease.begin_measuring()
        if lease.working:
            self._tell("memory.resident", {"id": lease.id, "held": census.held(lease.device)})
        if not lease.call:
            self._finish(lease)

    def _finish(self, lease: Lease) -> None:
        if self._held.pop(lease.id, None) is not None:
            lease.end_measuring()
            self._tell("memory.finished", {"id": lease.id, "peak": lease.peak})

    def _supersede(self, ask: dict[str, Any]) -> None:
        """A call that loads again has done with what it loaded before; where it has not, what it computes with is on the card
        by now, and measured. Its models are kept from releases until it ends all the same."""
        for lease in list(self._held.values()):
            if lease.call == ask["call"] and label(lease.device) == ask["device"]:
                self._finish(lease)

    def call_ended(self, call: int) -> None:
        """The computations of a call have ended."""
        for lease in list(self._held.values()):
            if lease.call == call:
                self._finish(lease)
        if not self._held:
            self._used.clear()
            if self._headroom:
                self._headroom = False
                self._assignments.set_for_computing(None)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        try:
            self._worker.channel.notify(method, params)
        except ChannelGone:
            pass  # nobody counts any more


def _nothing() -> None:
    """What there is to repeat while nothing waits."""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
