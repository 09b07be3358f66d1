"""A ComfyUI of which only memory is real: the miniature tree on a fake card, the adapter, and a loop like main.py's.

Reads one JSON object a line and answers each with one: {"do": ...} and what it takes. Everything runs on the loop's thread,
as prompts and flags do; the reading of lines puts them into the queue.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import types
from typing import Any

TREE, PACK = sys.argv[1:]
sys.argv[1:] = []
sys.path[:0] = [TREE, os.path.join(TREE, "comfy"), os.path.join(PACK, "nodes")]

import comfy.cli_args  # noqa: E402, F401
import comfy.model_management as management  # noqa: E402
import folder_paths  # noqa: E402, F401
import nodes  # noqa: E402, F401
import models  # noqa: E402  # the pack's
from comfyui_adapter.adapter import adapter  # noqa: E402
from comfyui_adapter.residents import is_stand_in  # noqa: E402

lines: list[str] = []  # of the log


class Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines.append(record.getMessage())


class Queue:
    """What is used of ComfyUI's PromptQueue."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.flags: dict[str, Any] = {}
        self.changed = threading.Condition()

    def put(self, item: Any) -> None:
        with self.changed:
            self.waiting.append(item)
            self.changed.notify()

    def get(self) -> Any:
        """An item, or None when a flag was set."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.flags)
            return self.waiting.pop(0) if self.waiting else None

    def set_flag(self, name: str, data: Any) -> None:
        with self.changed:
            self.flags[name] = data
            self.changed.notify()

    def get_flags(self, reset: bool = True) -> dict[str, Any]:
        with self.changed:
            flags, self.flags = self.flags, {}
            return flags

    def get_current_queue_volatile(self) -> tuple[list[Any], list[Any]]:
        return [], []


class Host:
    def __init__(self) -> None:
        self.queue = Queue()
        self.memory = adapter().memory
        self.kept: dict[str, Any] = {}
        server = types.SimpleNamespace(prompt_queue=self.queue)
        sys.modules["server"] = types.SimpleNamespace(PromptServer=types.SimpleNamespace(instance=server))  # type: ignore
        self.memory.moments.install(self.queue)

    def run(self) -> None:
        while True:
            line = self.queue.get()
            if line == "":
                return
            if line is not None:
                print(json.dumps(self.do(**json.loads(line))), flush=True)
            flags = self.queue.get_flags()
            if flags.get("unload_models", flags.get("free_memory")):
                management.unload_all_models()

    def do(self, do: str, **given: Any) -> Any:
        return getattr(self, f"do_{do}")(**given)

    def do_load(self, name: str, size_mib: int) -> Any:
        """Loads a model of the host's own."""
        self.kept.setdefault(name, models.patcher(name, size_mib))
        return models.compute([self.kept[name]], 0, -1, "", "")

    def do_call(self, environment: str, node: str, **inputs: Any) -> Any:
        """Runs a prompt with one node of a pack."""
        bridge = types.SimpleNamespace(environment=environment)
        nodes.NODE_CLASS_MAPPINGS[node] = type(node, (), {"_comfy_supervisor_bridge": bridge})
        graph = {"1": {"class_type": node}}
        self.memory.prompt_began(types.SimpleNamespace(cache_args={"ram": 2.0}), "p", graph)
        try:
            return adapter().link.session().call(environment, node, **inputs)[0]
        finally:
            self.memory.prompt_ended("p", graph)

    def do_report(self) -> Any:
        """What the host holds, and what it knows of workers."""
        listed = [entry for entry in management.current_loaded_models if is_stand_in(entry) and entry.model.resident]
        return {**models.report(), "stand_ins": [entry.model.resident for entry in listed], "lines": lines}

    def do_flag(self, name: str) -> Any:
        """What POST /free does."""
        self.queue.set_flag(name, True)
        return {}


def main() -> None:
    logging.getLogger().addHandler(Lines())
    logging.getLogger().setLevel(logging.INFO)
    host = Host()

    def read() -> None:
        for line in sys.stdin:
            host.queue.put(line)
        host.queue.put("")

    threading.Thread(target=read, daemon=True).start()
    host.run()


main()
