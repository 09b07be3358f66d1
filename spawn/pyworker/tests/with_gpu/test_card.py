"""A real worker with models of a real ComfyUI on a real card, under the manager that TEST_MANAGER names.

The card is looked at from this process, as another process would: through torch.cuda.mem_get_info.
"""

from __future__ import annotations

import os
import unittest
from typing import Any

import torch
from comfy_supervisor_worker.wire.channel import Waiter

from harness import LIMIT, WorkerProcess

MIB, GIB = 1 << 20, 1 << 30
TREE, PACK, PAGED = os.environ["TEST_COMFYUI"], os.environ["TEST_PACK"], os.environ["TEST_MANAGER"] == "pager"
SIZE = 2048  # MiB of the model


class OnARealCard(unittest.TestCase):
    def setUp(self) -> None:
        self.assertTrue(torch.cuda.is_available(), "these tests need a CUDA device")
        torch.zeros(1, device="cuda")  # our own context, before anything is measured
        self.worker = WorkerProcess(environ={"COMFY_ENV_WORKER_AIMDO": "1" if PAGED else "0"})
        self.addCleanup(self.worker.close)
        pack = {"directory": PACK, "nodes": os.path.join(PACK, "nodes"), "name": "real", "unique_name": "comfy_supervisor_pack_real"}
        self.worker.load("real", pack=pack, comfyui=TREE, memory={"pool_bytes": 64 * MIB})
        self.leases = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.worker.channel.request(method, params, timeout=LIMIT)[0]["result"]

    def use(self, name: str = "a", size_mib: int = SIZE, **answer: Any) -> tuple[int, dict[str, Any]]:
        """Runs the node and answers its lease; what it returned, and what it asked."""
        self.leases += 1
        _, waiter = self.worker.begin("RealModel", {"name": name, "size_mib": size_mib})
        supervisor, count = self.worker.supervisor, self.leases
        asked: list[Any] = []

        def arrived() -> bool:
            asked[:] = [message for message in list(supervisor.requests) if message["method"] == "memory.lease"]
            return len(asked) >= count

        supervisor.wait(arrived)
        self.worker.channel.reply(asked[-1]["id"], {"verdict": "granted", "cause": "fits", "lease": 3 * GIB, "terms": [], **answer})
        return self.finish(waiter), asked[-1]["params"]

    def finish(self, waiter: Waiter) -> int:
        return self.worker.finish(waiter)[0]

    def device(self, census: dict[str, Any]) -> dict[str, Any]:
        (device,) = [each for each in census["devices"] if each["device"] == "cuda:0"]
        return device

    def free(self) -> int:
        return torch.cuda.mem_get_info(0)[0]

    def test_a_load_is_asked_for_counted_and_given_back(self) -> None:
        before = self.free()
        loaded, asked = self.use()
        self.assertEqual((asked["device"], asked["paged"], asked["context"]), ("cuda:0", PAGED, True))
        self.assertEqual((asked["load"]["weights"], asked["largest_tensor"]), (SIZE * MIB, 16 * MIB))
        self.assertTrue(asked["identity"].startswith(("GPU-", "MIG-")) or asked["identity"].count(":") == 2, asked["identity"])
        self.assertGreater(loaded, SIZE * MIB * 0.9)
        finished = [m["params"] for m in self.worker.supervisor.notifications if m["method"] == "memory.finished"]
        self.assertGreater(finished[-1]["peak"], 0)
        census = self.ask("census")["census"]
        device = self.device(census)
        print(f"with {SIZE} MiB loaded: held {device['held'] // MIB} MiB, the card lost {(before - self.free()) // MIB} MiB, "
              f"peak {finished[-1]['peak'] // MIB} MiB, cast buffers {device['cast_buffers'] // MIB} MiB, streams {device['streams']}, "
              f"pinned {census['pinned'] // MIB} of {census['pin_ceiling'] / MIB:.0f} MiB")  # fmt: skip
        self.assertGreaterEqual(device["held"], SIZE * MIB * 0.9)
        self.assertGreaterEqual(before - self.free(), device["held"] * 0.9)
        self.assertEqual([model["paged"] for model in device["models"]], [PAGED])
        part = self.ask("memory.release", kind="partial_release", device="cuda:0", bytes=512 * MIB, cause="test")
        self.assertGreaterEqual(part["freed"]["cuda:0"], 512 * MIB)
        self.assertGreater(self.use()[0], SIZE * MIB * 0.9)  # it comes back
        held, free = self.device(self.ask("census")["census"])["held"], self.free()
        receipt = self.ask("memory.release", kind="full_release", cause="test")
        print(f"full_release: {receipt['steps']}, freed {receipt['freed']}, stuck {receipt['stuck']}")
        self.assertEqual([step for step in receipt["steps"] if "error" in step], [])
        self.assertGreaterEqual(receipt["freed"]["cuda:0"], held * 0.9)
        self.assertGreaterEqual(self.free() - free, receipt["freed"]["cuda:0"] * 0.9)  # the driver has it
        self.assertEqual(receipt["census"]["pinned"], 0)

    def test_the_answer_limits_the_load(self) -> None:
        total = torch.cuda.mem_get_info(0)[1]
        if PAGED:
            loaded, _ = self.use(headroom=total - GIB)
            self.assertLess(loaded, GIB + 256 * MIB)
        else:
            loaded, _ = self.use(reserve=float(self.free() - int(1.9 * GIB)))
            self.assertLess(loaded, SIZE * MIB)
        self.assertGreater(self.use()[0], SIZE * MIB * 0.9)

    def test_a_cap_on_pins_holds_and_pins_are_given_back(self) -> None:
        answer = self.ask("memory.assign", pin_cap=512.0 * MIB)
        self.assertEqual(answer["missing"], [])
        self.use(**({} if PAGED else {"reserve": float(self.free() - int(1.9 * GIB))}))
        pinned = self.ask("census")["census"]["pinned"]
        print(f"pinned {pinned // MIB} MiB under a cap of 512 MiB")
        self.assertLessEqual(pinned, 512 * MIB)
        receipt = self.ask("memory.release", kind="release_pins", bytes=256 * MIB, cause="test")
        self.assertEqual([step for step in receipt["steps"] if "error" in step], [])
        self.assertGreaterEqual(receipt["pins_freed"], min(pinned, 256 * MIB))


if __name__ == "__main__":
    unittest.main()
