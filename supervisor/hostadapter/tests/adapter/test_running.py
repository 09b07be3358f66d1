"""While ComfyUI runs: input types, live objects, replay, the executor's moments, handles, log lines."""

from __future__ import annotations

import asyncio
import copy
import logging
import types
import unittest
from typing import Any
from unittest import mock

from comfy_supervisor.wire.opaque import Handle
from comfyui_adapter import executor
from comfyui_adapter.hostrole import Held
from comfyui_adapter.inputcache import InputCache, InputTypesError
from comfyui_adapter.live import apply_change
from comfyui_adapter.loglines import LogLines
from comfyui_adapter.replay import replay, replay_anywhere
from fakecomfy import Server, modules


class Inputs(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 100.0
        self.cache = InputCache(lambda: self.now)
        self.asked: list[str] = []

    def answer(self, value: Any) -> dict[str, Any]:
        return {"inputs": {"Node": {"value": {"required": {"x": value}}}}, "tables": []}

    def test_one_burst_of_questions_asks_each_worker_once(self) -> None:
        for name in ("a", "b"):

            def ask(answers: Any, name: str = name) -> bool:
                self.asked.append(name)
                answers(self.answer(len(self.asked)))
                return True

            self.cache.take(name, self.answer(0))
            self.cache.add(name, ask)
        for _ in range(3):
            self.cache.get("a", "Node", refresh=True)
            self.cache.get("b", "Node", refresh=True)
        self.assertEqual(self.asked, ["a", "b"])
        self.assertEqual(self.cache.get("b", "Node", refresh=False), {"required": {"x": 2}})
        self.now += 2
        self.cache.get("a", "Node", refresh=True)
        self.assertEqual(self.asked, ["a", "b", "a", "b"])

    def test_the_executors_questions_never_ask(self) -> None:
        self.cache.take("a", self.answer(0))
        self.cache.add("a", self.fail)
        self.assertEqual(self.cache.get("a", "Node", refresh=False), {"required": {"x": 0}})

    def test_a_worker_that_does_not_answer_is_waited_for_a_moment_and_is_no_error(self) -> None:
        late: list[Any] = []
        self.cache.take("a", self.answer(0))
        self.cache.add("a", lambda answers: late.append(answers) or True)
        with mock.patch("threading.Condition.wait_for", return_value=False) as waited:
            self.assertEqual(self.cache.get("a", "Node", refresh=True), {"required": {"x": 0}})
        self.assertEqual([call.args[1] for call in waited.call_args_list], [0.25])
        late[0](self.answer(1))
        self.assertEqual(self.cache.get("a", "Node", refresh=False), {"required": {"x": 1}})
        self.now += 2
        self.cache.add("a", lambda answers: answers(None) or True)
        self.assertEqual(self.cache.get("a", "Node", refresh=True), {"required": {"x": 1}})
        self.now += 2
        self.cache.add("a", lambda answers: False)
        self.assertEqual(self.cache.get("a", "Node", refresh=True), {"required": {"x": 1}})

    def test_what_the_pack_raised_is_raised_again_as_itself(self) -> None:
        error = {"module": "builtins", "qualname": "FileNotFoundError", "message": "no folder", "bases": [], "frames": []}
        self.cache.take("a", {"inputs": {"Node": {"error": error}}, "tables": []})
        for _ in range(2):
            with self.assertRaisesRegex(FileNotFoundError, "no folder"):
                self.cache.get("a", "Node", refresh=False)
        with self.assertRaises(InputTypesError):
            self.cache.get("a", "Other", refresh=False)


class LiveObjects(unittest.TestCase):
    def test_changes_are_made_in_place(self) -> None:
        live = {"1": {"inputs": {"seed": 1, "link": ["2", 0]}}, "gone": 1, "list": [1, {"a": 1}, 3], "nan": float("nan")}
        inner, items = live["1"]["inputs"], live["list"]
        changed = copy.deepcopy(live)
        changed["1"]["inputs"]["seed"] = 5
        del changed["gone"]
        changed["list"] = [1, {"a": 2}]
        changed["new"] = {"x": 1}
        apply_change(live, changed)
        self.assertEqual({**live, "nan": 0}, {**changed, "nan": 0})
        self.assertIs(live["1"]["inputs"], inner)
        self.assertIs(live["list"], items)

    def test_a_value_of_another_type_replaces(self) -> None:
        live: dict[str, Any] = {"a": {"b": 1}, "c": True}
        apply_change(live, {"a": [1], "c": 1})
        self.assertEqual((live, type(live["c"])), ({"a": [1], "c": 1}, int))


class Replay(unittest.TestCase):
    def test_bars_are_shown_under_the_ids_of_their_call(self) -> None:
        shown: list[Any] = []

        def hook(value: Any, total: Any, preview: Any, prompt_id: Any = None, node_id: Any = None) -> None:
            shown.append((value, total, preview, prompt_id, node_id))

        message = {"kind": "bar", "value": 1, "total": 2, "preview": None, "prompt_id": None, "node_id": None}
        with modules(comfy__utils={"PROGRESS_BAR_HOOK": hook}):
            replay(message, "p", "n")
            replay({**message, "node_id": "other"}, "p", "n")
        self.assertEqual(shown, [(1, 2, None, "p", "n"), (1, 2, None, "p", "other")])

    def test_an_older_hook_gets_what_it_takes(self) -> None:
        shown: list[Any] = []
        message = {"kind": "bar", "value": 1, "total": 2, "preview": None, "prompt_id": None, "node_id": None}
        with modules(comfy__utils={"PROGRESS_BAR_HOOK": lambda value, total, preview: shown.append(value)}):
            replay(message, "p", "n")
        with modules(comfy__utils={"PROGRESS_BAR_HOOK": None}):
            replay(message, "p", "n")
        self.assertEqual(shown, [1])

    def test_a_cancel_is_raised_through_the_hook(self) -> None:
        class Interrupt(BaseException):
            pass

        def hook(*arguments: Any) -> None:
            raise Interrupt

        with modules(comfy__utils={"PROGRESS_BAR_HOOK": hook}), self.assertRaises(Interrupt):
            replay({"kind": "bar", "value": 1, "total": 2, "preview": None, "prompt_id": None, "node_id": None}, "p", "n")

    def test_events_go_to_the_server_and_progress_of_the_registry_to_it(self) -> None:
        server, updates = Server(), []
        registry = types.SimpleNamespace(update_progress=lambda *arguments: updates.append(arguments))
        named = {
            "server": {"PromptServer": types.SimpleNamespace(instance=server)},
            "comfy_execution__progress": {"get_progress_state": lambda: registry},
        }
        with modules(**named):
            replay_anywhere({"kind": "event", "event": "e", "data": {"a": 1}, "sid": None})
            replay({"kind": "registry", "node_id": None, "value": 1, "total": 2, "preview": None}, "p", "n")
            replay_anywhere({"kind": "registry", "node_id": "n", "value": 1, "total": 2, "preview": None})
            replay_anywhere({"kind": "of a later version"})
        self.assertEqual((server.sent, updates), ([("e", {"a": 1}, None)], [("n", 1, 2, None)]))


class Executor(unittest.TestCase):
    def test_prompts_have_a_begin_and_an_end(self) -> None:
        seen: list[Any] = []

        class PromptExecutor:
            async def execute_async(self, prompt: Any, prompt_id: str, extra: Any = None) -> str:
                seen.append(("runs", prompt, prompt_id, extra))
                if prompt is None:
                    raise ValueError
                return "result"

        def began(prompt_executor: Any, prompt_id: str, prompt: Any) -> None:
            seen.append(("began", prompt_id))
            if prompt_id == "bad":
                raise RuntimeError("of ours")

        with modules(execution={"PromptExecutor": PromptExecutor}):
            self.assertTrue(executor.watch_prompts(began, lambda prompt_id, prompt: seen.append("ended")))
            self.assertEqual(asyncio.run(PromptExecutor().execute_async({}, "p", extra=1)), "result")
            with self.assertRaises(ValueError):
                asyncio.run(PromptExecutor().execute_async(None, "q"))
            with self.assertLogs(level=logging.ERROR):
                asyncio.run(PromptExecutor().execute_async({}, "bad"))
        self.assertEqual(
            seen,
            [
                ("began", "p"), ("runs", {}, "p", 1), "ended",
                ("began", "q"), ("runs", None, "q", None), "ended",
                ("began", "bad"), ("runs", {}, "bad", None), "ended",
            ],
        )  # fmt: skip
        self.assertFalse(executor.watch_prompts(began, lambda prompt_id, prompt: None))

    def test_outputs_of_dead_workers_are_forgotten_wherever_they_lie(self) -> None:
        def entry(*outputs: Any) -> Any:
            return types.SimpleNamespace(outputs=list(outputs))

        def held(environment: str, generation: int) -> Held:
            return Held(Handle(1, "a.Model", environment, generation, "w"))

        sub = types.SimpleNamespace(cache={"s": entry([held("e", 1)])}, subcaches={})
        outputs = types.SimpleNamespace(
            cache={"dead": entry([held("e", 1)], [1]), "nested": entry([{"m": [held("e", 1)]}]), "new": entry([held("e", 2)]), "plain": entry([2])},
            subcaches={"x": sub},
            used_generation={"dead": 1, "plain": 1},
        )
        prompt_executor = types.SimpleNamespace(caches=types.SimpleNamespace(outputs=outputs))
        count = executor.forget_outputs(prompt_executor, lambda output: type(output) is Held and output.handle.generation <= 1)
        self.assertEqual((count, sorted(outputs.cache), sub.cache), (3, ["new", "plain"], {}))
        self.assertEqual(outputs.used_generation, {"plain": 1})
        self.assertEqual(executor.forget_outputs(object(), lambda output: True), 0)

    def test_the_stop_button_is_only_read(self) -> None:
        class Interrupt(BaseException):
            pass

        state = {"pressed": True}

        def throw() -> None:
            if state["pressed"]:
                state["pressed"] = False
                raise Interrupt

        management = {
            "processing_interrupted": lambda: state["pressed"],
            "throw_exception_if_processing_interrupted": throw,
            "InterruptProcessingException": Interrupt,
        }
        self.assertFalse(executor.StopButton.is_set())
        self.assertIsNone(executor.interrupted())
        with modules(comfy__model_management=management):
            self.assertTrue(executor.StopButton.is_set() and executor.StopButton.is_set())
            self.assertIsInstance(executor.interrupted(), Interrupt)
            self.assertFalse(state["pressed"])
            self.assertIsInstance(executor.interrupted(), Interrupt)

    def test_graph_prefixes_move_on_only_where_nobody_else_moved_them(self) -> None:
        class GraphBuilder:
            _default_prefix_root, _default_prefix_call_index, _default_prefix_graph_index = "n", 0, 0

        with modules(comfy_execution__graph_utils={"GraphBuilder": GraphBuilder}):
            before = executor.graph()
            executor.advance_graph(before, 3)
            self.assertEqual(executor.graph(), ["n", 0, 3])
            executor.advance_graph(before, 2)
            self.assertEqual(executor.graph(), ["n", 0, 3])
            GraphBuilder._default_prefix_root = "other"
            executor.advance_graph(before, 9)
            self.assertEqual(executor.graph(), ["other", 0, 3])
        self.assertIsNone(executor.graph())


class Handles(unittest.TestCase):
    def test_a_handle_says_whose_it_is_and_is_equal_to_itself_alone(self) -> None:
        one = Held(Handle(1, "comfy.sd.VAE", "pack-nodes", 1, "w"))
        two = Held(Handle(1, "comfy.sd.VAE", "pack-nodes", 1, "w"))
        with self.assertRaisesRegex(AttributeError, "VAE.*'pack-nodes'.*'decode'"):
            one.decode
        self.assertNotEqual(one, two)
        self.assertEqual(one, one)
        self.assertIs(copy.deepcopy({"a": one})["a"], one)
        self.assertIn("comfy.sd.VAE", str(one))


class Lines(unittest.TestCase):
    def test_lines_keep_their_level_and_get_their_packs_name(self) -> None:
        lines = LogLines()
        with self.assertLogs(level=logging.DEBUG) as seen:
            lines.show("pack", {"line": "printed", "stream": "stdout"})
            lines.show("pack", {"line": "[ERROR] failed", "stream": "stderr"})
            lines.show("pack", {"line": "[10%] not a level", "stream": "stderr"})
            lines.show("pack", {"line": "dropped", "stream": "supervisor"})
        self.assertEqual(
            [(record.levelname, record.getMessage()) for record in seen.records],
            [
                ("INFO", "[pack] printed"),
                ("ERROR", "[pack] failed"),
                ("INFO", "[pack] [10%] not a level"),
                ("WARNING", "[pack] dropped"),
            ],
        )


if __name__ == "__main__":
    unittest.main()
