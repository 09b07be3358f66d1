"""A worker's part in a real ComfyUI, with doubles for what a machine without a card leaves off: the card, locked RAM, pages."""

from __future__ import annotations

import contextlib
import os
import sys
import types
import unittest
import uuid
from typing import Any, Iterator
from unittest import mock

TREE = os.environ["TEST_COMFYUI"]
MIB, GIB = 1 << 20, 1 << 30
sys.argv[1:] = ["--cpu"]
sys.path.insert(0, TREE)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.memory_management  # noqa: E402
import comfy.model_management as management  # noqa: E402
import comfy.model_patcher  # noqa: E402
import comfy_aimdo.control  # noqa: E402
import torch  # noqa: E402
from comfy_supervisor_worker.comfyui.assignments import Assignments  # noqa: E402
from comfy_supervisor_worker.comfyui.boundary import Boundary  # noqa: E402
from comfy_supervisor_worker.comfyui.census import Census  # noqa: E402
from comfy_supervisor_worker.comfyui.ladder import Ladder  # noqa: E402
from comfy_supervisor_worker.comfyui.leases import Leases  # noqa: E402
from comfy_supervisor_worker.comfyui.pager import HostMemory, Pager  # noqa: E402

CARD = torch.device("cuda", 0)
PROCESSOR = torch.device("cpu")


class Weights:
    """A model without weights; what its patchers keep on it."""

    def __init__(self) -> None:
        self.loaded = 0
        self.pins = 0
        self.dynamic_pins = {CARD: {"active": False, "current_prompt": False}}

    def parameters(self) -> Iterator[Any]:
        return iter([torch.empty(64 * MIB, dtype=torch.uint8, device="meta")])


class Patcher:
    """What ComfyUI's lists and loaders touch of a patcher, for a card that is not there."""

    def __init__(self, size: int, paged: bool = False) -> None:
        self.model = Weights()
        self.load_device, self.offload_device = CARD, PROCESSOR
        self.parent = None
        self.clone_base_uuid = uuid.uuid4()
        self.size, self.paged = size, paged
        self.budgets: list[float] = []

    def is_dynamic(self) -> bool:
        return self.paged

    def is_clone(self, other: Any) -> bool:
        return self.model is getattr(other, "model", None)

    def model_size(self) -> int:
        return self.size

    def loaded_size(self) -> int:
        return self.model.loaded

    def loaded_ram_size(self) -> int:
        return 0

    def current_loaded_device(self) -> Any:
        return CARD if self.model.loaded else PROCESSOR

    def model_patches_models(self) -> list[Any]:
        return []

    def model_patches_to(self, device: Any) -> None:
        pass

    def model_dtype(self) -> Any:
        return None

    def partially_load(self, device: Any, extra: float = 0, force_patch_weights: bool = False) -> int:
        self.budgets.append(extra)
        before, self.model.loaded = self.model.loaded, min(self.size, int(self.model.loaded + extra))
        return self.model.loaded - before

    def partially_unload(self, device: Any, size: float = 0, force_patch_weights: bool = False) -> int:
        freed = min(self.model.loaded, int(size))
        self.model.loaded -= freed
        return freed

    def detach(self, unpatch_all: bool = True) -> Any:
        if unpatch_all:
            self.model.loaded = 0
        return self.model

    def pinned_memory_size(self) -> int:
        return self.model.pins

    def partially_unload_ram(self, size: float, subsets: Any = ()) -> int:
        freed = min(self.model.pins, int(size))
        self.model.pins -= freed
        management.TOTAL_PINNED_MEMORY -= freed
        return freed


class Channel:
    """A supervisor that answers every lease in the same way."""

    gone = None

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.told: list[tuple[str, Any]] = []
        self.asks: list[dict[str, Any]] = []

    def begin(self, waiter: Any) -> int:
        self._waiter = waiter
        return 1

    def forget(self, request: int) -> bool:
        return True

    def send(self, header: bytes, body: bytes = b"") -> None:
        import json

        self.asks.append(json.loads(header)["params"])
        self._waiter.reply = {"result": self.answer}, b""

    def wait(self, waiter: Any, timeout: float | None = None) -> bool:
        return True

    def notify(self, method: str, params: Any) -> None:
        self.told.append((method, params))


class OnADouble(unittest.TestCase):
    """A card of 24 GiB on which only what patchers have loaded is taken."""

    def setUp(self) -> None:
        kept = ("EXTRA_RESERVED_VRAM", "MAX_PINNED_MEMORY", "TOTAL_PINNED_MEMORY", "vram_state", "load_models_gpu", "pin_memory",
                "free_model_pins", "DISABLE_SMART_MEMORY")  # fmt: skip
        for name in kept:
            self.addCleanup(setattr, management, name, getattr(management, name))
        self.addCleanup(management.current_loaded_models.clear)
        management.vram_state = management.VRAMState.NORMAL_VRAM
        self.enter(mock.patch.object(management, "get_free_memory", self.free))
        self.enter(mock.patch.object(management, "get_total_memory", lambda device=None, torch_total_too=False: 24 * GIB))
        self.enter(mock.patch.object(management, "get_all_torch_devices", lambda exclude_current=False: [CARD]))
        self.enter(mock.patch.object(management, "get_torch_device", lambda: CARD))
        self.enter(mock.patch.object(management, "NUM_STREAMS", 2))

    def enter(self, context: Any) -> Any:
        made = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return made

    @staticmethod
    def free(device: Any = None, torch_free_too: bool = False) -> Any:
        taken = sum(entry.model_loaded_memory() for entry in management.current_loaded_models if entry.model is not None)
        return (24 * GIB - taken, 0) if torch_free_too else 24 * GIB - taken

    def pager(self, outcome: str = "ledger") -> Pager:
        made = Pager({})
        made.outcome = outcome
        return made


class SevenAndThree(OnADouble):
    def test_what_the_host_has_is_there_before_the_first_load(self) -> None:
        HostMemory({"COMFY_ENV_EXTRA_RESERVED_VRAM": str(3 * GIB), "COMFY_ENV_VRAM_STATE": "LOW_VRAM"}).apply(management)
        self.assertEqual(management.EXTRA_RESERVED_VRAM, 3 * GIB)
        self.assertIs(management.vram_state, management.VRAMState.LOW_VRAM)
        self.assertEqual(management.minimum_inference_memory(), 0.8 * GIB + 3 * GIB)

    def test_the_pager_makes_its_patcher_the_usual_one(self) -> None:
        self.addCleanup(setattr, comfy.model_patcher, "CoreModelPatcher", comfy.model_patcher.CoreModelPatcher)
        self.addCleanup(setattr, comfy.memory_management, "aimdo_enabled", False)
        self.enter(mock.patch.object(comfy_aimdo.control, "init_devices", lambda pairs: list(pairs) == [(0, 0)]))
        pager = Pager({"COMFY_ENV_WORKER_AIMDO": "1"})
        pager.complete(comfy.model_patcher)
        self.assertEqual((pager.outcome, pager.reason), ("paged", ""))
        self.assertIs(comfy.model_patcher.CoreModelPatcher, comfy.model_patcher.ModelPatcherDynamic)
        self.assertTrue(comfy.memory_management.aimdo_enabled)

    def test_the_pagers_headroom_reaches_its_native_library(self) -> None:
        if not comfy_aimdo.control.init():
            self.skipTest("comfy-aimdo has no library for this platform")
        set_to = []
        library = types.SimpleNamespace(set_simple_vram_headroom=set_to.append)
        with mock.patch.object(comfy_aimdo.control, "lib", library):
            assignments = Assignments(self.pager("paged"))
            assignments.arrived(management, str)
            self.assertEqual(assignments.take({"headroom": 2 * GIB})["applied"], {"headroom": 2 * GIB})
        assignments = Assignments(self.pager("paged"))
        assignments.arrived(management, str)
        self.assertEqual(assignments.take({"headroom": 1 * GIB})["missing"], [])  # the real one takes it, too
        self.assertEqual(set_to, [2 * GIB])

    def pin(self, *sizes: int) -> list[bool]:
        with mock.patch.object(torch.cuda, "cudart", lambda: types.SimpleNamespace(cudaHostRegister=lambda *_: 0)):
            return [management.pin_memory(torch.empty(size, dtype=torch.uint8)) for size in sizes]

    def test_a_cap_on_pins_binds_in_pin_memory_which_does_not_look_by_itself(self) -> None:
        self.addCleanup(management.PINNED_MEMORY.clear)
        management.MAX_PINNED_MEMORY = 10.0 * MIB
        self.assertEqual(self.pin(8 * MIB, 8 * MIB), [True, True])  # 0.30 pins beyond its own ceiling
        management.TOTAL_PINNED_MEMORY = 0
        management.MAX_PINNED_MEMORY = 1.0 * GIB
        assignments = Assignments(self.pager())
        assignments.arrived(management, str)
        self.assertEqual(assignments.take({"pin_cap": 10.0 * MIB, "ram_headroom": GIB})["missing"], [])
        self.assertEqual((management.MAX_PINNED_MEMORY, comfy.memory_management.RAM_CACHE_HEADROOM), (10.0 * MIB, GIB))
        self.assertEqual(self.pin(8 * MIB, 8 * MIB, 2 * MIB), [True, False, True])
        self.assertEqual(management.TOTAL_PINNED_MEMORY, 10 * MIB)
        self.assertEqual(management.pinned_hostbuf_size(GIB), 20 * MIB)  # and host buffers are sized by it
        assignments.take({"ram_headroom": 0})

    def test_whose_pins_went_is_counted_and_nothing_else_changes(self) -> None:
        management.MAX_PINNED_MEMORY = 1.0 * GIB
        one = Patcher(GIB, paged=True)
        management.current_loaded_models.append(management.LoadedModel(one))
        one.model.pins = management.TOTAL_PINNED_MEMORY = 100 * MIB
        assignments, census = Assignments(self.pager()), Census(management)
        assignments.arrived(management, census.names.of)
        self.assertEqual(management.free_pins(30 * MIB), 30 * MIB)
        self.assertEqual(assignments.evicted, {census.names.of(one): 30 * MIB})


class Loads(OnADouble):
    def leases(self, answer: dict[str, Any], outcome: str = "ledger") -> tuple[Leases, Channel]:
        channel = Channel(answer)
        lane = types.SimpleNamespace(only_call=lambda: types.SimpleNamespace(request=5, node="Sampler"))
        self.assignments = Assignments(self.pager(outcome))
        census = Census(management)
        self.assignments.arrived(management, census.names.of)
        leases = Leases(types.SimpleNamespace(channel=channel, main=lane), self.assignments)
        leases.arrived(management, census)
        return leases, channel

    def test_a_load_asks_and_its_answer_is_in_force_for_the_load_alone(self) -> None:
        leases, channel = self.leases({"verdict": "granted", "lease": 5 * GIB, "reserve": 20.0 * GIB})
        model = Patcher(10 * GIB)
        management.load_models_gpu([model], memory_required=GIB, minimum_memory_required=512 * MIB)
        (ask,) = channel.asks
        self.assertEqual(
            ask["load"],
            {"weights": 10 * GIB, "activation": float(GIB), "minimum": 512.0 * MIB, "reserve": 400.0 * MIB},
        )
        self.assertEqual((ask["device"], ask["streams"], ask["largest_tensor"], ask["node"]), ("cuda:0", 2, 64 * MIB, "Sampler"))
        # Upstream's own expression with the reserve of the answer: what is free less 20 GiB and the 0.8 for computing.
        self.assertEqual(int(model.budgets[0]), int(24 * GIB - 20 * GIB - 0.8 * GIB))
        self.assertEqual(management.EXTRA_RESERVED_VRAM, 400 * MIB)
        self.assertEqual(channel.told, [("memory.resident", {"id": ask["id"], "held": model.loaded_size()})])
        leases.call_ended(5)
        self.assertEqual(channel.told[1], ("memory.finished", {"id": ask["id"], "peak": 0}))

    def test_a_model_that_is_there_asks_for_what_is_missing_of_it(self) -> None:
        _, channel = self.leases({"verdict": "granted"})
        model = Patcher(10 * GIB)
        management.load_models_gpu([model])
        model.partially_unload(PROCESSOR, 4 * GIB)
        management.load_model_gpu(model)
        self.assertEqual([ask["load"]["weights"] for ask in channel.asks], [10 * GIB, 4 * GIB])
        self.assertEqual([ask["keep"] for ask in channel.asks], [0, 6 * GIB])

    def test_a_call_that_loads_again_has_done_with_its_first_load(self) -> None:
        leases, channel = self.leases({"verdict": "granted", "lease": GIB})
        one, other = Patcher(2 * GIB), Patcher(3 * GIB)
        management.load_models_gpu([one])
        management.load_models_gpu([other])
        self.assertEqual([method for method, _ in channel.told], ["memory.resident", "memory.finished", "memory.resident"])
        self.assertEqual([lease["id"] for lease in leases.describe()], [channel.asks[1]["id"]])
        self.assertEqual(sorted(leases.keeping()), sorted([*channel.asks[0]["models"], *channel.asks[1]["models"]]))
        leases.call_ended(5)
        self.assertEqual((leases.describe(), leases.keeping()), ([], []))

    def test_a_cap_on_the_card_limits_what_is_loaded(self) -> None:
        self.leases({"verdict": "granted"})
        self.assignments.take({"vram_cap": 6 * GIB})
        model = Patcher(10 * GIB)
        management.load_models_gpu([model])
        self.assertLessEqual(model.loaded_size(), 6 * GIB)
        self.assertGreater(model.loaded_size(), 4 * GIB)

    def test_a_load_that_fails_ends_its_lease(self) -> None:
        _, channel = self.leases({"verdict": "granted"})
        model = Patcher(GIB)
        with mock.patch.object(model, "partially_load", side_effect=RuntimeError("broken")), self.assertRaises(RuntimeError):
            management.load_models_gpu([model])
        self.assertEqual([method for method, _ in channel.told], ["memory.finished"])


class Rungs(OnADouble):
    def test_the_ladder_on_a_card(self) -> None:
        census = Census(management)
        ladder = Ladder(management, census, lambda: [], lambda: 3)
        paged, other, kept = Patcher(4 * GIB, paged=True), Patcher(2 * GIB), Patcher(GIB)
        with self.off():
            management.load_models_gpu([paged, other, kept])
            names = [census.names.of(patcher) for patcher in (paged, other, kept)]
            receipt = ladder.release({"kind": "partial_release", "device": "cuda:0", "bytes": GIB}, keep=[names[2]])
            self.assertEqual((receipt["freed"], paged.loaded_size()), ({"cuda:0": GIB}, 3 * GIB))
            receipt = ladder.release({"kind": "partial_release", "device": "cuda:0", "bytes": 20 * GIB}, keep=[names[2]])
            self.assertEqual((receipt["freed"], kept.loaded_size()), ({"cuda:0": 5 * GIB}, GIB))
            receipt = ladder.release({"kind": "full_release"})
        self.assertEqual((receipt["freed"], receipt["stuck"], receipt["handles"]), ({"cuda:0": GIB}, 0, 3))
        self.assertEqual([step for step in receipt["steps"] if "error" in step], [])

    def test_a_rung_that_breaks_does_not_stop_the_others(self) -> None:
        ladder = Ladder(management, Census(management), lambda: [], lambda: 0)
        with mock.patch.object(management, "reset_cast_buffers", side_effect=RuntimeError("no card")):
            steps = ladder.release({"kind": "full_release"})["steps"]
        self.assertEqual({step["name"]: step.get("error") for step in steps}["cast_buffers"], "RuntimeError: no card")
        self.assertEqual(len(steps), 7)

    @staticmethod
    @contextlib.contextmanager
    def off() -> Iterator[None]:
        """Pages of doubles have no host buffers that a reset could make anew."""
        with mock.patch.object(management, "reset_cast_buffers", lambda: None):
            yield

    def test_plain_modules_of_nodes_are_named(self) -> None:
        class Node:
            def __init__(self) -> None:
                self.module = torch.nn.Linear(1024, 1024, bias=False, device="meta")

        ladder = Ladder(management, Census(management), lambda: [Node(), object()], lambda: 0)
        self.assertEqual(ladder.release({"kind": "full_release"})["raw"], {"Node": 4 * MIB})

    def test_releases_run_outside_inference_mode(self) -> None:
        seen = []
        ladder = Ladder(management, Census(management), lambda: [], lambda: 0)
        with torch.inference_mode(), mock.patch.object(
            management, "unload_all_models", lambda: seen.append(torch.is_inference_mode_enabled())
        ):
            ladder.release({"kind": "full_release"})
        self.assertEqual(seen, [False])


class Boundaries(OnADouble):
    def reset(self) -> list[str]:
        seen: list[str] = []
        self.enter(mock.patch.object(management, "reset_cast_buffers", lambda: seen.append("cast")))
        self.enter(mock.patch("comfy.model_prefetch.cleanup_prefetch_queues", lambda: seen.append("prefetched")))
        self.enter(mock.patch("comfy_aimdo.model_vbar.vbars_reset_watermark_limits", lambda: seen.append("watermarks")))
        self.enter(mock.patch.object(comfy_aimdo.control, "devctxs", [object()]))
        return seen

    def test_under_the_pager_everything_is_reset_after_each_call(self) -> None:
        seen = self.reset()
        boundary = Boundary(management)
        with mock.patch.object(comfy.memory_management, "aimdo_enabled", True):
            boundary.call_begins("p", {})
            boundary.call_ended(None)
            boundary.call_begins("p", {})
            boundary.call_ended({"value": 1})
        self.assertEqual(seen, ["cast", "prefetched", "watermarks"] * 2)

    def test_under_the_ledger_cast_buffers_go_with_the_next_prompt(self) -> None:
        seen = self.reset()
        boundary = Boundary(management)
        with mock.patch.object(management, "STREAM_CAST_BUFFERS", {1: object()}):
            boundary.call_begins("p", {})
            boundary.call_ended(None)
            boundary.call_begins("p", {})
            self.assertEqual(seen, ["cast", "prefetched", "watermarks"])
            boundary.call_begins("q", {})
        self.assertEqual(len(seen), 6)

    def test_models_of_the_prompt_are_marked(self) -> None:
        self.reset()
        marked: list[Any] = []

        class Marked(comfy.model_patcher.ModelPatcher):
            def is_dynamic(self) -> bool:
                return True

            def set_in_use_by_current_prompt(self, in_use: bool) -> None:
                marked.append(in_use)

        model = Marked(torch.nn.Linear(1, 1), PROCESSOR, PROCESSOR)
        boundary = Boundary(management)
        with mock.patch.object(comfy.memory_management, "aimdo_enabled", True):
            boundary.call_begins("p", {"inputs": {"model": model}})
            boundary.call_ended({"value": (model,)})
            boundary.prompt_ended("p")
        self.assertEqual((marked[0], marked[-1], True in marked), (True, False, True))

    def test_with_smart_memory_off_every_model_is_forgotten_after_a_prompt(self) -> None:
        management.DISABLE_SMART_MEMORY = True
        model = Patcher(GIB)
        management.load_models_gpu([model])
        boundary = Boundary(management)
        boundary.call_begins("p", {})
        boundary.prompt_ended("p")
        self.assertEqual(model.loaded_size(), 0)


if __name__ == "__main__":
    unittest.main()
