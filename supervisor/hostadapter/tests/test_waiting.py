"""What happens during the wait for a call: progress, cancels, requests, coroutines."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
import unittest
from typing import Any

import comfy_supervisor
from support import LIMIT, BrokerCase


class Waiting(BrokerCase):
    def setUp(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.path = os.path.join(self.scratch.name, "signal")

    def when_there(self, then: Any) -> threading.Thread:
        """Calls a function from another thread once the file of the test exists."""

        def watch() -> None:
            end = time.monotonic() + LIMIT
            while not os.path.exists(self.path) and time.monotonic() < end:
                time.sleep(0.002)
            then()

        thread = threading.Thread(target=watch)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_progress_is_reported_on_the_waiting_thread_in_order(self) -> None:
        seen: list[Any] = []

        def progress(report: comfy_supervisor.Progress) -> None:
            seen.append((threading.current_thread(), report.value, report.total, report.node_id))

        self.assertEqual(
            self.session.options(progress=progress).call("mini", "Progresses", steps=4), "done"
        )
        self.assertEqual(
            [entry[1:] for entry in seen], [(1, 4, "7"), (2, 4, "7"), (3, 4, "7"), (4, 4, "7")]
        )
        self.assertEqual({entry[0] for entry in seen}, {threading.current_thread()})

    def test_an_error_of_the_progress_callback_ends_the_wait_and_the_call(self) -> None:
        def progress(report: comfy_supervisor.Progress) -> None:
            raise LookupError("of the callback")

        with self.assertRaisesRegex(LookupError, "of the callback"):
            self.session.options(progress=progress).call("mini", "Progresses", steps=3)
        self.assertEqual(self.session.call("mini", "FlagNow"), False)

    def test_cancelling_from_another_thread_reaches_a_node_that_polls(self) -> None:
        for cancellation in (comfy_supervisor.Cancellation(), threading.Event()):
            with self.subTest(kind=type(cancellation).__name__):
                self.when_there(
                    cancellation.cancel if hasattr(cancellation, "cancel") else cancellation.set
                )
                with self.assertRaises(comfy_supervisor.CallCancelled) as caught:
                    self.session.options(cancel=cancellation).call("mini", "Polls", path=self.path)
                self.assertEqual(
                    type(caught.exception.__cause__).__qualname__, "InterruptProcessingException"
                )
                self.assertEqual(
                    self.session.call("mini", "FlagNow"), False, "the next call is not hit"
                )
                os.unlink(self.path)

    def test_a_started_call_is_cancelled_through_itself(self) -> None:
        call = self.session.start("mini", "Polls", path=self.path)
        self.when_there(call.cancel)
        with self.assertRaises(comfy_supervisor.CallCancelled):
            call.result()
        call.cancel()

    def test_a_cancellation_that_was_set_before_cancels_at_once(self) -> None:
        cancellation = comfy_supervisor.Cancellation()
        cancellation.cancel()
        for node in ("WaitsAsync", "Polls"):
            with self.assertRaises(comfy_supervisor.CallCancelled):
                self.session.options(cancel=cancellation).call("mini", node, path=self.path)

    def test_a_cancel_hits_its_own_call_alone(self) -> None:
        first = self.session.start("plain", "WaitsAsync", path=self.path)
        second = self.session.start("plain", "WaitsAsync", path=self.path)
        first.cancel()
        with self.assertRaises(comfy_supervisor.CallCancelled):
            first.result()
        open(self.path, "w").close()
        self.assertEqual(second.result(), "seen")

    def test_requests_for_the_caller_run_on_the_waiting_thread(self) -> None:
        threads: list[Any] = []

        def serve(request: comfy_supervisor.CallerRequest) -> dict[str, Any]:
            threads.append(threading.current_thread())
            return {"double": request.params["number"] * 2}

        self.session.on_request("double", serve)
        self.addCleanup(self.session.on_request, "double", None)
        answers = self.session.call("plain", "AsksHost", method="double", times=5)
        self.assertEqual(answers, [{"double": 2 * number} for number in range(5)])
        self.assertEqual(set(threads), {threading.current_thread()})

    def test_a_request_may_make_calls_of_its_own(self) -> None:
        self.session.on_request(
            "nested", lambda request: {"value": self.session.call("other", "Echo", x=1)["x"]}
        )
        self.addCleanup(self.session.on_request, "nested", None)
        self.assertEqual(self.session.call("plain", "AsksHost", method="nested"), [{"value": 1}])

    def test_requests_that_fail_or_that_nobody_serves_are_errors_in_the_node(self) -> None:
        def fail(request: Any) -> None:
            raise ZeroDivisionError("in the host")

        async def coroutine(request: Any) -> None:
            return None

        self.session.on_request("fails", fail)
        self.session.on_request("coroutine", coroutine)
        self.session.on_request("unjson", lambda request: {"x": object()})
        for method, text in (
            ("fails", "ZeroDivisionError: in the host"),
            ("nobody", "does not serve 'nobody'"),
            ("coroutine", "use call_async"),
            ("unjson", "not JSON serializable"),
        ):
            with self.subTest(method=method), self.assertRaisesRegex(Exception, text):
                self.session.call("plain", "AsksHost", method=method)
            self.session.on_request(method, None)

    def test_coroutines_wait_side_by_side(self) -> None:
        async def main() -> list[Any]:
            calls = [
                self.session.call_async("plain", "Meets", count=10, value=i) for i in range(10)
            ]
            return await asyncio.wait_for(asyncio.gather(*calls), LIMIT)

        self.assertEqual(asyncio.run(main()), list(range(10)))
        self.assertEqual(asyncio.run(main()), list(range(10)), "nothing is bound to the first loop")

    def test_cancelling_the_coroutine_cancels_the_node(self) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(self.session.call_async("mini", "Polls", path=self.path))
            while not os.path.exists(self.path):
                await asyncio.sleep(0.002)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertEqual(self.session.call("mini", "FlagNow"), False)

    def test_a_coroutine_serves_requests_and_hears_progress(self) -> None:
        seen: list[Any] = []

        async def serve(request: comfy_supervisor.CallerRequest) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"double": request.params["number"] * 2}

        async def progress(report: comfy_supervisor.Progress) -> None:
            seen.append(report.value)

        async def main() -> Any:
            answers = await self.session.call_async("plain", "AsksHost", method="double", times=3)
            await self.session.options(progress=progress).call_async("mini", "Progresses", steps=3)
            with self.assertRaises(FileNotFoundError):
                await self.session.call_async("plain", "Raises", what="file")
            return answers

        self.session.on_request("double", serve)
        self.addCleanup(self.session.on_request, "double", None)
        self.assertEqual(asyncio.run(main()), [{"double": 0}, {"double": 2}, {"double": 4}])
        self.assertEqual(seen, [1, 2, 3])

    def test_waiting_threads_and_coroutines_share_the_connection(self) -> None:
        wrong: list[Any] = []

        def work(name: int) -> None:
            for number in range(80):
                if self.session.call("plain", "Echo", v=(name, number)) != {"v": (name, number)}:
                    wrong.append((name, number))

        async def main() -> None:
            for number in range(40):
                values = await asyncio.gather(
                    *(
                        self.session.call_async("other", "Sleeps", seconds=0, value=i)
                        for i in range(4)
                    )
                )
                if values != [0, 1, 2, 3]:
                    wrong.append(values)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        threads.append(threading.Thread(target=lambda: asyncio.run(main())))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            self.assertFalse(thread.is_alive(), "somebody hangs")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
