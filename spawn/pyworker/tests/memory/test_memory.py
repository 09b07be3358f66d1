"""A worker's part in sharing a card, with real processes on a fake card of 24 GiB, under the manager that TEST_MANAGER names."""

from __future__ import annotations

import os
import unittest
from typing import Any

from harness import LIMIT, WorkerProcess
from packworker import GIB, MIB, PAGED, PackWorker


class OnACard(unittest.TestCase):
    def worker(self, load: dict[str, Any] | None = None, **environ: str) -> PackWorker:
        made = PackWorker(load, FAKECARD_CONTEXT=str(300 * MIB), **environ)
        self.addCleanup(made.close)
        return made

    def only_device(self, census: dict[str, Any]) -> dict[str, Any]:
        self.assertEqual([device["device"] for device in census["devices"]], ["cuda:0"])
        return census["devices"][0]


class Leases(OnACard):
    def test_a_load_asks_in_upstreams_own_terms_and_tells_of_its_residency_and_its_end(self) -> None:
        worker = self.worker()
        computation = worker.computing(name="a", size_mib=2048, activation_mib=512, estimate_mib=700)
        asked = worker.lease()
        params = asked["params"]
        self.assertEqual(
            params["load"],
            {"weights": 2 * GIB, "activation": 700.0 * MIB, "minimum": -1.0, "reserve": 400.0 * MIB},
        )
        self.assertEqual((params["device"], params["node"], params["models"]), ("cuda:0", "MemoryWork", ["Model#1"]))
        self.assertEqual((params["call"], asked["call"]), (computation.request, computation.request))
        self.assertEqual((params["streams"], params["largest_tensor"], params["keep"]), (2, 64 * MIB, 0))
        self.assertEqual((params["paged"], params["context"], params["process_local"]), (PAGED, True, False))
        self.assertEqual((params["own_free"], params["own_total"]), (24 * GIB - 754 * MIB, 24 * GIB - 454 * MIB))
        self.assertFalse(computation.has_started())
        worker.grant(asked, reserve=500.0 * MIB, lease=3 * GIB)
        computation.wait_started()
        if PAGED:  # pages come with the computation, and are measured on the card: nothing is there yet to tell of
            self.assertEqual(worker.notified("memory.resident"), [])
        else:
            self.assertEqual(worker.wait("memory.resident"), {"id": params["id"], "held": 2 * GIB})
        described = worker.ask("census")["leases"]
        self.assertEqual([(lease["id"], lease["bytes"], lease["working"]) for lease in described], [(params["id"], 3 * GIB, not PAGED)])
        self.assertEqual(worker.notified("memory.finished"), [])
        report = computation.end()
        self.assertEqual(report["reserve"], 400 * MIB)  # that of the answer was for the load alone
        self.assertEqual(worker.wait("memory.finished"), {"id": params["id"], "peak": 0})
        self.assertEqual(worker.ask("census")["leases"], [])

    def test_the_reserve_of_the_answer_limits_what_is_loaded(self) -> None:
        if PAGED:
            self.skipTest("the pager does not look at the reserve")
        worker = self.worker()
        report = worker.work({"reserve": 20.0 * GIB}, name="a", size_mib=8192)
        self.assertLess(report["models"]["a"], 4 * GIB)
        self.assertGreater(report["models"]["a"], 2 * GIB)

    def test_the_headroom_of_the_answer_counts_until_the_computation_ends(self) -> None:
        if not PAGED:
            self.skipTest("there is no pager")
        worker = self.worker()
        report = worker.work({"headroom": 20 * GIB}, name="a", size_mib=8192)
        self.assertEqual(report["headroom"], 20 * GIB)
        self.assertLess(report["models"]["a"], 4 * GIB)
        self.assertEqual(worker.report()["headroom"], 256 * MIB)

    def test_a_load_that_gets_no_answer_goes_on_and_says_so_once(self) -> None:
        worker = self.worker({"lease_wait_ms": 1})
        worker.worker.call("MemoryWork", {"name": "a", "size_mib": 64})
        worker.worker.call("MemoryWork", {"name": "a", "size_mib": 64})
        self.assertEqual(len(worker.notified("memory.withdraw")), 2)
        worker.worker.wait_output(b"without a lease")
        self.assertEqual(worker.worker.output.count(b"without a lease"), 1)

    def test_where_nobody_gives_leases_none_is_asked_for_again(self) -> None:
        worker = self.worker()
        _, waiter = worker.worker.begin("MemoryWork", {"name": "a", "size_mib": 64})
        worker.channel.reply_error(worker.lease()["id"], {"code": -32601, "message": "none", "data": {"kind": "unknown_method"}})
        worker.worker.finish(waiter)
        worker.worker.call("MemoryWork", {"name": "a", "size_mib": 64})
        self.assertEqual([message["method"] for message in worker.supervisor.requests], ["memory.lease"])

    def test_a_supervisor_that_comes_new_is_asked_again(self) -> None:
        worker = self.worker()
        _, waiter = worker.worker.begin("MemoryWork", {"name": "a", "size_mib": 64})
        first = worker.lease()
        self.assertEqual(worker.ask("census")["leases"], [])  # as one does that takes a worker over
        again = worker.lease(2)
        self.assertEqual(again["params"], first["params"])
        worker.grant(again)
        self.assertEqual(worker.worker.finish(waiter)[0]["models"], {"a": 64 * MIB})
        worker.grant(first)  # a reply that nobody waits for
        worker.ask("ping")

    def test_a_cancel_reaches_a_load_that_waits(self) -> None:
        worker = self.worker()
        request, waiter = worker.worker.begin("MemoryWork", {"name": "a", "size_mib": 64})
        asked = worker.lease()
        worker.channel.notify("cancel", {}, call=request)
        with self.assertRaises(Exception) as raised:
            worker.worker.finish(waiter)
        self.assertEqual(raised.exception.kind, "cancelled")
        self.assertEqual(worker.wait("memory.withdraw"), {"id": asked["params"]["id"]})

    def test_while_a_load_waits_other_models_can_go_and_its_own_can_not(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=4096)
        worker.work(name="b", size_mib=2048)
        _, waiter = worker.worker.begin("MemoryWork", {"name": "b", "size_mib": 2048})
        asked = worker.lease(3)
        self.assertEqual(asked["params"]["keep"], 2 * GIB)
        receipt = worker.ask("memory.release", kind="partial_release", device="cuda:0", bytes=20 * GIB, cause="test")
        self.assertEqual(receipt["freed"], {"cuda:0": 4 * GIB})
        residents = {model["name"]: model["resident"] for model in self.only_device(receipt["census"])["models"]}
        self.assertEqual(residents["Model#2"], 2 * GIB)
        later = worker.begin("memory.release", kind="full_release", cause="test")
        worker.ask("ping")
        self.assertIsNone(later.reply)  # it waits for the boundary
        worker.grant(asked)
        self.assertEqual(worker.worker.finish(waiter)[0]["models"]["b"], 2 * GIB)
        self.assertEqual(worker.result(later)["freed"], {"cuda:0": 2 * GIB})


class Commands(OnACard):
    def test_a_release_that_arrives_while_a_node_computes_waits_for_the_boundary(self) -> None:
        worker = self.worker()
        computation = worker.computing(name="a", size_mib=1024)
        worker.grant(worker.lease())
        computation.wait_started()
        full = worker.begin("memory.release", kind="full_release", cause="idle")
        part = worker.begin("memory.release", kind="partial_release", device="cuda:0", bytes=1, cause="need")
        worker.ask("ping")
        self.assertEqual((full.reply, part.reply), (None, None))
        self.assertEqual(computation.end()["models"], {"a": GIB})
        self.assertEqual(worker.result(full)["freed"], {"cuda:0": GIB})
        self.assertEqual(worker.result(part)["freed"], {"cuda:0": 0})

    def test_nothing_is_released_while_an_asynchronous_node_computes_though_others_come_and_go(self) -> None:
        worker = self.worker()
        computation = worker.computing("MemoryWorkBeside", name="a", size_mib=1024)
        worker.grant(worker.lease())
        computation.wait_started()
        later = worker.begin("memory.release", kind="full_release", cause="idle")
        self.assertEqual(worker.work(name="b", size_mib=64)["models"]["a"], GIB)
        self.assertIsNone(later.reply)
        self.assertEqual(worker.ask("census")["leases"][0]["working"], not PAGED)
        self.assertEqual(computation.end()["models"]["a"], GIB)
        self.assertEqual(worker.result(later)["freed"], {"cuda:0": GIB + 64 * MIB})
        self.assertEqual(len(worker.notified("memory.finished")), 2)

    def test_the_ladder_gives_everything_back_and_says_what_each_rung_gave(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=4096)
        before = worker.report()
        receipt = worker.ask("memory.release", kind="full_release", cause="idle")
        self.assertEqual(receipt["freed"], {"cuda:0": 4 * GIB})
        names = ["models", "cast_buffers", "prefetched", "watermarks", "garbage", "device_cache", "pinned_cache"]
        self.assertEqual([step["name"] for step in receipt["steps"]], names)
        self.assertEqual([step for step in receipt["steps"] if "error" in step], [])
        self.assertEqual((receipt["steps"][0]["freed"], receipt["stuck"]), (4 * GIB, 0))
        self.assertEqual(receipt["pins_freed"], before["pinned"])
        census = self.only_device(receipt["census"])
        self.assertEqual((census["held"], census["models"]), (0, []))
        self.assertGreater(receipt["census"]["sequence"], max(c["sequence"] for c in worker.notified("memory.census")))
        after = worker.report()
        self.assertEqual((after["held"], after["pinned"]), (300 * MIB, 0))
        again = worker.work(name="a", size_mib=4096)
        self.assertEqual(again["models"], {"a": 4 * GIB})

    def test_a_partial_release_takes_about_what_is_asked_and_models_stay_usable(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=4096)
        receipt = worker.ask("memory.release", kind="partial_release", device="cuda:0", bytes=GIB, cause="need")
        self.assertEqual(receipt["freed"], {"cuda:0": GIB})
        self.assertEqual(len(self.only_device(receipt["census"])["models"]), 1)
        self.assertEqual(worker.work(name="a", size_mib=4096)["models"], {"a": 4 * GIB})

    def test_a_release_spares_what_it_is_told_to_keep(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=1024)
        worker.work(name="b", size_mib=1024)
        receipt = worker.ask("memory.release", kind="partial_release", device="cuda:0", bytes=8 * GIB, keep=["Model#1"], cause="need")
        self.assertEqual(receipt["freed"], {"cuda:0": GIB})
        self.assertEqual(list(worker.report()["models"]), ["a"])

    def test_pins_go_by_upstreams_tiers(self) -> None:
        worker = self.worker()
        worker.work({"reserve": 21.0 * GIB}, name="a", size_mib=4096)  # under the ledger, what is not on the card is pinned
        pinned = worker.report()["pinned"]
        self.assertGreater(pinned, GIB)
        receipt = worker.ask("memory.release", kind="release_pins", bytes=512 * MIB, cause="pressure")
        self.assertGreaterEqual(receipt["pins_freed"], 512 * MIB)
        self.assertEqual(worker.report()["pinned"], pinned - receipt["pins_freed"])
        self.assertEqual(receipt["census"]["pinned"], pinned - receipt["pins_freed"])

    def test_what_no_manager_knows_of_is_not_given_back_and_a_kind_that_is_none_is_refused(self) -> None:
        worker = self.worker()
        worker.worker.call("MemoryHold", {"size_mib": 1024})
        self.assertEqual(worker.ask("memory.release", kind="full_release")["freed"], {"cuda:0": 0})
        with self.assertRaises(Exception) as raised:
            worker.ask("memory.release", kind="of_a_later_version")
        self.assertIn("of_a_later_version", str(raised.exception))
        worker.worker.call("MemoryHold", {"size_mib": 0})


class Assigning(OnACard):
    def test_values_are_in_force_and_read_back(self) -> None:
        worker = self.worker()
        answer = worker.ask("memory.assign", reserve=1.5 * GIB, headroom=2 * GIB, pin_cap=3.0 * GIB, ram_headroom=4 * GIB)
        applied = {"reserve": 1.5 * GIB, "pin_cap": 3.0 * GIB, "ram_headroom": 4 * GIB}
        if PAGED:
            applied["headroom"] = 2 * GIB
        self.assertEqual(answer, {"applied": applied, "missing": [] if PAGED else ["headroom"]})
        report = worker.report()
        self.assertEqual((report["reserve"], report["pin_ceiling"]), (1.5 * GIB, 3.0 * GIB))
        self.assertEqual(report["headroom"], 2 * GIB if PAGED else None)
        self.assertEqual(worker.ask("memory.assign", pin_cap=0)["applied"], {"pin_cap": float(MIB)})  # 0 would leak every pin

    def test_what_comes_with_the_load_counts_for_the_first_model(self) -> None:
        worker = self.worker({"assign": {"reserve": 700.0 * MIB, "pin_cap": 1.0 * GIB, "headroom": GIB}})
        report = worker.report()
        self.assertEqual((report["reserve"], report["pin_ceiling"]), (700.0 * MIB, 1.0 * GIB))
        self.assertEqual(report["headroom"], GIB if PAGED else None)

    def test_a_cap_on_pins_holds(self) -> None:
        worker = self.worker({"assign": {"pin_cap": 1.0 * GIB}})
        worker.work({"reserve": 21.0 * GIB}, name="a", size_mib=4096)
        report = worker.report()
        self.assertLessEqual(report["pinned"], GIB)
        self.assertGreater(report["pinned"], 0)

    def test_an_answer_can_bring_a_cap_before_the_load_goes_on(self) -> None:
        worker = self.worker()
        answer = {"assign": {"pin_cap": 512.0 * MIB}, "reserve": 21.0 * GIB}
        report = worker.work(answer, name="a", size_mib=4096)
        self.assertLessEqual(report["pinned"], 512 * MIB)

    def test_a_cap_on_the_card_holds_for_each_load(self) -> None:
        worker = self.worker({"assign": {"vram_cap": 6 * GIB}})
        for name in "ab":
            worker.work(name=name, size_mib=8192, activation_mib=64)
            held = worker.report()["held"] - 300 * MIB
            self.assertLessEqual(held, 6 * GIB)
        self.assertGreater(held, 4 * GIB)


class Reporting(OnACard):
    def test_a_census_says_what_is_held_and_numbers_grow(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=2048)
        worker.supervisor.wait(lambda: any(c["devices"][0]["held"] for c in worker.notified("memory.census")))
        census = worker.notified("memory.census")[-1]
        device = self.only_device(census)
        self.assertEqual(
            device["models"], [{"name": "Model#1", "size": 2 * GIB, "resident": 2 * GIB, "paged": PAGED}]
        )
        self.assertEqual((device["held"], device["largest_tensor"], device["streams"]), (2 * GIB, 64 * MIB, 2))
        self.assertEqual((device["overhead"], device["process_local"], device["context"]), (0, False, True))
        self.assertEqual(device["own_free"], 24 * GIB - 754 * MIB - 2 * GIB)
        self.assertEqual((census["largest_model"], census["pin_ceiling"] > 0), (2 * GIB, True))
        self.assertGreater(census["resident"], 5 * MIB)
        sequences = [c["sequence"] for c in worker.notified("memory.census")]
        self.assertEqual(sequences, sorted(set(sequences)))
        answer = worker.ask("census")
        self.assertEqual(answer["census"], census)
        self.assertEqual([(own["device"], own["own_free"]) for own in answer["own"]], [("cuda:0", device["own_free"])])

    def test_nothing_is_reported_while_nothing_moves(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=1024)
        worker.supervisor.wait(lambda: any(c["devices"][0]["held"] for c in worker.notified("memory.census")))
        count = len(worker.notified("memory.census"))
        for _ in range(200):
            worker.report()
        self.assertEqual(len(worker.notified("memory.census")), count)

    def test_a_model_that_is_dropped_is_reported_though_nobody_calls(self) -> None:
        worker = self.worker()
        worker.work(name="a", size_mib=1024)
        worker.supervisor.wait(lambda: any(c["devices"][0]["held"] for c in worker.notified("memory.census")))
        worker.worker.call("MemoryForget", {"name": "a"})
        worker.supervisor.wait(lambda: worker.notified("memory.census")[-1]["devices"][0]["held"] == 0)

    def test_where_a_process_sees_its_own_bytes_alone_it_measures_what_no_allocator_counts(self) -> None:
        worker = self.worker(FAKECARD_LOCAL="1", FAKECARD_FILE=os.environ["FAKECARD_LOCAL_FILE"])
        worker.work(name="a", size_mib=1024)
        worker.supervisor.wait(lambda: any(c["devices"][0]["held"] for c in worker.notified("memory.census")))
        device = self.only_device(worker.notified("memory.census")[-1])
        self.assertEqual((device["process_local"], device["overhead"], device["held"]), (True, 300 * MIB, GIB))

    def test_the_hosts_headroom_in_ram_counts_during_its_prompts(self) -> None:
        worker = self.worker()
        worker.channel.notify("memory.prompt", {"prompt_id": "p", "state": "begin", "ram_headroom": 3 * GIB})
        self.assertEqual(worker.ask("memory.assign")["applied"], {})
        self.assertEqual(worker.report()["ram_headroom"], 3 * GIB)
        worker.channel.notify("memory.prompt", {"prompt_id": "p", "state": "end"})
        self.assertEqual(worker.ask("memory.assign")["applied"], {})
        self.assertEqual(worker.report()["ram_headroom"], 0)


class WithoutComfyUI(unittest.TestCase):
    def test_a_pack_that_does_not_touch_comfyui_pays_nothing_and_one_that_comes_to_it_late_finds_what_was_assigned(self) -> None:
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quiet")
        pack = {"directory": folder, "nodes": os.path.join(folder, "nodes"), "name": "quiet", "unique_name": "comfy_supervisor_pack_quiet"}
        worker.load("quiet", pack=pack, comfyui=os.environ["TEST_COMFYUI"])

        def ask(method: str, **params: Any) -> dict[str, Any]:
            return worker.channel.request(method, params, timeout=LIMIT)[0]["result"]

        parts = {"assignments", "boundary", "census", "ladder", "leases"}
        self.assertEqual(ask("memory.assign", reserve=2.0 * GIB), {"applied": {}, "missing": [], "pending": True})
        self.assertIsNone(ask("memory.release", kind="full_release")["census"])
        self.assertIsNone(ask("census")["census"])
        self.assertEqual(parts & set(worker.call("QuietModules")[0]), set())
        self.assertEqual(parts - set(worker.call("QuietModules", {"imports": True})[0]), set())
        worker.supervisor.wait(lambda: any(m["method"] == "memory.census" for m in worker.supervisor.notifications))
        self.assertEqual(ask("memory.assign", ram_headroom=1)["applied"], {"ram_headroom": 1})
        self.assertTrue(ask("census")["census"])


class OnTheProcessor(unittest.TestCase):
    def test_a_worker_without_a_card_asks_for_nothing_and_still_lets_go(self) -> None:
        worker = PackWorker(FAKECARD_FILE="")
        self.addCleanup(worker.close)
        report = worker.worker.call("MemoryWork", {"name": "a", "size_mib": 512})[0]
        self.assertEqual((report["models"], report["pin_ceiling"]), ({"a": 512 * MIB}, -1))
        self.assertEqual(worker.supervisor.requests, [])
        receipt = worker.ask("memory.release", kind="full_release", cause="ui")
        self.assertEqual((receipt["freed"], receipt["stuck"]), ({"cpu": 512 * MIB}, 0))
        self.assertEqual([device["held"] for device in receipt["census"]["devices"]], [])
        answer = worker.ask("memory.assign", reserve=GIB, pin_cap=1.0 * GIB, headroom=GIB)
        self.assertEqual(answer, {"applied": {"reserve": float(GIB)}, "missing": ["pin_cap", "headroom"]})


if __name__ == "__main__":
    unittest.main()
