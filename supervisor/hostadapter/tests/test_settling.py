"""Waiting until workers have let go of what was dropped, with real workers."""

from __future__ import annotations

import os
import sys
import unittest

import comfy_supervisor
from broker import Broker
from comfy_supervisor.errors import SupervisorError
from support import LIMIT, PACKS, PROGRAM, BrokerCase

HANG = 1e6  # seconds: whatever waits for so long hangs, and so fails


class Settling(BrokerCase):
    def setUp(self) -> None:
        self.session.settle(LIMIT)
        self.addCleanup(setattr, self.broker, "old", False)
        self.addCleanup(self.broker.unanswered.clear)

    def file(self, name: str) -> str:
        return os.path.join(self.folder.name, name)

    def test_the_object_is_gone_when_the_worker_says_so(self) -> None:
        path = self.file("gone")
        kept = self.call("Keeps", path=path)
        self.assertEqual(type(kept).__name__, "Handle")
        self.assertTrue(self.session.settle(HANG))  # nothing was dropped
        self.assertFalse(os.path.exists(path))
        del kept
        self.assertTrue(self.session.settle(HANG))
        self.assertTrue(os.path.exists(path))

    def test_a_worker_that_computes_is_not_waited_for(self) -> None:
        path, goes_on = self.file("later"), self.file("goes on")
        self.addCleanup(lambda: open(goes_on, "a").close())
        kept = self.call("Keeps", path=path)
        running = self.session.start("plain", "Waits", path=goes_on)
        worker = self.broker.workers["plain"].channel
        while not worker.request("ping", {})[0]["result"]["lane_busy"]:
            pass  # the broker sends calls on a thread of their own
        del kept
        self.assertFalse(self.session.settle(HANG))
        self.assertFalse(os.path.exists(path))
        open(goes_on, "x").close()
        running.result()
        self.assertEqual(self.call("Echo"), {})
        self.assertTrue(os.path.exists(path))

    def test_no_answer_and_an_answer_that_is_none_are_no_receipt(self) -> None:
        kept = [self.call("Keeps", path=self.file(str(number))) for number in range(2)]
        self.broker.unanswered.add("handle.settle")
        kept.pop()
        self.assertFalse(self.session.settle(0.0))
        self.assertEqual(self.session.channel()._pending, {})
        self.broker.unanswered.clear()
        self.broker.old = True
        kept.pop()
        self.assertFalse(self.session.settle(HANG))

    def test_where_no_worker_runs_nothing_is_kept(self) -> None:
        kept = self.call("Keeps", path=self.file("ended"))
        self.session.stop("plain")
        del kept
        self.assertTrue(self.session.settle(HANG))

    def test_without_a_connection_nothing_is_waited_for_and_none_is_made(self) -> None:
        broker = Broker(self.file("other.sock"), PROGRAM)
        self.addCleanup(broker.close)
        nodes = os.path.join(PACKS, "client", "nodes")
        broker.environments["plain"] = (sys.executable, nodes, "", {})
        session = comfy_supervisor.connect(broker.path, start=False)
        kept = session.call("plain", "Keeps", path=self.file("closed"))
        session.close()
        del kept
        self.assertFalse(session.settle(HANG))
        with self.assertRaises(SupervisorError):
            session.ping()


if __name__ == "__main__":
    unittest.main()
