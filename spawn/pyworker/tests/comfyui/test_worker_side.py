"""Folders, flags, state, live objects, stand-ins, core nodes on demand, and the server's stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import logging
import os
import sys
import tempfile
import types
import unittest
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

from comfy_supervisor_worker.comfyui import cacheproviders, extranodes, guests, loglines, progress, prompt_server, web_standin
from comfy_supervisor_worker.comfyui import absent
from comfy_supervisor_worker.comfyui.flags import Flags
from comfy_supervisor_worker.comfyui.folders import Folders
from comfy_supervisor_worker.comfyui.liveobjects import LiveObjects, Unknown
from comfy_supervisor_worker.comfyui.nodecalls import NodeCalls, StateMissing, UnknownNode, ValidationFailed
from comfy_supervisor_worker.comfyui.nodestate import StateWatch
from comfy_supervisor_worker.comfyui.standins import StandIns
from comfy_supervisor_worker.wire.errors import CannotCross
from comfy_supervisor_worker.wire.opaque import Opaque


def folder_paths() -> Any:
    module = types.SimpleNamespace(
        supported_pt_extensions={".pt", ".safetensors"},
        base_path="/worker",
        models_dir="/worker/models",
        input_directory="/worker/input",
        filename_list_cache={"loras": 1},
    )
    module.folder_names_and_paths = {"loras": (["/worker/loras"], module.supported_pt_extensions)}
    return module


HOST = {
    "base_path": "/host",
    "models_dir": "/host/models",
    "input": "/host/in",
    "names": {"loras": [["/host/loras", "/extra"], [".pt", ".safetensors"]], "configs": [["/host/c"], [".yaml"]]},
}


class FoldersOfTheHost(unittest.TestCase):
    def test_the_registry_is_taken_over(self) -> None:
        folders, module = Folders(), folder_paths()
        folders.hear(HOST)
        folders.apply(module)
        self.assertEqual((module.base_path, module.models_dir, module.input_directory), ("/host", "/host/models", "/host/in"))
        self.assertEqual(module.folder_names_and_paths["loras"][0], ["/host/loras", "/extra"])
        self.assertIs(module.folder_names_and_paths["loras"][1], module.supported_pt_extensions)
        self.assertEqual(module.folder_names_and_paths["configs"], (["/host/c"], {".yaml"}))
        self.assertEqual(module.filename_list_cache, {})
        self.assertEqual(folders.added(), [])

    def test_what_a_pack_adds_is_reported(self) -> None:
        folders, module = Folders(), folder_paths()
        folders.hear(HOST)
        folders.apply(module)
        module.folder_names_and_paths["loras"][0].append("/pack/loras")
        module.folder_names_and_paths["own"] = (["/pack/own"], {".x"})
        self.assertEqual(
            folders.added(), [["loras", ["/pack/loras"], [".pt", ".safetensors"]], ["own", ["/pack/own"], [".x"]]]
        )

    def test_a_later_registry_replaces_the_first(self) -> None:
        folders, module = Folders(), folder_paths()
        folders.hear(HOST)
        folders.apply(module)
        folders.hear({**HOST, "names": {"vae": [["/v"], []]}}, "2")
        self.assertEqual((sorted(module.folder_names_and_paths), folders.version), (["vae"], "2"))


class Feature(Enum):
    FAST = "fast one"


class FlagsOfTheHost(unittest.TestCase):
    def module(self) -> Any:
        arguments = types.SimpleNamespace(
            cpu=False, force_fp16=False, fast=set(), preview_method=Feature.FAST, verbose=[], use_sage_attention=False, directml=None
        )
        return types.SimpleNamespace(args=arguments, PerformanceFeature=Feature)

    def apply(self, text: str, **environ: str) -> tuple[Flags, Any]:
        flags, module = Flags({"COMFY_ENV_HOST_ARGS": text, **environ}), self.module()
        flags.apply(module)
        return flags, module.args

    def test_values_get_the_types_that_comfyui_has(self) -> None:
        flags, arguments = self.apply(
            '{"force_fp16": true, "fast": ["fast one"], "preview_method": "fast one", "verbose": [["INFO", null]]}', COMFY_CPU="1"
        )
        self.assertTrue(arguments.force_fp16 and arguments.cpu)
        self.assertEqual(arguments.fast, {Feature.FAST})
        self.assertIs(arguments.preview_method, Feature.FAST)
        self.assertEqual(arguments.verbose, [("INFO", None)])
        self.assertEqual(flags.read_back()["fast"], ["fast one"])

    def test_what_can_not_be_set_is_left_out_with_a_reason(self) -> None:
        flags, arguments = self.apply(
            '{"unknown": 1, "fast": ["another"], "attention": "sage", "directml": 0}', COMFY_CPU="off"
        )
        self.assertEqual(set(flags.skipped), {"unknown", "fast", "attention", "directml"})
        self.assertEqual((arguments.fast, arguments.use_sage_attention, arguments.cpu), (set(), False, False))
        self.assertIn("COMFY_ENV_HOST_ARGS", self.apply("no json")[0].skipped)


class Counter:
    def __init__(self) -> None:
        self.count = 0
        self.model = object()

    def run(self, by: int) -> int:
        self.count += by
        return self.count

    @classmethod
    def VALIDATE_INPUTS(cls, by: int) -> Any:
        return True if by < 10 else "too much"


class Writer:
    def run(self, prompt: dict[str, Any]) -> None:
        prompt["seed"] = 7


class Measures:
    def run(self, mesh: Any, others: Any = ()) -> int:
        if not hasattr(mesh, "vertices"):
            raise ValueError("the mesh is empty")
        return len(mesh.vertices)

    async def later(self, mesh: Any) -> int:
        return self.run(mesh)

    def passes(self, mesh: Any) -> Any:
        return mesh


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.calls = NodeCalls({"Counter": Counter, "Writer": Writer, "Measures": Measures}, "here")

    def test_a_node_that_fails_with_what_it_can_not_look_into_says_so(self) -> None:
        stranger = Opaque("trimesh.base.Trimesh", "far away/3", b"", [])
        run = self.calls.function("Measures", "run", "t", None)
        message = "Measures failed .*ValueError: the mesh is empty.*'mesh' is a trimesh.base.Trimesh of environment 'far away'.*'here'"
        with self.assertRaisesRegex(CannotCross, "(?s)" + message):
            run(inputs={"mesh": stranger})
        with self.assertRaisesRegex(CannotCross, "'others' is a trimesh"):
            run(inputs={"mesh": None, "others": [1, stranger]})
        with self.assertRaisesRegex(CannotCross, "(?s)" + message):
            asyncio.run(self.calls.function("Measures", "later", "t", None)(inputs={"mesh": stranger}))
        self.assertIs(self.calls.function("Measures", "passes", "t", None)(inputs={"mesh": stranger})["value"], stranger)
        with self.assertRaisesRegex(ValueError, "^the mesh is empty$"):
            run(inputs={"mesh": None})

    def test_an_instance_lives_under_its_token(self) -> None:
        run = self.calls.function("Counter", "run", "token", None)
        self.assertEqual(run(inputs={"by": 2})["value"], 2)
        answer = run(inputs={"by": 3})
        self.assertEqual((answer["value"], answer["state"]), (5, {"count": 5}))
        self.assertEqual(self.calls.function("Counter", "run", "other", None)(inputs={"by": 1})["value"], 1)
        self.calls.drop("token")
        self.assertEqual(run(inputs={"by": 1})["value"], 1)

    def test_state_comes_back_after_a_restart(self) -> None:
        run = self.calls.function("Counter", "run", "t", None)
        self.assertEqual(run(inputs={"by": 1}, state={"count": 41})["value"], 42)
        with self.assertRaises(StateMissing):
            self.calls.function("Counter", "run", "u", None, stateful=True)(inputs={"by": 1})

    def test_state_can_be_switched_off(self) -> None:
        with mock.patch.dict(os.environ, COMFY_ENV_NODE_STATE="off"):
            calls = NodeCalls({"Counter": Counter})
        answer = calls.function("Counter", "run", "t", None)(inputs={"by": 1}, state={"count": 41})
        self.assertEqual(answer, {"value": 1})

    def test_unchanged_state_is_not_sent_again(self) -> None:
        run = self.calls.function("Counter", "run", "t", None)
        self.assertIn("state", run(inputs={"by": 1}))
        self.assertNotIn("state", run(inputs={"by": 0}))

    def test_questions_are_answered_right_before_the_function(self) -> None:
        run = self.calls.function("Counter", "run", "t", None, validates=True)
        with self.assertRaisesRegex(ValidationFailed, "by - too much"):
            run(inputs={"by": 11}, validate=[{"by": 11}])
        self.assertEqual(run(inputs={"by": 1}, validate=[{"by": 1}])["value"], 1)

    def test_live_objects_cross_once_and_come_back_changed(self) -> None:
        run = self.calls.function("Writer", "run", "t", None)
        answer = run(inputs={}, live={"prompt": {"mark": "m", "value": {"seed": 1}}})
        self.assertEqual(answer["live"], {"prompt": {"seed": 7}})
        with self.assertRaises(Unknown):
            run(inputs={}, live={"prompt": {"mark": "m"}})

    def test_unknown_names(self) -> None:
        for node, function in (("None", "run"), ("Counter", "none")):
            with self.assertRaises(UnknownNode):
                self.calls.function(node, function, "t", None)(inputs={})


class Live(unittest.TestCase):
    def test_an_unchanged_object_is_known_by_its_mark(self) -> None:
        from comfy_supervisor_worker.wire.marks import mark

        live, value = LiveObjects(), {"a": [1, float("nan")]}
        name = mark(value)
        taken = live.take({"mark": name, "value": value})
        self.assertFalse(live.changed({"mark": name}, taken))
        self.assertIs(live.take({"mark": name}), taken)
        taken["b"] = 1
        self.assertTrue(live.changed({"mark": name}, taken))
        self.assertIs(live.take({"mark": mark(taken)}), taken)
        with self.assertRaises(Unknown):
            live.take({"mark": name})

    def test_only_the_latest_are_kept(self) -> None:
        live = LiveObjects()
        for number in range(100):
            live.take({"mark": str(number), "value": {}})
        with self.assertRaises(Unknown):
            live.take({"mark": "0"})
        live.take({"mark": "99"})


class State(unittest.TestCase):
    def test_only_plain_attributes_are_carried(self) -> None:
        target = types.SimpleNamespace(a=1, b=[{"c": (1, 2.0)}], lock=object(), kind=type, big=b"x" * (9 << 20))
        self.assertEqual(StateWatch().changed(target), {"a": 1, "b": [{"c": (1, 2.0)}]})

    def test_an_attribute_that_goes_is_a_change(self) -> None:
        watch, target = StateWatch(), types.SimpleNamespace(a=1, b=2)
        watch.changed(target)
        del target.b
        self.assertEqual(watch.changed(target), {"a": 1})


class Imports(unittest.TestCase):
    def test_a_stand_in_is_for_the_packs_own_modules(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pack, library = Path(folder, "pack"), Path(folder, "library")
            for place, name in ((pack, "of_pack"), (library, "of_library")):
                place.mkdir()
                place.joinpath(f"{name}.py").write_text("from a_missing_web import web\n")
            stand_ins = StandIns(str(pack))
            made = web_standin.modules()
            stand_ins.offer(
                "a_missing_web", lambda: {"a_missing_web": made["aiohttp"], "a_missing_web.web": made["aiohttp.web"]}
            )
            sys.path[:0] = [str(pack), str(library)]
            try:
                with self.assertRaises(ImportError):
                    importlib.import_module("of_library")
                self.assertIs(importlib.import_module("of_pack").web, made["aiohttp.web"])
            finally:
                del sys.path[:2]
                sys.meta_path.remove(stand_ins)  # type: ignore[arg-type]

    def test_comfy_api_can_be_imported_without_what_its_videos_need(self) -> None:
        finder = absent.Absent()
        self.addCleanup(sys.meta_path.remove, finder)
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "comfy_api" / "latest"
            package.mkdir(parents=True)
            (package.parent / "__init__.py").touch()
            (package / "__init__.py").write_text(
                "import absent_av\nfrom absent_av.container import InputContainer\n"
                "def kind(value: InputContainer): return isinstance(value, InputContainer)\n"
                "def show(): return absent_av.open('x')\ndef default(): return absent_av.time_base.numerator\n"
            )
            (Path(folder) / "some_pack.py").write_text("import absent_av\n")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            for name in ("comfy_api", "comfy_api.latest"):
                self.addCleanup(sys.modules.pop, name, None)
            with mock.patch.dict(absent.PACKAGES, absent_av="its videos need it"):
                with self.assertRaises(ModuleNotFoundError):
                    importlib.import_module("some_pack")
                latest = importlib.import_module("comfy_api.latest")
                finder.forget()
                self.assertFalse(latest.kind(3))
                for function in (latest.show, latest.default):
                    with self.assertRaisesRegex(ModuleNotFoundError, "absent_av.*its videos need it.*pypi-dependencies"):
                        function()
                with self.assertRaises(ModuleNotFoundError):
                    importlib.import_module("some_pack")

    def test_core_nodes_are_loaded_when_asked_for(self) -> None:
        loads = []
        module = types.SimpleNamespace(NODE_CLASS_MAPPINGS={"KSampler": 1})

        async def init() -> list[str]:
            loads.append(1)
            module.NODE_CLASS_MAPPINGS["Extra"] = 2
            return []

        module.init_builtin_extra_nodes = init
        extranodes.hook_nodes(module, contextlib.nullcontext)
        extranodes.add_own({"Own": int}, module)
        mapping = module.NODE_CLASS_MAPPINGS
        self.assertEqual((mapping["KSampler"], "Own" in mapping, loads), (1, True, []))
        self.assertEqual((mapping["Extra"], loads), (2, [1]))
        self.assertEqual((mapping.get("Nothing"), "Nothing" in mapping, loads), (None, False, [1]))
        self.assertEqual(set(mapping), {"KSampler", "Own", "Extra"})
        with self.assertRaises(KeyError):
            mapping["Nothing"]


class Reported(list):
    def bar(self, *arguments: Any) -> None:
        self.append(("bar", *arguments))

    def registry(self, *arguments: Any) -> None:
        self.append(("registry", *arguments))

    def send_event(self, *arguments: Any) -> None:
        self.append(("event", *arguments))


class Server(unittest.TestCase):
    def test_the_server_says_what_came_with_the_call(self) -> None:
        state, sent = prompt_server.HostState(), Reported()
        server = prompt_server.PromptServer(sent, state, None)  # type: ignore[arg-type]
        module = prompt_server.server_module(server)
        self.assertIs(module.PromptServer.instance, server)
        self.assertIsNone(server.client_id)
        state.enter({"client_id": "one", "last_node_id": "7"})
        self.assertEqual((server.client_id, server.last_node_id), ("one", "7"))
        server.client_id = "assigned"
        self.assertEqual(server.client_id, "assigned")
        server.send_sync("event", {"a": 1}, "one")
        server.send_progress_text("text", 12)
        self.assertEqual(sent, [("event", "event", {"a": 1}, "one"), ("event", 3, b"\x00\x00\x00\x0212text", None)])

    def test_an_on_prompt_handler_that_raises_is_skipped(self) -> None:
        server = prompt_server.PromptServer(Reported(), prompt_server.HostState(), None)  # type: ignore[arg-type]

        def bad(data: Any) -> Any:
            raise ValueError

        server.add_on_prompt_handler(bad)
        server.add_on_prompt_handler(lambda data: {**data, "seen": True})
        with self.assertLogs(level="WARNING"):
            self.assertEqual(server.trigger_on_prompt({"prompt": {}}), {"prompt": {}, "seen": True})

    def test_the_queue_is_the_hosts_and_node_replacements_go_there(self) -> None:
        host = mock.Mock(**{"ask_host.return_value": 3})
        server = prompt_server.PromptServer(host, prompt_server.HostState(), None)  # type: ignore[arg-type]
        self.assertEqual(server.prompt_queue.get_tasks_remaining(), 3)
        self.assertEqual(server.get_queue_info(), {"exec_info": {"queue_remaining": 3}})
        server.prompt_queue.set_flag("free_memory", True)
        server.queue_updated()
        questions = [call.args for call in host.ask_host.call_args_list]
        once = ("queue.tasks_remaining",)
        self.assertEqual(questions, [once, once, ("queue.set_flag", "free_memory", True), ("queue.updated",)])
        server.node_replace_manager.register(types.SimpleNamespace(as_dict=lambda: {"new_node_id": "B"}))
        host.register_replacement.assert_called_once_with({"new_node_id": "B"})

    def test_a_provider_of_cached_outputs_is_refused_with_a_line(self) -> None:
        kept: list[Any] = []
        module = types.SimpleNamespace(register_cache_provider=kept.append)
        cacheproviders.refuse(module)
        with self.assertLogs(level="WARNING") as said:
            module.register_cache_provider(Counter())
        self.assertEqual(kept, [])
        self.assertIn("Counter is not used", said.output[0])

    def test_progress_of_both_kinds(self) -> None:
        reported = Reported()
        utils = types.SimpleNamespace(set_progress_bar_global_hook=lambda hook: setattr(utils, "hook", hook))
        progress.hook_bars(utils, reported)
        utils.hook(1, 4, None, node_id="n")
        module = types.SimpleNamespace(global_progress_registry=None)
        progress.hook_registry(module, reported)
        module.global_progress_registry.update_progress("n", 2, 3, image=None)
        self.assertEqual(reported, [("bar", 1, 4, None, None, "n"), ("registry", "n", 2, 3, None)])


class Logs(unittest.TestCase):
    def test_a_worker_logs_at_the_hosts_level(self) -> None:
        root = logging.getLogger()
        before, root.handlers[:] = (root.level, list(root.handlers)), []
        self.addCleanup(lambda: (root.setLevel(before[0]), root.handlers.__setitem__(slice(None), before[1])))
        for name, level in (("15", 15), ("detail", 15), ("DEBUG", 10), ("ERROR", 40), ("", 20), ("of a later version", 20)):
            with mock.patch.dict(os.environ, COMFY_ENV_HOST_LOG_LEVEL=name):
                loglines.configure_logging()
            self.assertEqual(root.level, level, name)
        self.assertEqual(len(root.handlers), 1)
        said = io.StringIO()
        with mock.patch.object(sys, "stderr", said):
            logging.info("%s of it", "a part")
        self.assertEqual(said.getvalue(), "[INFO] a part of it\n")


class Guests(unittest.TestCase):
    def test_a_guest_is_passed_on_and_says_whose_it_is(self) -> None:
        fields = {"id": 3, "type": "comfy.sd.VAE", "environment": "other-nodes", "generation": 2, "worker": "w"}
        guest = guests.Guest(fields, "mine-nodes")
        self.assertEqual(guest.fields(), {**fields, "passed": True})
        self.assertTrue(guest)
        for use in (lambda: guest.decode, lambda: guest(1), lambda: guest[0], lambda: list(guest), lambda: len(guest)):
            with self.assertRaisesRegex((AttributeError, TypeError), "VAE.*'other-nodes'.*'mine-nodes'"):
                use()


if __name__ == "__main__":
    unittest.main()
