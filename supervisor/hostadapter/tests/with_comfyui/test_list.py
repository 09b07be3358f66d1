"""Workers' models in the list of a real ComfyUI, with a double for the card; and the moments of its real queue."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import types
import unittest
import uuid
from typing import Any
from unittest import mock

TREE = os.environ["TEST_COMFYUI"]
GIB = 1 << 30
sys.argv[1:] = ["--cpu"]
sys.path.insert(0, TREE)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import comfy.model_management as management  # noqa: E402
import execution  # noqa: E402
import nodes  # noqa: E402
import torch  # noqa: E402
from comfyui_adapter.census import Census  # noqa: E402
from comfyui_adapter.hostmemory import OwnCensus  # noqa: E402
from comfyui_adapter.moments import Moments  # noqa: E402
from comfyui_adapter.residents import MOST, Held, Residents, is_stand_in  # noqa: E402

CARD, PROCESSOR = torch.device("cuda", 0), torch.device("cpu")


class Weights:
    """A model without weights."""

    def parameters(self) -> list[Any]:
        return []


class Patcher:
    """A model of the host's own, for a card that is not there."""

    def __init__(self, size: int) -> None:
        self.model = Weights()
        self.load_device, self.offload_device, self.parent = CARD, PROCESSOR, None
        self.clone_base_uuid = uuid.uuid4()
        self.size, self.loaded = size, 0

    def is_dynamic(self) -> bool:
        return False

    def is_clone(self, other: Any) -> bool:
        return self.model is getattr(other, "model", None)

    def model_size(self) -> int:
        return self.size

    def loaded_size(self) -> int:
        return self.loaded

    def current_loaded_device(self) -> Any:
        return CARD if self.loaded else PROCESSOR

    def model_patches_models(self) -> list[Any]:
        return []

    def get_nested_additional_models(self) -> list[Any]:
        return []

    def model_patches_to(self, device: Any) -> None:
        pass

    def model_dtype(self) -> Any:
        return None

    def partially_load(self, device: Any, extra: float = 0, force_patch_weights: bool = False) -> int:
        before, self.loaded = self.loaded, min(self.size, int(min(self.loaded + extra, 1 << 60)))
        return self.loaded - before

    def partially_unload(self, device: Any, size: float = 0, force_patch_weights: bool = False) -> int:
        freed = min(self.loaded, int(size))
        self.loaded -= freed
        return freed

    def detach(self, unpatch_all: bool = True) -> Any:
        self.loaded = 0 if unpatch_all else self.loaded
        return self.model


class List(unittest.TestCase):
    """A card of 24 GiB on which the host's own models and 16 GiB of workers' lie."""

    def setUp(self) -> None:
        self.workers = 16 * GIB
        self.asked: list[dict[str, Any]] = []
        self.refused = False
        self.addCleanup(management.current_loaded_models.clear)
        self.addCleanup(setattr, management, "vram_state", management.vram_state)
        management.vram_state = management.VRAMState.NORMAL_VRAM
        for name, double in (
            ("get_free_memory", self.free),
            ("get_all_torch_devices", lambda exclude_current=False: [CARD]),
            ("get_torch_device", lambda: CARD),
        ):
            patched = mock.patch.object(management, name, double)
            patched.start()
            self.addCleanup(patched.stop)
        self.residents = Residents(management, self.unload)
        self.addCleanup(self.residents.forget, "pack")
        held = [Held("a", 10 * GIB, 10 * GIB, "cuda:0"), Held("b", 6 * GIB, 6 * GIB, "cuda:0"), Held("c", GIB, GIB, "cuda:7")]
        self.residents.hear("pack", held)

    def free(self, device: Any = None, torch_free_too: bool = False) -> Any:
        own = sum(entry.model.loaded_size() for entry in management.current_loaded_models if not is_stand_in(entry))
        free = 24 * GIB - own - self.workers
        return (free, 0) if torch_free_too else free

    def unload(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params)
        if self.refused or not params["environment"]:
            return {"freed": 0, "busy": True}
        freed = min(params["bytes"], self.workers)
        self.workers -= freed
        return {"freed": freed, "busy": False}

    def own(self, size: int) -> Patcher:
        made = Patcher(size)
        management.load_models_gpu([made])
        return made

    def test_a_load_takes_from_workers_what_it_lacks_and_no_more(self) -> None:
        model = self.own(12 * GIB)
        self.assertEqual(model.loaded, 12 * GIB)
        self.assertEqual([params.get("stage", params.get("models")) for params in self.asked], ["first", ["b"], ["a"]])
        lacking = math.ceil(12 * GIB * 1.1 + management.minimum_inference_memory()) - 8 * GIB
        self.assertEqual([params["bytes"] for params in self.asked], [lacking, 6 * GIB, lacking - 6 * GIB])
        self.assertEqual(self.residents.counts(), {"pack": 2})
        left = [entry.model.resident for entry in management.current_loaded_models if is_stand_in(entry) and entry.model.resident]
        self.assertEqual(left, [16 * GIB - lacking])

    def test_unloading_everything_reaches_workers_and_their_entries_go_with_what_they_held(self) -> None:
        own = self.own(GIB)
        self.asked.clear()
        with self.assertLogs(level=logging.DEBUG):
            logging.getLogger().setLevel(logging.DEBUG)
            management.unload_all_models()
        self.assertEqual((own.loaded, self.workers), (0, 0))
        self.assertEqual([params.get("stage") for params in self.asked if not params["environment"]], ["first", "last"])
        self.assertTrue(all(params["bytes"] <= MOST for params in self.asked))
        self.assertEqual([is_stand_in(entry) for entry in management.current_loaded_models], [True, True])  # those of the card
        self.residents.hear("pack", [Held("a", 10 * GIB, 2 * GIB, "cuda:0")])
        self.assertEqual(len(management.current_loaded_models), 3)

    def test_what_computes_stays_listed(self) -> None:
        self.refused = True
        management.unload_all_models()
        self.assertEqual(len(management.current_loaded_models), 4)

    def test_what_is_to_stay_loaded_is_not_asked(self) -> None:
        keep = [*self.residents.of("pack"), *self.residents.hooks()]
        management.free_memory(1e30, CARD, keep_loaded=keep)
        self.assertEqual((self.asked, len(management.current_loaded_models)), ([], 4))

    def test_operations_on_the_list_go_through(self) -> None:
        own = self.own(GIB)
        self.asked.clear()
        management.cleanup_models_gc()
        management.cleanup_models()
        self.assertEqual(list(management.models_for_pin_eviction(None)), [])
        management.reset_cast_buffers()
        self.assertEqual(management.loaded_models(only_currently_used=True), [own])
        self.assertEqual(len(management.loaded_models()), 5)
        self.assertEqual(management.offloaded_memory([], CARD), 0)
        management.load_models_gpu(management.loaded_models())  # as a node that loads again whatever is there
        self.assertEqual({id(entry.model) for entry in management.current_loaded_models}, {id(model) for model in management.loaded_models()})
        self.assertEqual((own.loaded, self.workers), (GIB, 16 * GIB))
        self.asked.clear()
        management.unload_model_and_clones(own)
        self.assertEqual((own.loaded, self.asked), (0, []))

    def test_entries_are_no_part_of_the_hosts_own_report(self) -> None:
        kept = self.own(GIB)
        every, own = Census(management).read(), OwnCensus(management).read()
        self.assertEqual([len(report["devices"][0]["models"]) for report in (every, own)], [5, 1])
        self.assertEqual(own["devices"][0]["models"][0]["resident"], kept.loaded)


class MomentsOfTheQueue(unittest.TestCase):
    def test_what_is_asked_runs_on_the_loops_thread_while_nothing_runs(self) -> None:
        queue = execution.PromptQueue(types.SimpleNamespace(queue_updated=lambda: None))
        flags: list[dict[str, Any]] = []
        moments = Moments(flags.append, lambda: None)
        moments.install(queue)
        moments.install(queue)
        ended, ran = threading.Event(), threading.Event()

        def loop() -> None:  # as main.py's
            while not ended.is_set():
                queue.get(timeout=1000.0)
                seen.append(queue.get_flags())

        seen: list[dict[str, Any]] = []
        thread = threading.Thread(target=loop)
        thread.start()
        where = []
        moments.post(lambda: (where.append(threading.current_thread()), ran.set()))
        self.assertTrue(ran.wait(60))
        self.assertEqual(where, [thread])
        stopped = threading.Event()
        moments.post(lambda: (_ for _ in ()).throw(RuntimeError("of ours")))
        with self.assertLogs(level=logging.ERROR):
            moments.post(lambda: (ended.set(), stopped.set()))
            self.assertTrue(stopped.wait(60))
            queue.set_flag("free_memory", True)
            thread.join(60)
        queue.get_flags()
        queue.set_flag("unload_models", True)
        self.assertEqual(queue.get_flags(), {"unload_models": True})
        self.assertEqual(flags, [{"free_memory": True}, {"unload_models": True}])
        self.assertNotIn("comfy_supervisor", {name for each in seen for name in each})

    def test_what_is_asked_while_a_prompt_runs_runs_before_the_next_node(self) -> None:
        self.addCleanup(setattr, nodes, "before_node_execution", nodes.before_node_execution)
        reached = []
        moments = Moments(lambda flags: None, lambda: reached.append(True))
        moments.install(None)
        ran = []
        moments.post(lambda: ran.append(True))
        self.assertEqual(ran, [])
        nodes.before_node_execution()
        self.assertEqual((ran, reached, moments.is_here()), ([True], [True], True))
        management.interrupt_current_processing(True)
        with self.assertRaises(management.InterruptProcessingException):
            nodes.before_node_execution()


if __name__ == "__main__":
    unittest.main()
