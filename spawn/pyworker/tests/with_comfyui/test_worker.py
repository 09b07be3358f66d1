"""A real worker with models of a real ComfyUI, on the processor."""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any

from harness import LIMIT, WorkerProcess

MIB = 1 << 20
TREE = os.environ["TEST_COMFYUI"]
PACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pack")


class OnTheProcessor(unittest.TestCase):
    worker: WorkerProcess

    @classmethod
    def setUpClass(cls) -> None:
        cls.worker = WorkerProcess(environ={"COMFY_CPU": "1", "COMFY_ENV_EXTRA_RESERVED_VRAM": str(700 * MIB)})
        pack = {"directory": PACK, "nodes": os.path.join(PACK, "nodes"), "name": "real", "unique_name": "comfy_supervisor_pack_real"}
        cls.worker.load("real", pack=pack, comfyui=TREE, memory={"pool_bytes": 64 * MIB, "assign": {"pin_cap": 1e9, "ram_headroom": 3 << 30}})

    @classmethod
    def tearDownClass(cls) -> None:
        cls.worker.close()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.worker.channel.request(method, params, timeout=LIMIT)[0]["result"]

    def use(self, name: str, size_mib: int, **params: Any) -> int:
        return self.worker.call("RealModel", {"name": name, "size_mib": size_mib}, **params)[0]

    def test_models_are_reported_and_released_with_receipts(self) -> None:
        self.assertEqual((self.use("a", 64), self.use("b", 32)), (64 * MIB, 32 * MIB))
        census = self.ask("census")["census"]
        (device,) = census["devices"]
        self.assertEqual((device["device"], device["held"], device["own_total"], device["streams"]), ("cpu", 0, 0, 0))
        self.assertEqual(sorted(model["resident"] for model in device["models"]), [32 * MIB, 64 * MIB])
        self.assertEqual({model["paged"] for model in device["models"]}, {False})
        self.assertEqual((census["pinned"], census["pin_ceiling"], census["largest_model"]), (0, -1.0, 64 * MIB))
        self.assertGreater(census["resident"], 200 * MIB)
        self.assertTrue(census["attention"]["name"])
        self.assertEqual(self.worker.supervisor.requests, [])  # nothing to ask for without a card
        self.worker.call("RawModel")
        receipt = self.ask("memory.release", kind="full_release", cause="test")
        print(f"full_release on the processor: {receipt['steps']}, freed {receipt['freed']}")
        self.assertEqual(receipt["freed"], {"cpu": 96 * MIB})
        self.assertEqual([step for step in receipt["steps"] if "error" in step], [])
        self.assertEqual(len(receipt["steps"]), 7)
        self.assertEqual((receipt["stuck"], receipt["raw"]), (0, {}))  # what lies in RAM keeps nobody off a card
        self.assertEqual(receipt["census"]["devices"], [])
        self.assertEqual(self.use("a", 64), 64 * MIB)
        pins = self.ask("memory.release", kind="release_pins", bytes=MIB, cause="test")
        self.assertEqual(([step for step in pins["steps"] if "error" in step], pins["pins_freed"]), ([], 0))
        part = self.ask("memory.release", kind="partial_release", device="cpu", bytes=MIB, cause="test")
        self.assertEqual(([step for step in part["steps"] if "error" in step], part["freed"]), ([], {"cpu": 64 * MIB}))

    def test_assignments_are_in_place_as_far_as_a_processor_has_them(self) -> None:
        answer = self.ask("memory.assign", reserve=900.0 * MIB, pin_cap=2e9, headroom=1 << 30, ram_headroom=4 << 30, vram_state="DISABLED")
        self.assertEqual(
            answer,
            {
                "applied": {"reserve": 900.0 * MIB, "ram_headroom": 4 << 30, "vram_state": "DISABLED"},
                "missing": ["pin_cap", "headroom"],  # ComfyUI neither pins nor pages without a card
            },
        )

    def test_prompts_begin_and_end(self) -> None:
        for prompt in ("p", "q"):
            self.worker.channel.notify("memory.prompt", {"prompt_id": prompt, "state": "begin", "ram_headroom": 2 << 30})
            self.use("a", 64, context={"prompt_id": prompt, "node_id": "1", "list_index": 0})
            self.worker.channel.notify("memory.prompt", {"prompt_id": prompt, "state": "end"})
        self.assertEqual(self.ask("memory.assign")["missing"], [])
        self.assertNotIn(b"does around a node failed", self.worker.output)

    def test_nothing_of_the_loan_book_is_missing(self) -> None:
        self.worker.supervisor.wait(lambda: any(m["method"] == "comfy-ready" for m in self.worker.supervisor.notifications))
        (ready,) = (m["params"] for m in self.worker.supervisor.notifications if m["method"] == "comfy-ready")
        self.assertEqual(ready["missing"], [])
        self.assertEqual(ready["python"], ".".join(map(str, sys.version_info[:3])))
        self.assertTrue(ready["packages"]["torch"] and ready["packages"]["comfy-aimdo"])


if __name__ == "__main__":
    unittest.main()
