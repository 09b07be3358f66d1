"""The channel where nothing can be polled, and the event that a poll waits for elsewhere."""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

from comfy_supervisor_worker.wire.channel import Channel
from comfy_supervisor_worker.wire.errors import ChannelGone
from comfy_supervisor_worker.wire.frames import pack
from comfy_supervisor_worker.wire.pipes import DescriptorTransport, pipe_name
from comfy_supervisor_worker.wire.wake import Wake
from harness import LIMIT, Recorder, at_once


class Wakes(unittest.TestCase):
    def test_a_close_during_set_frees_no_number_that_set_still_writes_to(self) -> None:
        another = tempfile.TemporaryFile()
        self.addCleanup(another.close)
        wake = Wake()
        number = wake.fileno()
        write = os.write

        def closed_meanwhile(descriptor: int, data: bytes) -> int:
            wake.close()
            copy = os.dup(another.fileno())  # it gets the number if that is free
            try:
                return write(descriptor, data)
            finally:
                os.close(copy)

        with mock.patch.object(os, "write", closed_meanwhile):
            wake.set()
        self.assertEqual(os.fstat(another.fileno()).st_size, 0)
        wake.set()
        wake.clear()
        self.assertEqual(wake.fileno(), -1)
        with self.assertRaises(OSError):
            os.fstat(number)


class Pipes(unittest.TestCase):
    """A channel over what can not be polled, as on Windows."""

    def setUp(self) -> None:
        (near_read, far_write), (far_read, near_write) = os.pipe(), os.pipe()
        self.recorder, self.far_recorder = Recorder(), Recorder()
        self.near = Channel(DescriptorTransport(near_read, near_write), self.recorder, "near")
        self.far = self.far_recorder.channel = Channel(
            DescriptorTransport(far_read, far_write), self.far_recorder, "far"
        )
        self.far_recorder.on_request = lambda message, body: self.far.reply(
            message["id"], message["params"], body
        )
        self.near.start()
        self.far.start()

    def test_requests_are_answered_from_many_threads(self) -> None:
        wrong: list[object] = []

        def ask(name: int) -> None:
            for number in range(100):
                message, body = self.near.request(
                    "echo", [name, number], bytes(number * 5000), timeout=LIMIT
                )
                if message["result"] != [name, number] or len(body) != number * 5000:
                    wrong.append(message)

        at_once(4, ask)
        self.assertEqual(wrong, [])
        self.near.fail(ChannelGone("the end"))
        self.assertTrue(self.far_recorder.gone.wait(LIMIT))
        self.far.close()
        self.near.close()

    def test_a_chore_is_not_wasted_on_a_connection_that_has_ended(self) -> None:
        told = [pack(b'{"jsonrpc":"2.0","method":"chore"}')]
        self.near.close()
        self.near.set_chore(lambda: [told.pop()])
        self.near.due()
        with self.assertRaises(ChannelGone):
            self.near.notify("late", {})
        self.assertEqual(len(told), 1)

    def test_chores_are_done_without_traffic(self) -> None:
        frames = [pack(b'{"jsonrpc":"2.0","method":"chore"}')]
        self.near.set_chore(lambda: [frames.pop()] if frames else [])
        self.near.due()
        self.far_recorder.wait(lambda: self.far_recorder.notifications)
        self.near.fail(ChannelGone("the end"))
        self.far.close()
        self.near.close()

    def test_the_name_of_a_pipe_follows_from_the_sockets_path(self) -> None:
        self.near.fail(ChannelGone("the end"))
        self.far.close()
        self.near.close()
        self.assertEqual(pipe_name(r"\\.\pipe\own"), r"\\.\pipe\own")
        self.assertEqual(pipe_name(r"C:\Run\supervisor.sock"), pipe_name(r"c:\run\SUPERVISOR.sock"))
        self.assertRegex(pipe_name("x"), r"^\\\\\.\\pipe\\comfy-supervisor-[0-9a-f]{16}$")


if __name__ == "__main__":
    unittest.main()
