"""Models of workers in ComfyUI's own list of loaded models: they say what a worker holds and pass an unload on.

An entry is ComfyUI's LoadedModel with a patcher that has no weights. What the list operations of 0.30 touch of it, and
nothing more: sizes, `is_dynamic` (never: else its pins are looked for), `partially_unload` and `detach`, `model` with a
class name, and what a patcher is asked when somebody hands it back to `load_models_gpu`. It never counts as used by the
present prompt, so that nodes which load all such models again do not get it.

Two more entries for each card stand for what workers hold beyond that list: the first is asked before ComfyUI evicts
anything of its own, the last when everything else was not enough. They never go.
"""

from __future__ import annotations

import math
import sys
import uuid
import weakref
from typing import Any, Callable, Iterator, NamedTuple

from .census import label

MOST = 1 << 62  # bytes: upstream asks for 1e30 to mean everything


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


class Held(NamedTuple):
    """One model of a worker, as its census has it. Sizes are bytes."""

    name: str
    size: int
    resident: int
    device: str


class _Weights:
    """What stands for the model inside a patcher; ComfyUI shows its class name in a line of its log."""


class StandIn:
    """A patcher without weights."""

    def __init__(self, device: Any, offload_device: Any, size: int, resident: int) -> None:
        self.model = _Weights()
        self.parent = None
        self.load_device = device
        self.offload_device = offload_device
        self.clone_base_uuid = uuid.uuid4()
        self.size = size
        self.resident = resident

    def is_dynamic(self) -> bool:
        """Its pages are not this process's."""
        return False

    def is_clone(self, other: Any) -> bool:
        """Whether it is the same one."""
        return self is other

    def model_size(self) -> int:
        """Bytes of the worker's model."""
        return self.size

    def loaded_size(self) -> int:
        """Bytes of it on the card."""
        return self.resident

    def current_loaded_device(self) -> Any:
        """Where it is."""
        return self.load_device

    def model_dtype(self) -> Any:
        """There are no weights that had one."""
        return None

    def model_patches_models(self) -> list[Any]:
        """There are no patches."""
        return []

    def get_nested_additional_models(self) -> list[Any]:
        """There are none."""
        return []

    def model_patches_to(self, device: Any) -> None:
        """There is nothing to move."""

    def lowvram_patch_counter(self) -> int:
        """There are no patches."""
        return 0

    def partially_load(self, device_to: Any, extra_memory: Any = 0, force_patch_weights: bool = False) -> int:
        """Its worker loads it, nobody else."""
        return 0

    def partially_unload(self, device_to: Any, memory_to_free: Any = 0, force_patch_weights: bool = False) -> int:
        """Left to the entry, which asks the worker."""
        return 0

    def detach(self, unpatch_all: bool = True) -> Any:
        """Nothing is attached here."""
        return self.model

    def unpin_all_weights(self) -> None:
        """Nothing is pinned here."""


Unload = Callable[[dict[str, Any]], dict[str, Any]]  # asks the supervisor: {freed, busy}; never raises


def _entry_class(loaded_model: type) -> type:
    class Entry(loaded_model):  # type: ignore[misc, valid-type]
        """An entry of ComfyUI's list that belongs to a worker."""

        comfy_supervisor_stand_in = True

        def __init__(self, stand_in: StandIn, ask: Callable[[int], bool]) -> None:
            super().__init__(stand_in)
            self.real_model = weakref.ref(stand_in.model)
            self._ask = ask

        @property
        def currently_used(self) -> bool:
            """Never, so that it is not loaded again with the models that are."""
            return False

        @currently_used.setter
        def currently_used(self, used: bool) -> None:
            pass

        def model_load(self, lowvram_model_memory: Any = 0, force_patch_weights: bool = False) -> Any:
            """Its worker loads it, nobody else."""
            return self.model.model

        def model_unload(self, memory_to_free: Any = None, unpatch_weights: bool = True) -> bool:
            """Asks for so many bytes; whether the entry goes."""
            return self._ask(MOST if memory_to_free is None or memory_to_free >= MOST else math.ceil(memory_to_free))

    return Entry


class Residents:
    """The entries of all workers. Everything runs on the executor's thread, but unloads come from any."""

    def __init__(self, management: Any, unload: Unload) -> None:
        self._management = management
        self._unload = unload
        self._class = _entry_class(management.LoadedModel)
        self._models: dict[str, dict[str, tuple[StandIn, Any]]] = {}  # by environment and name; kept alive here
        self._hooks: list[tuple[StandIn, Any]] = []

    # ---- what workers hold ---------------------------------------------------------------------------------------

    def hear(self, environment: str, models: list[Held]) -> None:
        """Makes the list say what a worker holds now."""
        known = self._models.setdefault(environment, {})
        now = {model.name: model for model in models if model.resident > 0}
        for name in [name for name in known if name not in now]:
            self._remove(known.pop(name)[1])
        for name, model in now.items():
            device = self._device(model.device)
            if name in known and (device is None or known[name][0].load_device != device):
                self._remove(known.pop(name)[1])
            if device is None:
                continue  # a card that ComfyUI does not use
            if name in known:
                known[name][0].size, known[name][0].resident = model.size, model.resident
            else:
                known[name] = self._insert(environment, name, StandIn(device, self._processor(), model.size, model.resident))
            self._list_again(known[name][1])
        if not known:
            del self._models[environment]
        self._hook()

    def forget(self, environment: str) -> None:
        """A worker is gone."""
        if environment in self._models:
            self.hear(environment, [])

    def of(self, environment: str) -> list[Any]:
        """The entries of an environment."""
        return [entry for _, entry in self._models.get(environment, {}).values()]

    def environments(self) -> list[str]:
        """The environments that have entries."""
        return list(self._models)

    def hooks(self) -> list[Any]:
        """The entries of the cards."""
        return [entry for _, entry in self._hooks]

    def counts(self) -> dict[str, int]:
        """How many entries each environment has."""
        return {environment: len(models) for environment, models in self._models.items()}

    # ---- the list ------------------------------------------------------------------------------------------------

    def _insert(self, environment: str, name: str, stand_in: StandIn) -> tuple[StandIn, Any]:
        def ask(size: int) -> bool:
            given = {"environment": environment, "models": [name], "device": label(stand_in.load_device)}
            answer = self._unload({**given, "bytes": min(size, stand_in.resident), "cause": "host_pressure"})
            stand_in.resident = max(0, stand_in.resident - int(answer.get("freed") or 0))
            return stand_in.resident == 0

        return stand_in, self._class(stand_in, ask)

    def _hook(self) -> None:
        """Makes the entries of the cards, once there is a worker that holds something."""
        if self._hooks:
            for _, entry in self._hooks:
                self._list_again(entry)
            return
        for device in self._management.get_all_torch_devices():
            if getattr(device, "type", "") == "cpu":
                continue
            for stage, offloaded in (("first", MOST), ("last", -1)):
                stand_in = StandIn(device, self._processor(), offloaded, 0)
                self._hooks.append((stand_in, self._class(stand_in, self._asker(stage, device))))
                self._list_again(self._hooks[-1][1])

    def _asker(self, stage: str, device: Any) -> Callable[[int], bool]:
        def ask(size: int) -> bool:
            self._unload({"environment": "", "bytes": size, "device": label(device), "stage": stage, "cause": "host_pressure"})
            return False

        return ask

    def _list_again(self, entry: Any) -> None:
        listed = self._management.current_loaded_models
        if not any(each is entry for each in listed):
            self._arm(entry)
            listed.append(entry)

    @staticmethod
    def _arm(entry: Any) -> None:
        """What ComfyUI expects of an entry whose model is loaded; it takes it apart when an entry goes."""
        entry.real_model = weakref.ref(entry.model.model)
        if entry.model_finalizer is None:
            entry.model_finalizer = weakref.finalize(entry.model.model, int)
            entry.model_finalizer.atexit = False

    def _remove(self, entry: Any) -> None:
        listed = self._management.current_loaded_models
        for index in range(len(listed) - 1, -1, -1):
            if listed[index] is entry:
                del listed[index]

    def _device(self, name: str) -> Any:
        for device in (*self._management.get_all_torch_devices(), self._processor()):
            if label(device) == name:
                return device
        return None

    def _processor(self) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None:
            return torch.device("cpu")
        return next((device for device in self._management.get_all_torch_devices() if label(device) == "cpu"), "cpu")


def is_stand_in(entry: Any) -> bool:
    """Whether an entry of ComfyUI's list belongs to a worker."""
    return bool(getattr(entry, "comfy_supervisor_stand_in", False))


def own_entries(entries: Iterator[Any]) -> Iterator[Any]:
    """The entries that are ComfyUI's own."""
    return (entry for entry in entries if not is_stand_in(entry))
