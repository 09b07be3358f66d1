"""What the client's tests share: a broker with real workers, and a session with it."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import Any

import comfy_supervisor
from broker import Broker

PROGRAM = os.environ["COMFY_SUPERVISOR_TEST_PROGRAM"]  # the worker's program, laid out
PACKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packs")
MINIATURE = os.environ["COMFY_SUPERVISOR_TEST_COMFYUI"]  # the miniature ComfyUI tree
LIMIT = 60.0  # seconds after which a test fails instead of waiting


class BrokerCase(unittest.TestCase):
    """One broker for a class of tests, with environments plain (no ComfyUI), mini (the miniature
    one) and other.
    """

    broker: Broker
    session: comfy_supervisor.Session

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.broker = Broker(os.path.join(cls.folder.name, "supervisor.sock"), PROGRAM)
        cls.addClassCleanup(lambda: cls.broker.close())
        nodes = os.path.join(PACKS, "client", "nodes")
        for name, comfyui in (("plain", ""), ("other", ""), ("mini", MINIATURE)):
            cls.broker.environments[name] = (sys.executable, nodes, comfyui, {})
        cls.session = comfy_supervisor.connect(cls.broker.path, start=False)
        cls.addClassCleanup(lambda: cls.session.close())

    def call(self, node: str, /, **inputs: Any) -> Any:
        """Calls a node in the environment plain."""
        return self.session.call("plain", node, **inputs)
