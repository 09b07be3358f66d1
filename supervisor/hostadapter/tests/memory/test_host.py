"""A ComfyUI that shares a fake card of 24 GiB with workers, under the manager that TEST_MANAGER names; no supervisor."""

from __future__ import annotations

import gc
import os
import sys
import threading
import types
import unittest
from typing import Any

TREE, PACK = os.environ["TEST_COMFYUI"], os.environ["TEST_PACK"]
PAGED = os.environ["TEST_MANAGER"] == "pager"
MIB, GIB = 1 << 20, 1 << 30

sys.argv[1:] = []
sys.path[:0] = [TREE, os.path.join(TREE, "comfy"), os.path.join(PACK, "nodes")]

import fakehost  # noqa: E402  # the fake card's

management = fakehost.start(paged=PAGED)
import models  # noqa: E402  # the pack's

import nodes  # noqa: E402  # ComfyUI's
from comfy_supervisor.errors import SupervisorGone  # noqa: E402
from comfyui_adapter.hostmemory import HostMemory  # noqa: E402


class Session:
    def __init__(self, link: Link) -> None:
        self._link = link

    def request(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._link.asked.append((method, params, timeout))
        return self._link.answer(params)


class Link:
    """The connection: what is told and asked, and what the supervisor answers."""

    connected = True

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any], float]] = []
        self.answer: Any = lambda params: {"freed": 0, "busy": False}
        self.now: Any = object()

    def session(self) -> Session:
        return Session(self)

    def connection(self) -> Any:
        return self.now

    def tell(self, environment: str, method: str, params: dict[str, Any]) -> None:
        self.told.append((environment, method, params))

    def of(self, method: str) -> list[dict[str, Any]]:
        return [params for _, named, params in self.told if named == method]


class Channel:
    def __init__(self) -> None:
        self.replies: list[tuple[int, Any]] = []

    def reply(self, request: int, result: Any) -> None:
        self.replies.append((request, result))

    def reply_error(self, request: int, error: dict[str, Any]) -> None:
        self.replies.append((request, error))


class Queue:
    """What is used of ComfyUI's PromptQueue."""

    def __init__(self) -> None:
        self.flags: dict[str, Any] = {}
        self.woken = threading.Event()

    def set_flag(self, name: str, data: Any) -> None:
        self.flags[name] = data
        self.woken.set()

    def get_flags(self, reset: bool = True) -> dict[str, Any]:
        flags, self.flags = self.flags, {}
        return flags

    def get_current_queue_volatile(self) -> tuple[list[Any], list[Any]]:
        return [], [(0, "later", {"1": {"class_type": "Isolated"}})]


class Host(unittest.TestCase):
    def setUp(self) -> None:
        self.link = Link()
        self.memory = HostMemory(self.link, lambda: {"pack": 2})
        self.moments = self.memory.moments
        self.addCleanup(setattr, nodes, "before_node_execution", nodes.before_node_execution)
        self.addCleanup(setattr, management, "pin_memory", management.pin_memory)
        self.queue = Queue()
        self.moments.install(self.queue)
        self.moments.now()

    def tearDown(self) -> None:
        self.memory.heard_gone("pack", 10**6)
        self.memory.heard_gone("other", 10**6)
        self.moments.now()
        management.unload_all_models()
        gc.collect()
        management.current_loaded_models.clear()
        self.assertEqual(models.report()["held"], 0)

    def resident(self, environment: str = "pack", generation: int = 1, **models: int) -> None:
        """A worker holds models of so many MiB."""
        listed = [{"name": name, "size": size * MIB, "resident": size * MIB, "device": "cuda:0"} for name, size in models.items()]
        self.memory.heard_residency({"environment": environment, "generation": generation, "models": listed})
        self.moments.now()

    def listed(self) -> list[int]:
        """What the entries of workers' models have on the card, in MiB."""
        return [entry.model.resident // MIB for entry in management.current_loaded_models if entry.model.model.__class__.__name__ == "_Weights" and entry.model.resident]

    def unloads(self, **wanted: Any) -> list[dict[str, Any]]:
        return [
            params
            for method, params, _ in self.link.asked
            if method == "memory.unload" and all(params.get(name) == value for name, value in wanted.items())
        ]


class StandIns(Host):
    def test_the_list_says_what_a_worker_holds(self) -> None:
        self.resident(a=1024, b=512)
        self.assertEqual(sorted(self.listed()), [512, 1024])
        self.resident(b=256)
        self.assertEqual(self.listed(), [256])
        self.resident()
        self.assertEqual(self.listed(), [])

    def test_an_older_generation_is_not_heard_and_a_dead_one_goes(self) -> None:
        self.resident(generation=3, a=1024)
        self.resident(generation=2, z=64)
        self.assertEqual(self.listed(), [1024])
        self.memory.heard_gone("pack", 3)
        self.moments.now()
        self.assertEqual(self.listed(), [])
        self.resident(generation=3, a=1024)
        self.assertEqual(self.listed(), [])

    def test_a_load_of_the_host_reaches_an_idle_worker_before_its_own_models(self) -> None:
        own = models.patcher("own", 4 * 1024)
        models.compute([own], 0, -1, "", "")
        holder = management._cards[0]
        holder.take(18 * GIB)  # what the worker holds
        self.addCleanup(holder.give_back, 18 * GIB)
        self.resident(a=18 * 1024)

        def answer(params: dict[str, Any]) -> dict[str, Any]:
            if params.get("stage") == "first":
                return {"freed": 0, "busy": False}
            size = min(params["bytes"], 18 * GIB)
            holder.give_back(size)
            return {"freed": size, "busy": False}

        self.link.answer = answer
        large = models.patcher("large", 8 * 1024)
        models.compute([large], 0, -1, "", "")
        self.assertEqual([params["stage"] for params in self.unloads(environment="")][:1], ["first"])
        asked = self.unloads(environment="pack")
        self.assertEqual(asked[0]["models"], ["a"])
        self.assertEqual((asked[0]["device"], asked[0]["cause"]), ("cuda:0", "host_pressure"))
        self.assertGreater(asked[0]["bytes"], 4 * GIB)
        self.assertLess(asked[0]["bytes"], 18 * GIB)
        self.assertEqual(large.loaded_size(), 8 * GIB)
        self.assertEqual(len(self.listed()), 1)  # a part of it is still there

    def test_a_worker_that_computes_keeps_its_entry(self) -> None:
        self.resident(a=1024)
        self.link.answer = lambda params: {"freed": 0, "busy": True}
        management.unload_all_models()
        self.assertEqual(self.listed(), [1024])
        self.link.answer = lambda params: {"freed": 1024 * MIB, "busy": False} if params["environment"] else {}
        management.unload_all_models()
        self.assertEqual(self.listed(), [])
        self.resident(a=1024)  # it has loaded again
        self.assertEqual(self.listed(), [1024])

    def test_whatever_upstream_does_with_its_list_does_not_stumble_over_entries(self) -> None:
        self.resident(a=1024)
        own = models.patcher("own", 64)
        models.compute([own], 0, -1, "", "")
        listed = [entry.model for entry in management.current_loaded_models]
        self.assertEqual([model for model in management.loaded_models(only_currently_used=True)], [own])
        management.cleanup_models_gc()
        management.cleanup_models()
        management.reset_cast_buffers()
        management.free_pins(1)
        management.load_models_gpu(management.loaded_models())  # as a node that loads everything again
        self.assertEqual({id(entry.model) for entry in management.current_loaded_models}, {id(model) for model in listed})
        self.assertEqual(self.listed(), [1024])

    def test_a_supervisor_that_does_not_answer_holds_nothing_up(self) -> None:
        self.resident(a=1024)

        def answer(params: dict[str, Any]) -> dict[str, Any]:
            raise SupervisorGone("it went away")

        self.link.answer = answer
        management.unload_all_models()
        self.assertEqual(self.listed(), [1024])
        limits = []
        thread = threading.Thread(target=lambda: limits.append(management.unload_all_models()))
        self.link.asked.clear()
        thread.start()
        thread.join()
        self.assertEqual({limit for _, _, limit in self.link.asked}, {3.0})  # not the executor's thread


class Requests(Host):
    def ask(self, method: str, **params: Any) -> Any:
        channel = Channel()
        self.memory.asked(channel, {"id": 7, "method": method, "params": params})
        self.assertEqual(channel.replies, [])  # not before the executor's next moment
        self.assertTrue(self.queue.woken.is_set())
        self.queue.get_flags()
        self.assertEqual(len(channel.replies), 1)
        return channel.replies[0][1]

    def test_memory_is_freed_at_the_next_moment_and_measured(self) -> None:
        own = models.patcher("own", 4096)
        models.compute([own], 0, -1, "", "")
        receipt = self.ask("memory.release", kind="free_memory", device="cuda:0", bytes=GIB, cause="need")
        self.assertGreaterEqual(receipt["freed"]["cuda:0"], GIB)
        self.assertLess(receipt["freed"]["cuda:0"], 2 * GIB)
        self.assertEqual(receipt["census"]["devices"][0]["held"], 4 * GIB - receipt["freed"]["cuda:0"])
        self.assertEqual((receipt["kind"], receipt["census"]["host"]), ("free_memory", True))

    def test_stand_ins_that_are_to_stay_are_not_asked(self) -> None:
        self.resident(a=1024)
        self.resident("other", b=1024)
        answers = []
        self.link.answer = lambda params: answers.append(params) or {"freed": GIB}
        self.ask("memory.release", kind="free_memory", device="cuda:0", bytes=30 * GIB, keep_environment="pack")
        self.assertEqual((answers, len(self.listed())), ([], 2))  # nobody is asked while the supervisor itself frees

    def test_values_are_assigned_and_read_back(self) -> None:
        before = management.EXTRA_RESERVED_VRAM, management.MAX_PINNED_MEMORY
        self.addCleanup(lambda: [setattr(management, *item) for item in zip(("EXTRA_RESERVED_VRAM", "MAX_PINNED_MEMORY"), before)])
        answer = self.ask("memory.assign", reserve=2.0 * GIB, headroom=3 * GIB, pin_cap=4.0 * GIB)
        applied = {"reserve": 2.0 * GIB, "pin_cap": 4.0 * GIB, **({"headroom": 3 * GIB} if PAGED else {})}
        self.assertEqual(answer, {"applied": applied, "missing": [] if PAGED else ["headroom"]})
        self.assertEqual((management.EXTRA_RESERVED_VRAM, management.MAX_PINNED_MEMORY), (2.0 * GIB, 4.0 * GIB))
        self.assertEqual(models.report()["headroom"], 3 * GIB if PAGED else None)
        self.assertEqual(self.ask("memory.assign", pin_cap=0)["applied"], {"pin_cap": float(MIB)})
        census = self.link.of("memory.census")[-1]
        self.assertEqual((census["reserve"], census["max_pinned"]), (400.0 * MIB, float(before[1])))

    def test_a_thread_that_waits_serves_only_if_it_is_the_executors(self) -> None:
        request = types.SimpleNamespace(method="memory.assign", params={"reserve": management.EXTRA_RESERVED_VRAM})
        self.assertEqual(self.memory.serve(request)["missing"], [])
        refused = []

        def elsewhere() -> None:
            try:
                self.memory.serve(request)
            except RuntimeError as error:
                refused.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(len(refused), 1)

    def test_what_is_wrong_is_answered_as_an_error(self) -> None:
        answer = self.ask("memory.release", kind="free_memory", device="cuda:9", bytes=1)
        self.assertIn("cuda:9", answer["message"])
        self.assertIn("of a later", self.ask("memory.release", kind="of a later version")["message"])

    def test_the_workers_kinds_are_served_without_asking_workers(self) -> None:
        self.resident(a=1024)
        own = models.patcher("own", 1024)
        models.compute([own], 0, -1, "", "")
        self.assertEqual(self.ask("memory.release", kind="full_release")["freed"], {"cuda:0": GIB})
        self.assertEqual((self.link.asked, self.listed()), ([], [1024]))


class Reports(Host):
    def test_the_host_reports_its_own_and_what_it_needs(self) -> None:
        own = models.patcher("own", 2048)
        models.compute([own], 0, -1, "", "")
        self.resident(generation=4, a=1024)
        self.memory._next = 0.0
        nodes.before_node_execution()
        census = self.link.of("memory.census")[-1]
        self.assertEqual([(d["device"], d["held"], len(d["models"])) for d in census["devices"]], [("cuda:0", 2 * GIB, 1)])
        self.assertEqual((census["smart_memory"], census["headroom"]), (True, 256 * MIB))
        self.assertEqual((census["stand_ins"], census["handles"]), ({"pack": 1}, {"pack": 2}))
        needs = [(environment, params) for environment, method, params in self.link.told if method == "memory.need"]
        self.assertEqual(needs[-1], ("pack", {"generation": 4, "stand_ins": 1, "handles": 2}))
        count = len(self.link.told)
        self.memory._next = 0.0
        nodes.before_node_execution()
        self.assertEqual(len(self.link.told), count)  # nothing has moved
        self.link.now = object()
        nodes.before_node_execution()
        self.assertGreater(len(self.link.told), count)  # somebody else has to hear of it
        self.assertEqual(self.memory.census()["census"]["sequence"], self.link.of("memory.census")[-1]["sequence"])

    def test_prompts_are_told_with_the_environments_of_their_nodes(self) -> None:
        isolated = type("Isolated", (), {"_comfy_supervisor_bridge": types.SimpleNamespace(environment="pack")})
        nodes.NODE_CLASS_MAPPINGS["Isolated"] = isolated
        self.addCleanup(nodes.NODE_CLASS_MAPPINGS.pop, "Isolated")
        server = types.SimpleNamespace(instance=types.SimpleNamespace(prompt_queue=self.queue))
        sys.modules["server"] = types.SimpleNamespace(PromptServer=server)  # type: ignore[assignment]
        self.addCleanup(sys.modules.pop, "server")
        graph = {"1": {"class_type": "Isolated"}, "2": {"class_type": "Core"}}
        executor = types.SimpleNamespace(cache_args={"ram": 3.0})
        self.memory.prompt_began(executor, "p", graph)
        self.memory.prompt_ended("p", graph)
        begun, ended = self.link.of("memory.prompt")
        self.assertEqual((begun["state"], begun["environments"], begun["queued_environments"]), ("begin", ["pack"], ["pack"]))
        self.assertEqual((begun["ram_headroom"], ended["ram_headroom"], ended["state"]), (3 * GIB, 0, "end"))
        self.assertEqual(begun["workflow"], ended["workflow"])

    def test_the_users_wish_for_memory_reaches_workers_and_the_truth_is_said(self) -> None:
        for flags, cause in (({"unload_models": True}, "unload_models"), ({"free_memory": True}, "free_memory")):
            self.link.answer = lambda params: {"freed": 3 * GIB, "busy": False}
            with self.assertLogs(level="INFO") as said:
                for name, value in flags.items():
                    self.queue.set_flag(name, value)
                self.assertEqual(self.queue.get_flags(), flags)
            self.assertEqual(self.unloads()[-1], {"environment": "", "all": True, "cause": cause})
            self.assertIn("workers freed 3.0 GiB", said.output[0])
        self.link.answer = lambda params: {"freed": 0, "busy": True}
        with self.assertLogs(level="WARNING") as said:
            self.queue.set_flag("unload_models", True)
            self.queue.get_flags()
        self.assertIn("compute keep", said.output[0])
        self.link.asked.clear()
        self.queue.get_flags()
        self.assertEqual(self.link.asked, [])


if __name__ == "__main__":
    unittest.main()
