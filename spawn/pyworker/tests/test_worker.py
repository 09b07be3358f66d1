"""A real worker process: its pack, its calls, its lanes, and what packs do to it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import unittest
from typing import Any

from comfy_supervisor_worker.wire.channel import Channel, Waiter
from comfy_supervisor_worker.wire.opaque import Handle, Opaque
from comfy_supervisor_worker.wire.errors import RemoteError
from harness import LIMIT, WorkerProcess, at_once


class WorkerCase(unittest.TestCase):
    worker: WorkerProcess
    loaded: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.worker = WorkerProcess()
        cls.addClassCleanup(lambda: cls.worker.close())
        cls.loaded = cls.worker.load()


class Loading(WorkerCase):
    def test_hello_comes_first_and_says_who_it_is(self) -> None:
        hello = self.worker.supervisor.notifications[0]
        self.assertEqual(hello["method"], "hello")
        params = hello["params"]
        self.assertEqual(
            (params["protocol"], params["pid"], params["worker"]),
            (1, self.worker.process.pid, self.worker.id),
        )

    def test_nodes_are_listed_with_their_contract(self) -> None:
        nodes = {node["name"]: node for node in self.loaded["nodes"]}
        self.assertEqual(self.loaded["display_names"], {"Echo": "Says it again"})
        echo, odd = nodes["Echo"], nodes["Odd"]
        self.assertEqual(
            (echo["return_types"], echo["function"], echo["is_async"]), (["*"], "run", False)
        )
        self.assertEqual(echo["input_types"], {"required": {"value": ["*"]}})
        self.assertTrue(nodes["AsyncEcho"]["is_async"])
        self.assertEqual(
            (odd["return_types"], odd["output_node"], odd["methods"]),
            (["*", "INT"], True, ["IS_CHANGED"]),
        )
        choices = odd["input_types"]["required"]["value"][1]
        self.assertEqual(choices["default"], {"$float": "inf"})
        self.assertEqual(choices["choices"], [1, {"$repr": "<class 'object'>"}])

    def test_a_node_whose_input_types_raise_takes_down_only_itself(self) -> None:
        nodes = {node["name"]: node for node in self.loaded["nodes"]}
        self.assertEqual(nodes["BrokenInputs"]["error"]["qualname"], "SystemExit")
        self.assertNotIn("error", nodes["Echo"])
        self.assertEqual(self.worker.call("BrokenInputs"), ("still runs",))

    def test_the_pack_has_a_name_of_its_own_and_imports_relatively(self) -> None:
        name, word, argv, shadowed, stdin = self.worker.call("Names")
        self.assertEqual(
            (name, word, argv, shadowed), ("comfy_supervisor_pack_basic", "relative", [""], False)
        )
        self.assertEqual(stdin, os.devnull)

    def test_nodes_can_be_listed_again_from_the_side_lane(self) -> None:
        message, _ = self.worker.channel.request("nodes", {}, lane="side", timeout=LIMIT)
        self.assertEqual(message["result"]["nodes"], self.loaded["nodes"])

    def test_a_second_load_loads_nothing_and_tells_what_there_is(self) -> None:
        again = self.worker.load()
        self.assertEqual(again["nodes"], self.loaded["nodes"])
        self.assertEqual(again["pid"], self.loaded["pid"])

    def test_unknown_methods_and_notifications(self) -> None:
        with self.assertRaises(RemoteError) as caught:
            self.worker.channel.request("no.such", {}, timeout=LIMIT)
        self.assertEqual(caught.exception.kind, "unknown_method")
        self.worker.channel.notify("no.such", {})
        self.worker.channel.notify("cancel", [], call=99)
        self.assertEqual(self.worker.call("Echo", {"value": 1}), (1,))


class Imports(unittest.TestCase):
    def loading(self, source: str, **changes: Any) -> RemoteError:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        nodes = os.path.join(folder.name, "nodes")
        os.mkdir(nodes)
        if source:
            with open(os.path.join(nodes, "__init__.py"), "w") as file:
                file.write(source)
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        pack = {
            "directory": folder.name,
            "nodes": nodes,
            "name": "broken",
            "unique_name": "pack_broken",
        }
        try:
            self.loaded = worker.load(pack=pack, **changes)
        except RemoteError as error:
            return error
        self.fail("the pack was imported")

    def test_a_pack_that_raises_is_described_without_our_frames(self) -> None:
        error = self.loading("import json\n\ndef f():\n    json.loads('{')\n\nf()\n")
        self.assertEqual(error.kind, "pack_failed")
        exception = error.data["exception"]
        self.assertEqual(exception["qualname"], "JSONDecodeError")
        self.assertEqual(
            [frame["function"] for frame in exception["frames"]][:2], ["<module>", "f"]
        )
        self.assertTrue(exception["frames"][0]["file"].endswith("nodes/__init__.py"))
        self.assertNotIn("comfy_supervisor_worker", exception["traceback"])

    def test_a_pack_that_exits_has_failed_and_the_worker_says_so(self) -> None:
        self.assertEqual(
            self.loading("import sys; sys.exit(5)").data["exception"]["qualname"], "SystemExit"
        )

    def test_a_syntax_error_names_the_file(self) -> None:
        error = self.loading("def broken(:\n")
        self.assertEqual(error.data["exception"]["qualname"], "SyntaxError")
        self.assertIn("nodes/__init__.py", error.data["exception"]["traceback"])

    def test_a_folder_without_a_package_is_named(self) -> None:
        self.assertIn("has no __init__.py", str(self.loading("")))

    def test_long_contracts_travel_in_the_body(self) -> None:
        with self.assertRaises(AssertionError):
            self.loading(
                "class Many:\n    FUNCTION = 'run'\n    RETURN_TYPES = ()\n"
                "    @classmethod\n    def INPUT_TYPES(cls):\n"
                "        return {'required': {'choice': ([f'{n:0100}' for n in range(30000)],)}}\n"
                "    def run(self, choice): pass\n"
                "NODE_CLASS_MAPPINGS = {'Many': Many}\n"
            )
        self.assertEqual(
            len(self.loaded["nodes"][0]["input_types"]["required"]["choice"][0]), 30_000
        )

    def test_nodes_of_the_newer_kind_are_listed(self) -> None:
        with self.assertRaises(AssertionError):
            self.loading(
                "class Schema:\n    node_id = 'New'\n    display_name = 'A new one'\n"
                "class New:\n    FUNCTION = 'run'\n    RETURN_TYPES = ('INT',)\n"
                "    @classmethod\n    def GET_SCHEMA(cls): return Schema\n"
                "    def run(self): return (1,)\n"
                "class Extension:\n"
                "    async def on_load(self): self.loaded = True\n"
                "    async def get_node_list(self): return [New] if self.loaded else []\n"
                "async def comfy_entrypoint(): return Extension()\n"
            )
        self.assertEqual([node["name"] for node in self.loaded["nodes"]], ["New"])
        self.assertEqual(self.loaded["display_names"], {"New": "A new one"})


class Calls(WorkerCase):
    def test_unknown_names_come_with_the_nearest(self) -> None:
        error = self.worker.error("ecco")
        self.assertEqual((error.kind, error.data["nearest"]), ("unknown_node", "Echo"))
        error = self.worker.error("Echo", {"valeu": 1})
        self.assertEqual((error.kind, error.data["nearest"]), ("unknown_input", "value"))
        error = self.worker.error("Static", {"a": 1, "self": 2})
        self.assertEqual(error.kind, "unknown_input")
        error = self.worker.error("Echo", {}, function="no_such")
        self.assertIn("no function 'no_such'", str(error))

    def test_functions_of_every_shape_take_their_inputs(self) -> None:
        self.assertEqual(self.worker.call("Static", {"a": 1, "b": 3}), (1, 3))
        self.assertEqual(self.worker.call("Odd", {"value": 1, "anything": 2}), (1, ["anything"]))
        self.assertEqual(self.worker.call("Echo"), (None,))

    def test_a_missing_input_is_the_functions_own_error(self) -> None:
        error = self.worker.error("Says")
        self.assertEqual(
            (error.kind, error.data["exception"]["qualname"]), ("node_raised", "TypeError")
        )
        self.assertIn("'text'", str(error))

    def test_instances_go_by_token(self) -> None:
        self.assertEqual(self.worker.call("KeepsState", instance="a"), (1,))
        self.assertEqual(self.worker.call("KeepsState", instance="a"), (2,))
        self.assertEqual(self.worker.call("KeepsState", instance="b"), (1,))
        self.assertEqual(self.worker.call("KeepsState"), (1,))
        self.assertEqual(self.worker.call("KeepsState"), (2,))
        self.worker.channel.notify("instance.drop", {"instance": "a"})
        self.assertEqual(self.worker.call("KeepsState", instance="a"), (1,))
        self.assertEqual(self.worker.call("KeepsState", instance="b"), (2,))

    def test_exceptions_are_described_whole(self) -> None:
        error = self.worker.error("Raises", {"what": "pack"})
        exception = error.data["exception"]
        self.assertEqual(
            (exception["module"], exception["qualname"]),
            ("comfy_supervisor_pack_basic", "PackError"),
        )
        self.assertEqual(
            [base["qualname"] for base in exception["bases"]],
            ["ValueError", "Exception", "BaseException"],
        )
        self.assertEqual(
            (exception["message"], exception["error_code"]), ("('of the pack', 3)", "77")
        )
        self.assertEqual([frame["function"] for frame in exception["frames"]], ["run"])
        self.assertIn("raise PackError", exception["frames"][0]["text"])
        self.assertNotIn("comfy_supervisor_worker", exception["traceback"])

    def test_an_exceptions_cause_is_in_the_traceback(self) -> None:
        text = self.worker.error("Raises", {"what": "cause"}).data["exception"]["traceback"]
        self.assertIn("KeyError: 'missing'", text)
        self.assertIn("direct cause", text)

    def test_nothing_a_node_raises_ends_the_worker(self) -> None:
        for what, name in (
            ("recursion", "RecursionError"),
            ("exit", "SystemExit"),
            ("keyboard", "KeyboardInterrupt"),
            ("base", "BaseException"),
            ("object", "RuntimeError"),
            ("text", "Raises.run.<locals>.Broken"),
        ):
            with self.subTest(what=what):
                error = self.worker.error("Raises", {"what": what})
                self.assertEqual(
                    (error.kind, error.data["exception"]["qualname"]), ("node_raised", name)
                )
        self.assertEqual(
            self.worker.error("AsyncExits").data["exception"]["qualname"], "SystemExit"
        )
        self.assertEqual(self.worker.call("Echo", {"value": 1}), (1,))

    def test_endless_texts_and_stacks_are_cut(self) -> None:
        exception = self.worker.error("Raises", {"what": "recursion"}).data["exception"]
        self.assertLessEqual(len(exception["frames"]), 100)
        error = self.worker.error("Raises", {"what": "long"})
        self.assertTrue(str(error).startswith("ValueError: ééé"))

    def test_cyclic_results_are_refused_with_the_path(self) -> None:
        error = self.worker.error("Cyclic")
        self.assertEqual(error.kind, "value")
        self.assertIn("at result[0]['a'][1]: this dict contains itself", str(error))

    def test_a_result_beyond_the_quota_is_an_error_and_the_next_call_works(self) -> None:
        self.worker.supervisor.quota = self.worker.supervisor.reserved + (1 << 20)
        try:
            error = self.worker.error("Big", {"count": 90 << 20})
            self.assertEqual(error.kind, "quota")
        finally:
            self.worker.supervisor.quota = 8 << 30
        self.assertEqual(len(self.worker.call("Big", {"count": 2 << 20})[0]), 2 << 20)

    def test_a_call_for_another_generation_is_refused(self) -> None:
        with self.assertRaises(RemoteError) as caught:
            self.worker.channel.request("call", {"node": "Echo"}, generation=9, timeout=LIMIT)
        self.assertEqual(caught.exception.kind, "wrong_generation")

    def test_json_in_and_out(self) -> None:
        message, body = self.worker.channel.request(
            "call",
            {"node": "Echo", "encoding": "json"},
            b'{"value": [1, {"$float": "nan"}]}',
            timeout=LIMIT,
        )
        self.assertEqual((message["result"], body), ({}, b'[[1,{"$float":"nan"}]]'))

    def test_bodies_that_are_not_values_are_the_calls_error(self) -> None:
        for body in (b"junk", b"\x02\x00\x00\x00[]", b'\x07\x00\x00\x00{"v":1}'):
            with self.assertRaises(RemoteError) as caught:
                self.worker.channel.request("call", {"node": "Echo"}, body, timeout=LIMIT)
            self.assertEqual(caught.exception.kind, "value")


class Objects(WorkerCase):
    def test_what_does_not_pickle_becomes_a_handle_and_comes_back_as_itself(self) -> None:
        handle = self.worker.call("HoldsLock")[0]
        self.assertIs(type(handle), Handle)
        self.assertEqual(
            (handle.environment, handle.generation, handle.worker), ("basic", 1, self.worker.id)
        )
        self.assertEqual(self.worker.call("IsHeld", {"value": handle}), (True,))
        self.assertIs(type(self.worker.call("Echo", {"value": handle})[0]), Handle)
        dropped = {"handles": [{"id": handle.id, "count": 2}]}
        self.worker.channel.notify("handle.drop", {"generation": 7, **dropped})  # has other objects
        self.assertEqual(self.worker.call("IsHeld", {"value": handle}), (True,))
        self.worker.channel.notify("handle.drop", {"generation": 1, **dropped})
        error = self.worker.error("IsHeld", {"value": handle})
        self.assertIn("no longer kept", str(error))

    def test_that_objects_have_gone_is_said_when_they_have(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        may_go = os.path.join(folder.name, "may go")
        self.addCleanup(lambda: open(may_go, "a").close())
        channel = self.worker.channel
        numbers = [self.worker.call("HoldsSlow", {"folder": folder.name})[0].id]
        numbers.append(self.worker.call("HoldsLock")[0].id)
        channel.notify("handle.drop", {"handles": numbers})
        waiter = Waiter()
        request = channel.begin(waiter)
        channel.notify("handle.settle", {}, id=request)
        begun = os.path.join(folder.name, "begun")
        end = time.monotonic() + LIMIT
        while not os.path.exists(begun) and time.monotonic() < end:
            channel.request("ping", {}, timeout=LIMIT)
        channel.request("ping", {}, timeout=LIMIT)  # is answered after what was at once
        self.assertTrue(os.path.exists(begun))
        self.assertIsNone(waiter.reply)
        open(may_go, "x").close()
        self.assertTrue(channel.wait(waiter, LIMIT))
        self.assertEqual(channel.result(waiter)[0]["result"], {"settled": True})

    def test_handles_of_others_are_clear_errors(self) -> None:
        dead = Handle(1, "some.Model", "basic", 0, "e" * 32)
        self.assertIn(
            "generation 0 of environment 'basic', which is gone",
            str(self.worker.error("Echo", {"value": dead})),
        )
        foreign = Handle(1, "some.Model", "other", 1, "e" * 32)
        self.assertIn(
            "lives in the worker of environment 'other'",
            str(self.worker.error("Echo", {"value": foreign})),
        )

    def test_what_pickles_is_opened_in_the_same_environment_only(self) -> None:
        opaque = self.worker.call("MakesPlain", {"word": "hm"})[0]
        self.assertIs(type(opaque), Opaque)
        self.assertEqual(
            (opaque.type_name, opaque.environment), ("comfy_supervisor_pack_basic.Plain", "basic/1")
        )
        role = self.worker.role
        role.encode_other = lambda value, encoder: _tree(value, encoder)
        self.addCleanup(lambda: role.__dict__.pop("encode_other"))
        self.assertEqual(self.worker.call("ReadsPlain", {"value": opaque}), (True, "hm"))
        opaque.environment = "other/1"
        self.assertEqual(self.worker.call("ReadsPlain", {"value": opaque})[0], False)
        opaque.environment, opaque.data = "basic/1", b"\x80\x05junk"
        self.assertIn(
            "can not be opened here", str(self.worker.error("ReadsPlain", {"value": opaque}))
        )


def _tree(value: Any, encoder: Any) -> Any:
    from comfy_supervisor_worker.wire import pickles

    return pickles.tree(value, None, encoder)


class Lanes(WorkerCase):
    def test_async_calls_run_beside_each_other(self) -> None:
        first = self.worker.begin("AsyncMeet", {"word": "a"})[1]
        second = self.worker.begin("AsyncMeet", {"word": "b"})[1]
        self.assertEqual((self.worker.finish(first), self.worker.finish(second)), (("b",), ("a",)))

    def test_a_sync_call_runs_while_async_ones_wait(self) -> None:
        request, waiter = self.worker.begin("AsyncForever")
        self.assertEqual(self.worker.call("Echo", {"value": 5}), (5,))
        self.worker.channel.notify("cancel", {}, call=request)
        with self.assertRaises(RemoteError) as caught:
            self.worker.finish(waiter)
        self.assertEqual(caught.exception.kind, "cancelled")

    def test_cancelling_an_async_call_cancels_its_task(self) -> None:
        before = self.worker.call("AsyncForeverCount")[0]
        for _ in range(5):
            request, waiter = self.worker.begin("AsyncForever")
            self.assertEqual(
                self.worker.call("AsyncEcho", {"value": 1}), (1,)
            )  # the first one has begun
            self.worker.channel.notify("cancel", {}, call=request)
            with self.assertRaises(RemoteError) as caught:
                self.worker.finish(waiter)
            self.assertEqual(caught.exception.kind, "cancelled")
        self.assertEqual(self.worker.call("AsyncForeverCount")[0], before + 5)

    def test_a_sync_node_finds_the_loop_running_and_its_tasks_go_on(self) -> None:
        self.worker.call("LeavesTask")
        for _ in range(100):  # the call may come first, as it may inside ComfyUI
            if self.worker.call("LeftTaskDone") == (1,):
                break
        else:
            self.fail("the task that a call left behind did not go on")

    def test_the_reader_answers_while_a_node_computes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "go on")
            _, waiter = self.worker.begin("Computes", {"path": path})
            _, queued = self.worker.begin("Echo", {"value": 1})
            request, cancelled = self.worker.begin("Echo", {"value": 2})
            self.worker.channel.notify("cancel", {}, call=request)
            for _ in range(50):
                state = self.worker.channel.request("ping", {}, timeout=LIMIT)[0]["result"]
                if state["current"] and state["depth"] == 3:
                    break
            self.assertEqual(
                (state["current"]["node"], state["lane_busy"], state["depth"]),
                ("Computes", True, 3),
            )
            text = self.worker.channel.request("stacks", {}, timeout=LIMIT)[0]["result"]["text"]
            self.assertIn("in run", text)
            census = self.worker.channel.request("census", {}, timeout=LIMIT)[0]["result"]
            self.assertIn("memory_files", census)
            self.assertIsNone(waiter.reply)
            open(path, "w").close()
            self.assertEqual(self.worker.finish(waiter), ("seen",))
            self.assertEqual(self.worker.finish(queued), (1,))
            with self.assertRaises(RemoteError) as caught:
                self.worker.finish(cancelled)
            self.assertEqual(caught.exception.kind, "cancelled")

    def test_an_answered_async_call_is_not_counted_while_the_next_one_computes(self) -> None:
        for number in range(50):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "go on")
                self.assertEqual(self.worker.call("AsyncEcho", {"value": number}), (number,))
                _, waiter = self.worker.begin("Computes", {"path": path})
                while True:
                    state = self.worker.channel.request("ping", {}, timeout=LIMIT)[0]["result"]
                    if state["current"]:
                        break
                open(path, "w").close()
                self.assertEqual(self.worker.finish(waiter), ("seen",))
                self.assertEqual((state["current"]["node"], state["depth"]), ("Computes", 1))

    def test_a_late_cancel_hits_nobody(self) -> None:
        request, waiter = self.worker.begin("Echo", {"value": 1})
        self.worker.finish(waiter)
        self.worker.channel.notify("cancel", {}, call=request)
        self.assertEqual(self.worker.call("Echo", {"value": 2}), (2,))
        self.assertEqual(self.worker.call("AsyncEcho", {"value": 3}), (3,))


class Cancels(WorkerCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "go on")

    def flag_after_a_cancel_of(self, number: int | None) -> Any:
        """What a node sees of ComfyUI's flag when a call, by default its own, is cancelled while it
        computes.
        """
        own, waiter = self.worker.begin("Interruptible", {"path": self.path})
        while not self.ping()["current"]:
            pass
        self.worker.channel.notify("cancel", {}, call=own if number is None else number)
        self.ping()  # answered after the cancel was read
        open(self.path, "w").close()
        return self.worker.finish(waiter)[0]

    def ping(self) -> Any:
        return self.worker.channel.request("ping", {}, timeout=LIMIT)[0]["result"]

    def test_a_cancel_of_a_call_that_has_ended_does_not_reach_the_one_that_runs(self) -> None:
        open(self.path, "w").close()
        ended, waiter = self.worker.begin("Interruptible", {"path": self.path})
        self.assertEqual(self.worker.finish(waiter), (False,))
        os.unlink(self.path)
        self.assertIs(self.flag_after_a_cancel_of(ended), False)

    def test_a_cancel_that_a_node_did_not_look_at_is_over_with_its_call(self) -> None:
        self.assertIs(self.flag_after_a_cancel_of(None), True)
        self.assertEqual(self.worker.call("Interruptible", {"path": self.path}), (False,))


class Output(WorkerCase):
    def test_half_lines_arrive(self) -> None:
        self.worker.wait_output(b"importing basic")
        self.worker.call("Says", {"text": "half a line to stdout"})
        self.worker.wait_output(b"half a line to stdout")
        self.worker.call("Says", {"text": "half to stderr", "stream": "stderr"})
        self.worker.wait_output(b"half to stderr")

    def test_text_that_utf8_can_not_hold_is_written_all_the_same(self) -> None:
        self.worker.call("Says", {"text": "<\ud800é>\n"})
        self.worker.wait_output("<\\ud800é>\n".encode())


class Hostile(unittest.TestCase):
    def setUp(self) -> None:
        self.worker = WorkerProcess()
        self.addCleanup(self.worker.close)
        self.worker.load()

    def test_a_forked_child_holds_nothing_of_the_connection(self) -> None:
        ours, childs = self.worker.call("Forks")
        self.assertEqual(ours - childs, 1, "the event loops' sockets are in both")
        self.assertEqual(self.worker.call("Echo", {"value": 1}), (1,))

    def test_a_pack_that_closes_all_descriptors_below_a_thousand_does_not_reach_ours(self) -> None:
        self.assertEqual(self.worker.call("ClosesDescriptors"), ("alive",))
        self.assertEqual(self.worker.call("Echo", {"value": b"x" * 2_000_000}), (b"x" * 2_000_000,))
        self.assertEqual(self.worker.call("AsyncEcho", {"value": 1}), (1,))

    def test_os_exit_ends_the_process_and_the_connection(self) -> None:
        self.worker.may_fail = True
        _, waiter = self.worker.begin("Exits", {"code": 7})
        self.assertEqual(self.worker.process.wait(LIMIT), 7)
        with self.assertRaises(ConnectionError):
            self.worker.finish(waiter)

    def test_ctrl_c_is_not_the_workers_business(self) -> None:
        self.worker.process.send_signal(signal.SIGINT)
        self.assertEqual(self.worker.call("Echo", {"value": 1}), (1,))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "go on")
            _, waiter = self.worker.begin("Computes", {"path": path})
            self.worker.process.send_signal(signal.SIGINT)
            open(path, "w").close()
            self.assertEqual(self.worker.finish(waiter), ("seen",))

    def test_shutdown_answers_and_ends_with_zero(self) -> None:
        self.worker.channel.request("shutdown", {}, timeout=LIMIT)
        self.assertEqual(self.worker.process.wait(LIMIT), 0)

    def test_the_end_of_the_connection_ends_an_idle_worker(self) -> None:
        self.worker.channel.close()
        self.assertEqual(self.worker.process.wait(LIMIT), 0)

    def test_the_end_of_the_connection_ends_a_busy_worker_after_its_calls(self) -> None:
        self.worker.begin("AsyncForever")
        self.assertEqual(self.worker.call("Echo", {"value": 1}), (1,))
        self.worker.channel.close()
        self.assertEqual(self.worker.process.wait(LIMIT), 0)

    def test_many_calls_from_many_threads(self) -> None:
        wrong: list[Any] = []

        def call(name: int) -> None:
            for number in range(100):
                node = "AsyncEcho" if (name + number) % 3 == 0 else "Echo"
                value = [name, number, b"x" * ((number % 5) * 40_000)]
                if self.worker.call(node, {"value": value}) != (value,):
                    wrong.append(value)

        at_once(6, call)
        self.assertEqual(wrong, [])


class Starting(unittest.TestCase):
    def test_a_worker_without_a_pack_is_small(self) -> None:
        worker = WorkerProcess()
        self.addCleanup(worker.close)
        worker.load()
        with open(f"/proc/{worker.process.pid}/status") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        self.assertLess(resident, 24 << 10, "KiB; the test pack imports asyncio")

    def test_it_explains_itself_to_whoever_starts_it_by_hand(self) -> None:
        import subprocess
        import sys

        from harness import PROGRAM

        done = subprocess.run(
            [sys.executable, "-I", PROGRAM], capture_output=True, text=True, timeout=LIMIT
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("started by comfy-supervisor", done.stderr)


if __name__ == "__main__":
    unittest.main()
