"""Calls through real workers: values, options, errors, objects."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
import types
import unittest
from typing import Any

import comfy_supervisor
from comfy_supervisor import Handle, Opaque
from support import LIMIT, BrokerCase


class Values(BrokerCase):
    def test_what_goes_in_comes_out(self) -> None:
        given = {
            "a": [1, (2, None), {"k": b"v", 5: -0.0}],
            "b": "\ud800",
            "c": 10**40,
            "d": {1, 2},
            "e": float("inf"),
        }
        self.assertEqual(self.call("Echo", **given), given)

    def test_inputs_may_have_any_name(self) -> None:
        given = {
            "self": 1,
            "environment": 2,
            "node": 3,
            "inputs": 4,
            "options": 5,
            "progress": 6,
            "cancel": 7,
            "name with space": 8,
        }
        self.assertEqual(self.session.call("plain", "Echo", **given), given)

    def test_long_values_cross_in_memory_files_and_nothing_stays(self) -> None:
        for size in (100, 70_000, 1_000_000, 5_000_000):
            value = os.urandom(size)
            self.assertEqual(
                self.call("Echo", value=value, again=[value]), {"value": value, "again": [value]}
            )
        self.settle()

    def settle(self) -> None:
        """Waits until no memory file is on its way or mapped."""
        files = self.broker.files
        for _ in range(int(LIMIT / 0.02)):
            self.call("Echo")
            if not files.open:
                return
            threading.Event().wait(0.02)
        self.fail(f"still open: {files.open}")

    def test_very_many_values_cross(self) -> None:
        given = [{"i": i} for i in range(30_000)]
        self.assertEqual(self.call("Echo", given=given)["given"], given)

    def test_values_that_can_not_cross_name_the_place(self) -> None:
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        with self.assertRaisesRegex(
            comfy_supervisor.ValueCannotCross, r"at inputs\['x'\]\[0\]: .*contains itself"
        ):
            self.call("Echo", x=cyclic)
        with self.assertRaisesRegex(
            comfy_supervisor.ValueCannotCross, r"at inputs\['x'\]\[1\]: a .*lock.*can not be sent"
        ):
            self.call("Echo", x=[1, threading.Lock()])

    def test_the_quota_is_an_error_of_its_own(self) -> None:
        self.broker.files.quota = sum(self.broker.files.reserved.values()) + (1 << 20)
        try:
            with self.assertRaises(comfy_supervisor.QuotaExceeded):
                self.call("Echo", x=b"x" * (200 << 20))
        finally:
            self.broker.files.quota = 4 << 30
        self.assertEqual(self.call("Echo", x=1), {"x": 1})


class Options(BrokerCase):
    def test_instances_functions_and_contexts(self) -> None:
        one, two = self.session.options(instance="one"), self.session.options(instance="two")
        self.assertEqual(
            [one.call("plain", "Counts"), one.call("plain", "Counts"), two.call("plain", "Counts")],
            [1, 2, 1],
        )
        self.assertEqual(
            self.session.options(instance="one", function="other").call("plain", "Counts", by=10),
            20,
        )
        self.session.drop_instance("plain", "one")
        self.assertEqual(one.call("plain", "Counts"), 1)
        self.assertEqual(two.call("plain", "Counts"), 2)

    def test_the_call_context_reaches_comfyui(self) -> None:
        context = {"prompt_id": "p", "node_id": "7", "list_index": 2, "unique_id": "7"}
        found = self.session.options(context=context).call("mini", "Context")
        self.assertEqual(tuple(found), ("p", "7", 2))
        self.assertIsNone(self.session.call("mini", "Context"))

    def test_a_call_that_is_sent_and_waited_for_later(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "go")
            call = self.session.start("plain", "Waits", path=path)
            self.assertFalse(call.done())
            open(path, "w").close()
            self.assertEqual(call.result(), "seen")
            self.assertTrue(call.done())
            self.assertEqual(call.result(), "seen")

    def test_a_timeout_ends_the_call(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "go")
            with self.assertRaises(comfy_supervisor.CallSilent):
                self.session.options(timeout=0.05).call("plain", "WaitsAsync", path=path)
        self.assertEqual(self.call("Echo", x=1), {"x": 1})

    def test_stop_and_environments(self) -> None:
        self.call("Echo")
        pid = self.broker.workers["plain"].pid
        self.assertEqual(
            [worker["environment"] for worker in self.session.stop("plain")], ["plain"]
        )
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertEqual(self.session.stop("plain"), [])
        self.assertEqual(
            sorted(each["name"] for each in self.session.environments()), ["mini", "other", "plain"]
        )
        self.assertEqual(self.call("Counts"), 1)

    def test_many_threads_share_a_session(self) -> None:
        wrong: list[Any] = []

        def work(name: int) -> None:
            for number in range(60):
                value = (name, number, b"x" * (number * 3000))
                if self.session.call("plain" if number % 2 else "other", "Echo", v=value) != {
                    "v": value
                }:
                    wrong.append((name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            self.assertFalse(thread.is_alive(), "a call hangs")
        self.assertEqual(wrong, [])


class Errors(BrokerCase):
    def raised(self, what: str) -> BaseException:
        try:
            self.call("Raises", what=what)
        except BaseException as error:
            return error
        raise AssertionError("nothing was raised")

    def test_builtin_classes_are_themselves_with_their_attributes(self) -> None:
        error = self.raised("file")
        self.assertIs(type(error), FileNotFoundError)
        self.assertEqual((error.errno, error.filename), (2, "/no/such/file"))
        self.assertEqual(str(self.raised("key")), "'absent'")
        error = self.raised("unicode")
        self.assertIs(type(error), UnicodeDecodeError)
        self.assertEqual((error.object, error.start), (b"\xff", 0))
        self.assertEqual(self.raised("exit").code, 3)
        self.assertEqual((self.raised("group").errno, self.raised("group").filename), (28, "/full"))

    def test_a_class_that_is_not_loaded_here_is_derived_from_the_nearest_that_is(self) -> None:
        error = self.raised("own")
        self.assertIsInstance(error, ConnectionResetError)
        self.assertEqual(
            (type(error).__module__, type(error).__qualname__), ("pack_plain", "OwnError")
        )
        self.assertEqual((str(error), error.error_code), ("reset (7)", 77))
        self.assertIs(
            type(error), type(self.raised("own")), "one class, so that `except` can name it"
        )
        self.assertTrue(str(self.raised("weird")).startswith("<object object at"))

    def test_a_class_that_is_loaded_here_is_used_and_nothing_is_imported_for_it(self) -> None:
        module = types.ModuleType("pack_plain")

        class OwnError(ConnectionResetError):
            pass

        class Poisoned(types.ModuleType):
            def __getattr__(self, name: str) -> Any:
                raise AssertionError(f"{name} was asked for")

        OwnError.__module__ = "pack_plain"
        module.OwnError = OwnError
        sys.modules["pack_plain"] = module
        try:
            self.assertIs(type(self.raised("own")), OwnError)
            sys.modules["pack_plain"] = Poisoned("pack_plain")
            self.assertEqual(type(self.raised("own")).__qualname__, "OwnError")
            sys.modules["pack_plain"].__dict__["OwnError"] = "no class"
            self.assertIsInstance(self.raised("own"), ConnectionResetError)
        finally:
            del sys.modules["pack_plain"]
        before = set(sys.modules)
        self.raised("own")
        self.assertNotIn("pack_plain", sys.modules)
        self.assertEqual(
            {name for name in set(sys.modules) - before if not name.startswith("comfy_supervisor")},
            set(),
        )

    def test_the_workers_frames_are_in_the_traceback(self) -> None:
        text = "".join(
            traceback.format_exception(None, error := self.raised("key"), error.__traceback__)
        )
        nodes = os.path.join("packs", "client", "nodes", "__init__.py")
        self.assertIn("in raise_it", text)
        self.assertIn('{}["absent"]', text)
        self.assertIn(nodes, text)
        self.assertNotIn("comfy_supervisor_worker", text)
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        self.assertEqual(names[-2:], ["run", "raise_it"])
        self.assertLess(
            names.index("raised"), names.index("run"), "the host's frames lead to the worker's"
        )

    def test_what_led_to_the_exception_is_shown_as_well(self) -> None:
        error = self.raised("chained")
        text = "".join(traceback.format_exception(None, error, error.__traceback__))
        self.assertIn("KeyError: 'absent'", text)
        self.assertIn("direct cause", text)
        self.assertIn("the outer one", error.worker_traceback)

    def test_supervisor_errors_have_classes(self) -> None:
        with self.assertRaises(comfy_supervisor.UnknownEnvironment) as caught:
            self.session.call("no such", "Echo")
        self.assertIsInstance(caught.exception, LookupError)
        with self.assertRaises(comfy_supervisor.UnknownNode) as caught:
            self.call("Ekko")
        self.assertEqual(caught.exception.data["nearest"], "Echo")
        with self.assertRaises(comfy_supervisor.UnknownInput):
            self.call("Raises", wath="x")

    def test_a_dead_worker_is_an_error_and_the_next_call_has_a_new_one(self) -> None:
        with self.assertRaises(comfy_supervisor.WorkerDied) as caught:
            self.session.call("other", "Dies")
        self.assertEqual(caught.exception.signal, "SIGKILL")
        self.assertEqual(self.session.call("other", "Echo", x=1), {"x": 1})


class Objects(BrokerCase):
    def test_objects_of_a_worker_pass_through_unopened_and_come_back(self) -> None:
        thing, listed = self.call("Makes", what="thing", word="hm")
        self.assertIs(type(thing), Opaque)
        self.assertEqual(self.call("Reads", value=thing)[:2], ("Thing", "hm"))
        self.assertEqual(self.call("Reads", value=listed[0])[:2], ("Thing", "hm"))
        echoed = self.call("Echo", deep={"x": [thing]})["deep"]["x"][0]
        self.assertEqual(self.call("Reads", value=echoed)[:2], ("Thing", "hm"))
        with self.assertRaisesRegex(AttributeError, "can not be looked into here"):
            thing.word
        self.assertEqual(self.session.call("other", "Sees", value=thing)[1], "Opaque")
        again = self.session.call("other", "Echo", value=thing)["value"]
        self.assertEqual(
            self.call("Reads", value=again)[:2],
            ("Thing", "hm"),
            "through another environment and back",
        )

    def test_the_host_never_unpickles(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            value = self.call("Makes", what="mark", word=mark)
            repr(value), str(value), value == value, hash(value), type(value).__mro__
            self.session.call("other", "Echo", value=value)
            self.assertFalse(
                os.path.exists(mark), "somebody has opened a pickle that was not theirs"
            )
            self.session.call("plain", "Echo", value=value)
            self.assertTrue(
                os.path.exists(mark), "its own environment has opened it, so the mark works"
            )

    def test_nothing_that_a_host_imports_can_unpickle(self) -> None:
        package = os.path.dirname(comfy_supervisor.__file__)
        for folder, _, names in os.walk(package):
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name)) as file:
                        self.assertNotRegex(file.read(), r"Unpickler|pickle\.loads?\b", name)

    def test_subclasses_of_plain_types_look_plain_here_and_are_themselves_there(self) -> None:
        text = self.call("Makes", what="text", word="text")
        self.assertIsInstance(text, str)
        self.assertEqual(text, "text")
        self.assertEqual(self.call("Reads", value=text), ("Kind", None, True, False))
        point = self.call("Makes", what="point")
        self.assertEqual(point, (1, [2]))
        self.assertEqual(self.call("Reads", value=point)[0], "Point")

    def test_live_objects_are_handles_and_are_dropped_with_them(self) -> None:
        handle = self.call("Makes", what="live", word="from the worker")
        self.assertIs(type(handle), Handle)
        self.assertEqual(
            self.broker.workers["plain"].channel.request("census", {})[0]["result"]["handles"], 1
        )
        self.assertEqual(self.call("Next", value=handle), "from the worker")
        del handle
        for _ in range(int(LIMIT / 0.02)):
            self.call("Counts")
            if not self.broker.workers["plain"].channel.request("census", {})[0]["result"][
                "handles"
            ]:
                break
            threading.Event().wait(0.02)
        else:
            self.fail("the worker still keeps the object")

    def test_a_handle_of_a_dead_worker_says_so(self) -> None:
        handle = Handle(1, "some.Model", "plain", 0, "0" * 32)
        with self.assertRaisesRegex(
            comfy_supervisor.ValueCannotCross, "which is gone.*run its loader again"
        ):
            self.call("Echo", value=handle)
        with self.assertRaisesRegex(
            comfy_supervisor.ValueCannotCross, "lives in the worker of environment 'plain'"
        ):
            self.session.call("other", "Echo", value=handle)

    def test_what_only_the_host_can_make_is_pickled_and_opened_in_the_worker(self) -> None:
        import decimal

        module, name, text = self.call("Sees", value=decimal.Decimal("1.5"))
        self.assertEqual((module, name, text), ("decimal", "Decimal", "Decimal('1.5')"))

    def test_a_class_that_the_worker_lacks_is_a_clear_error_or_its_plain_form(self) -> None:
        with self.assertRaisesRegex(
            comfy_supervisor.ValueCannotCross,
            r"at inputs\['value'\]: a .*Local can not be opened here",
        ):
            self.call("Sees", value=Local())
        self.assertEqual(self.call("Sees", value=LocalText("t"))[1:], ("str", "'t'"))


class Local:
    """A class of the host alone."""


class LocalText(str):
    """Text of a class of the host alone."""


if __name__ == "__main__":
    unittest.main()
