"""What stands between ComfyUI and a worker: what is sent with a call, what waits for it, and what is begun at the start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
import types
import unittest
from pathlib import Path
from typing import Any, Iterator
from unittest import mock

from comfy_supervisor.wire.opaque import Handle
from comfyui_adapter import accelerators, adapter, discovery, environments, hostfacts
from comfyui_adapter.bridge import Bridge
from comfyui_adapter.hostrole import Held
from comfyui_adapter.inputcache import InputCache
from comfyui_adapter.link import NotAwake
from comfyui_adapter.nodecall import Instance, NodeCall
from fakecomfy import modules


class Link:
    """Answers calls and questions, and keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.options: list[Any] = []
        self.questions: list[Any] = []
        self.answers: list[Any] = []
        self.answer: Any = None
        self.handles = dict

    def call(self, environment: str, node: str, options: Any, fields: Any, envelope: Any, replay: Any) -> Any:
        self.options.append(options)
        self.sent.append((fields, envelope))
        answer = self.answers.pop(0) if self.answers else {"value": "v"}
        if isinstance(answer, BaseException):
            raise answer
        return answer, 1

    async def ask_async(self, environment: str, method: str, params: Any, value: Any, **named: Any) -> Any:
        self.questions.append((method, params, value, named.get("if_awake")))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return {"value": self.answer}


class Resend(Exception):
    """As the worker refuses what it lacks."""

    kind = "resend"


class Bridges(unittest.TestCase):
    def setUp(self) -> None:
        self.link = Link()
        self.inputs = InputCache()
        described = {"hidden": {"graph": "PROMPT", "png": "EXTRA_PNGINFO", "id": "UNIQUE_ID"}}
        self.inputs.take("e", {"inputs": {"Node": {"value": described}}, "tables": []})
        self.registry: tuple[str, dict[str, Any]] = ("1", {"loras": []})
        owner: Any = types.SimpleNamespace(link=self.link, inputs=self.inputs, folders=lambda: self.registry)
        self.bridge = Bridge(owner, "e", "pack")
        context = types.SimpleNamespace(prompt_id="p", node_id="7", list_index=2)
        self.enter(modules(comfy_execution__utils={"get_executing_context": lambda: context}))

    def enter(self, manager: contextlib.AbstractContextManager[Any]) -> None:
        manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)

    def call(self, instance: Instance | None = None, **inputs: Any) -> Any:
        return self.bridge.call(NodeCall("Node", "run", inputs, instance=instance, runs_node=True))

    def test_the_objects_of_a_prompt_cross_once_for_each_worker(self) -> None:
        prompt = {"1": {"inputs": {"seed": 1}}}
        for _ in range(2):
            self.call(graph=prompt, id="7")
        first, second = (envelope["live"]["graph"] for _, envelope in self.link.sent)
        self.assertEqual((first["value"], second), (prompt, {"mark": first["mark"]}))
        self.assertEqual(self.link.sent[0][1]["inputs"], {"id": "7"})
        self.bridge.heard_state(2, "starting")  # another worker, which has nothing
        self.call(graph=prompt)
        self.assertEqual(self.link.sent[2][1]["live"]["graph"], first)
        prompt["1"]["inputs"]["seed"] = 2
        self.call(graph=prompt)
        self.assertEqual(self.link.sent[3][1]["live"]["graph"]["value"], prompt)

    def test_what_a_worker_turns_out_to_lack_is_sent_with_a_second_attempt(self) -> None:
        prompt = {"1": {}}
        self.call(graph=prompt)
        self.link.answers = [Resend()]
        self.assertEqual(self.call(graph=prompt), "v")
        without, whole = self.link.sent[1:]
        self.assertNotIn("value", without[1]["live"]["graph"])
        self.assertEqual(whole[1]["live"]["graph"]["value"], prompt)

    def test_what_a_node_writes_into_the_prompt_is_written_here(self) -> None:
        prompt: dict[str, Any] = {"1": {"inputs": {"seed": 1}}}
        inputs = prompt["1"]["inputs"]
        self.link.answers = [{"value": "v", "live": {"graph": {"1": {"inputs": {"seed": 5}}}}}]
        self.call(graph=prompt)
        self.assertEqual((inputs, prompt["1"]["inputs"] is inputs), ({"seed": 5}, True))

    def test_the_folder_registry_goes_along_when_it_is_another(self) -> None:
        for _ in range(2):
            self.call()
        self.registry = "2", {"loras": ["new"]}
        self.call()
        sent = [fields.get("folders") for fields, _ in self.link.sent]
        self.assertEqual(sent, [{"loras": []}, None, {"loras": ["new"]}])

    def test_a_call_says_which_prompt_and_node_it_is_of(self) -> None:
        self.call()
        self.assertEqual(self.link.options[0].context, {"prompt_id": "p", "node_id": "7", "list_index": 2})

    def test_state_goes_to_a_worker_that_has_not_got_it(self) -> None:
        instance = Instance("t", {"count": 3}, generation=1)
        self.bridge.generation = 1
        self.call(instance)
        self.bridge.generation = 2
        self.call(instance)
        self.bridge.generation = instance.generation = 2
        self.link.answers = [Resend()]
        self.call(instance)
        sent = [(envelope.get("state"), fields.get("stateful")) for fields, envelope in self.link.sent]
        self.assertEqual(sent, [(None, True), ({"count": 3}, True), (None, True), ({"count": 3}, None)])

    def validate(self, **inputs: Any) -> Any:
        return asyncio.run(self.bridge.validate(NodeCall("Node", "VALIDATE_INPUTS", inputs)))

    def test_validation_asks_a_worker_that_is_awake_and_starts_none(self) -> None:
        self.assertIs(self.validate(x=1), True)
        self.assertEqual(self.link.questions, [])
        self.bridge.awake = True
        self.link.answer = "too large"
        self.assertEqual(self.validate(x=1), "too large")
        asked = ("comfyui.ask", {"node": "Node", "function": "VALIDATE_INPUTS"}, {"inputs": {"x": 1}}, True)
        self.assertEqual(self.link.questions, [asked])

    def test_what_nobody_validated_is_asked_right_before_the_function(self) -> None:
        self.validate(x=1)
        self.bridge.awake = True
        self.link.answer = NotAwake()  # it went to sleep a moment ago
        self.assertIs(self.validate(x=2), True)
        self.call(x=2)
        self.call(x=2)
        self.assertEqual([envelope.get("validate") for _, envelope in self.link.sent], [[{"x": 1}, {"x": 2}], None])
        self.assertEqual([fields.get("validates") for fields, _ in self.link.sent], [True, None])


class Start(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    @contextlib.contextmanager
    def comfyui(self, *packs: str) -> Iterator[adapter.Adapter]:
        """A ComfyUI with packs whose environments are built, and the adapter's side of it."""
        for name in packs:
            (self.folder / "custom_nodes" / name / "nodes").mkdir(parents=True)
            for file in ("__init__.py", "nodes/comfy-env.toml"):
                (self.folder / "custom_nodes" / name / file).write_text("")
        folders = {"get_folder_paths": lambda name: [str(self.folder / name)]}
        with (
            mock.patch.dict(os.environ, COMFY_SUPERVISOR_CACHE_DIR=str(self.folder / "cache")),
            mock.patch.object(adapter.loanbook, "missing", return_value=[]),
            modules(folder_paths=folders, comfy__cli_args={"args": types.SimpleNamespace()}),
        ):
            made = adapter.Adapter()
            session = mock.Mock()
            session.environments.return_value = [
                {"name": name, "stack": "py", "revision": "1", "manifest": str(self.source(name).manifest)} for name in packs
            ]
            made.link = mock.Mock(**{"session.return_value": session})
            made.environments = environments.Environments(made.link)
            yield made

    def source(self, name: str) -> discovery.Source:
        nodes = self.folder / "custom_nodes" / name / "nodes"
        return discovery.Source(nodes, nodes / "comfy-env.toml", "nodes")

    def document(self) -> dict[str, Any]:
        empty: list[Any] = []
        return {
            "tables": empty, "nodes": empty, "display_names": {}, "routes": empty, "statics": empty, "folders": empty,
            "messages": empty, "on_prompt": 0,
        }  # fmt: skip

    def test_the_first_pack_has_all_of_them_scanned_and_later_starts_scan_none(self) -> None:
        with self.comfyui("a", "b") as made:
            asked = {"a": threading.Event(), "b": threading.Event()}

            def ask(environment: str, *_: Any, **__: Any) -> dict[str, Any]:
                asked[environment].set()
                return self.document()

            made.link.ask.side_effect = ask
            self.assertEqual(made.register(self.folder / "custom_nodes" / "a", self.source("a")), ({}, {}))
            self.assertTrue(asked["b"].wait(30), "the second pack was not scanned with the first one")
            made.register(self.folder / "custom_nodes" / "b", self.source("b"))
            self.assertEqual(sorted(call.args[0] for call in made.link.ask.call_args_list), ["a", "b"])
            self.assertEqual(sorted(call.args[0] for call in made.link.session().stop.call_args_list), ["a", "b"])
        with self.comfyui() as made:
            made.link.session().environments.return_value = [
                {"name": name, "stack": "py", "revision": "1", "manifest": str(self.source(name).manifest)} for name in "ab"
            ]
            for name in "ab":
                made.register(self.folder / "custom_nodes" / name, self.source(name))
            made.link.ask.assert_not_called()


class Accelerators(unittest.TestCase):
    def torch(self, cuda: bool = False, hip: str | None = None) -> dict[str, Any]:
        return {
            "cuda": types.SimpleNamespace(is_available=lambda: cuda),
            "version": types.SimpleNamespace(hip=hip),
            "backends": types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: False)),
        }

    def test_a_node_runs_where_one_of_its_backends_is(self) -> None:
        for cuda, hip, there in ((True, None, "cuda"), (True, "6.4", "rocm"), (False, None, "")):
            with modules(torch=self.torch(cuda, hip)):
                for backend in ("cuda", "rocm", "xpu", "mps"):
                    for wanted in (backend, [backend.upper(), "mps"]):
                        if backend == there:
                            accelerators.require(wanted, "Node")
                            continue
                        with self.assertRaisesRegex(RuntimeError, f"Node needs .*{backend}.*, which this machine does not"):
                            accelerators.require(wanted, "Node")


class Weights(unittest.TestCase):
    def test_a_handle_weighs_what_its_object_holds(self) -> None:
        tensors: list[Any] = []

        def empty(count: int, dtype: str) -> Any:
            made = mock.Mock(**{"expand.side_effect": lambda size: ("tensor", count, dtype, size)})
            tensors.append(made)
            return made

        handle = Handle(1, "a.Model", "e", 1, "w")
        with modules(torch={"empty": empty, "uint8": "uint8"}):
            self.assertEqual(tuple(Held(handle, 8 << 30)), (("tensor", 1, "uint8", 8 << 30),))
            self.assertEqual(tuple(Held(handle)), ())
        self.assertEqual(tuple(Held(handle, 8 << 30)), ())


class Facts(unittest.TestCase):
    def test_whether_the_host_uses_the_pager_is_taken_from_it(self) -> None:
        for value in (True, False, None):
            with modules(comfy__memory_management={"aimdo_enabled": value}):
                self.assertEqual(hostfacts.facts().get("aimdo_enabled"), value)


if __name__ == "__main__":
    unittest.main()
