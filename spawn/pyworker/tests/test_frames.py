"""Frames and the channel over them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import socket
import struct
import threading
import time
import unittest

from comfy_supervisor_worker.wire.channel import Channel, Waiter
from comfy_supervisor_worker.wire.errors import (
    ChannelGone,
    ProtocolError,
    RemoteError,
    error_object,
)
from comfy_supervisor_worker.wire.frames import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    PACKET_BYTES,
    PREFIX_BYTES,
    FrameBuffer,
    PacketBuffer,
    further_part,
    pack,
)
from comfy_supervisor_worker.wire.transport import SocketTransport
from harness import LIMIT, Recorder, at_once, packet_pair


class Frames(unittest.TestCase):
    def test_frames_survive_any_chunking(self) -> None:
        draw = random.Random(1)
        frames = [
            (
                b"h" * draw.randint(1, 3000),
                bytes(draw.randrange(256) for _ in range(draw.choice((0, 1, 7, 40_000)))),
            )
            for _ in range(60)
        ]
        stream = b"".join(pack(header, body) for header, body in frames)
        for _ in range(20):
            buffer, found, at = FrameBuffer(), [], 0
            while at < len(stream):
                size = draw.choice((1, 2, 7, 8, 9, 1000, 65536, 200_000))
                buffer.chunks.append(stream[at : at + size])
                at += size
                while (frame := buffer.peek()) is not None:
                    found.append(frame[:2])
                    self.assertEqual(buffer.peek(), frame, "it stays until it is dropped")
                    buffer.drop(frame[2])
            self.assertEqual(found, frames)
            self.assertEqual(buffer.chunks, [])

    def test_sizes_beyond_the_protocol_are_refused_both_ways(self) -> None:
        for header, body in (
            (0, 0),
            (MAX_HEADER_BYTES + 1, 0),
            (10, MAX_FRAME_BYTES),
            (1 << 31, 1 << 31),
        ):
            buffer = FrameBuffer()
            buffer.chunks.append(struct.pack(">II", header, body))
            with self.assertRaises(ProtocolError):
                buffer.peek()
            if header < 1 << 20:
                with self.assertRaises(ProtocolError):
                    pack(bytes(header), bytes(body))

    def test_the_largest_frame_passes(self) -> None:
        buffer = FrameBuffer()
        buffer.chunks.append(
            pack(b"h" * MAX_HEADER_BYTES, b"b" * (MAX_FRAME_BYTES - MAX_HEADER_BYTES))
        )
        header, body, _ = buffer.peek()
        self.assertEqual(len(header) + len(body), MAX_FRAME_BYTES)


def packets_of(header: bytes, body: bytes = b"") -> list[bytes]:
    """A frame as the packets it travels in."""
    data = pack(header, body)
    packets, sent = [data[:PACKET_BYTES]], PACKET_BYTES
    while sent < len(data):
        packets.append(further_part(data, sent))
        sent += len(packets[-1]) - PREFIX_BYTES
    return packets


class Packets(unittest.TestCase):
    def frames(self, packets: list[bytes]) -> list[tuple[bytes, int]]:
        """What comes of packets that arrive one after the other: each header, and its body's size."""
        buffer, frames = PacketBuffer(), []
        for packet in packets:
            self.assertLessEqual(len(packet), PACKET_BYTES)
            buffer.chunks.append(packet)
            while (frame := buffer.peek()) is not None:
                frames.append((frame[0], len(frame[1])))
                buffer.drop(frame[2])
        return frames

    def test_frames_survive_their_packets(self) -> None:
        sizes = [
            0,
            1,
            PACKET_BYTES - 12,
            PACKET_BYTES - 11,
            PACKET_BYTES,
            300_000,
            MAX_FRAME_BYTES - 4,
        ]
        packets = [packet for size in sizes for packet in packets_of(b"head", bytes(size))]
        self.assertEqual(self.frames(packets), [(b"head", size) for size in sizes])
        joined = pack(b"one") + pack(b"two", b"body")
        self.assertEqual(
            self.frames([joined, pack(b"three")]), [(b"one", 0), (b"two", 4), (b"three", 0)]
        )

    def test_only_the_torn_frame_is_lost(self) -> None:
        torn = packets_of(b"torn", bytes(400_000))
        for left in (torn[1:], torn[:1], torn[:3], torn[4:]):
            packets = left + packets_of(b"small") + packets_of(b"large", bytes(200_000))
            self.assertEqual(self.frames(packets), [(b"small", 0), (b"large", 200_000)])

    def test_random_packets_do_no_harm(self) -> None:
        draw = random.Random(31)
        good = packets_of(b"a", bytes(150_000)) + packets_of(b"b", b"body") + packets_of(b"c")
        for _ in range(300):
            packets = draw.choices(good, k=draw.randrange(1, 8))
            at = draw.randrange(len(packets))
            spoiled = bytearray(packets[at][:200])
            spoiled[draw.randrange(len(spoiled))] = draw.randrange(256)
            packets[at] = bytes(spoiled)
            try:
                self.frames(packets)
            except ProtocolError:
                pass


class Channels(unittest.TestCase):
    def pair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair()

    def setUp(self) -> None:
        ours, theirs = self.pair()
        self.far_socket = theirs
        self.recorder, self.far_recorder = Recorder(), Recorder()
        self.near = self.recorder.channel = Channel(SocketTransport(ours), self.recorder, "near")
        self.far = self.far_recorder.channel = Channel(
            SocketTransport(theirs), self.far_recorder, "far"
        )
        self.far_recorder.on_request = self.answer
        self.near.start()

    def tearDown(self) -> None:
        self.near.close()
        self.far.close()

    def answer(self, message: dict, body: bytes) -> None:
        if message["method"] == "refuse":
            self.far.reply_error(message["id"], error_object("quota", "none left", remedy="less"))
        elif message["method"] == "count":
            for number in range(message["params"]):
                self.far.notify("number", number)
            self.far.reply(message["id"], {}, body)
        elif message["method"] != "silence":
            self.far.reply(message["id"], message.get("params"), body[::-1])

    def test_many_threads_each_get_their_own_answers(self) -> None:
        self.far.start()
        wrong: list[object] = []

        def ask(name: int) -> None:
            for number in range(200):
                message, body = self.near.request(
                    "echo", [name, number], b"%d-%d" % (name, number), timeout=LIMIT
                )
                if message["result"] != [name, number] or body[::-1] != b"%d-%d" % (name, number):
                    wrong.append((name, number, message))

        at_once(8, ask)
        self.assertEqual(wrong, [])

    def test_reading_goes_on_although_the_next_reader_has_what_it_waits_for(self) -> None:
        """Without a deputy, which would read in the end."""
        for at_once in (True, False):
            with self.subTest(has_it_when_it_is_chosen=at_once):
                self.pass_on(at_once)

    def pass_on(self, at_once: bool) -> None:
        ours, theirs = self.pair()
        self.addCleanup(theirs.close)
        near = Channel(SocketTransport(ours), self.recorder, "without a deputy")
        self.addCleanup(near.close)
        woken, slow = threading.Event(), threading.Event()
        self.addCleanup(slow.set)

        class Slow(Waiter):
            """Does not run at once when it is woken."""

            def sleep(self, seconds: float = -1) -> None:
                super().sleep(seconds)
                woken.set()
                slow.wait(LIMIT)

        waiters = leader, follower, last = Waiter(), Slow(), Waiter()
        answers = [
            pack(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % near.begin(waiter), b"")
            for waiter in waiters
        ]
        threads: list[threading.Thread] = []
        for waiter in waiters:  # the first one reads, the others wait, in this order
            threads.append(threading.Thread(target=near.wait, args=(waiter,), daemon=True))
            threads[-1].start()
            while not near._reading.locked() or len(near._followers) < len(threads) - 1:
                time.sleep(0.001)
        if at_once:
            theirs.sendall(answers[1])
            self.assertTrue(woken.wait(LIMIT))
            theirs.sendall(answers[0])
        else:
            theirs.sendall(answers[0])
            self.assertTrue(woken.wait(LIMIT))
            near.post(follower, "from another thread")
            slow.set()
            threads[1].join(LIMIT)
        threads[0].join(LIMIT)
        theirs.sendall(answers[2])
        threads[2].join(LIMIT)
        self.assertFalse(threads[2].is_alive(), "nobody reads")

    def test_both_sides_ask_at_once(self) -> None:
        self.far.start()
        self.recorder.on_request = lambda message, body: self.near.reply(
            message["id"], message["params"]
        )
        done = threading.Event()

        def ask_back() -> None:
            for number in range(300):
                self.assertEqual(
                    self.far.request("echo", number, timeout=LIMIT)[0]["result"], number
                )
            done.set()

        thread = threading.Thread(target=ask_back)
        thread.start()
        for number in range(300):
            self.assertEqual(self.near.request("echo", number, timeout=LIMIT)[0]["result"], number)
        thread.join(LIMIT)
        self.assertTrue(done.is_set())

    def test_notifications_come_in_order_before_the_answer(self) -> None:
        self.far.start()
        self.near.request("count", 500, timeout=LIMIT)
        self.assertEqual(
            [message["params"] for message in self.recorder.notifications], list(range(500))
        )

    def test_an_error_answer_is_raised_with_its_kind(self) -> None:
        self.far.start()
        with self.assertRaises(RemoteError) as caught:
            self.near.request("refuse", {}, timeout=LIMIT)
        self.assertEqual(
            (caught.exception.kind, caught.exception.data["remedy"]), ("quota", "less")
        )

    def test_a_request_that_is_not_answered_times_out_and_a_late_answer_is_a_stray(self) -> None:
        self.far.start()
        with self.assertRaises(TimeoutError):
            self.near.request("silence", {}, timeout=0.05)
        request = len(self.far_recorder.requests) + 1
        self.far.reply(request, "late")
        self.recorder.wait(lambda: self.recorder.strays)
        self.assertEqual(self.recorder.strays[0]["result"], "late")

    def test_what_arrives_while_nobody_waits_is_handled(self) -> None:
        self.far.start()
        self.near.request("echo", 1, timeout=LIMIT)  # afterwards this thread reads no more
        self.far.notify("news", 1)
        self.recorder.wait(lambda: self.recorder.notifications)

    def test_the_end_of_the_other_side_ends_every_request(self) -> None:
        self.far.start()
        caught: list[BaseException] = []

        def ask() -> None:
            try:
                self.near.request("silence", {}, timeout=LIMIT)
            except BaseException as error:
                caught.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        pinged = 0
        while pinged < 3:  # the four requests are out once later ones are answered
            self.near.request("echo", 0, timeout=LIMIT)
            pinged += 1
        self.far.close()
        for thread in threads:
            thread.join(LIMIT)
        self.assertEqual([type(error) for error in caught], [ChannelGone] * 4)
        self.assertTrue(self.recorder.gone.wait(LIMIT))
        with self.assertRaises(ChannelGone):
            self.near.notify("more", {})

    def test_a_request_without_a_waiting_thread_is_answered(self) -> None:
        self.far.start()
        arrived = threading.Event()
        waiter = Waiter(arrived.set)
        request = self.near.begin(waiter)
        self.near.send(
            json.dumps({"jsonrpc": "2.0", "id": request, "method": "echo", "params": 5}).encode()
        )
        self.assertTrue(arrived.wait(LIMIT))
        self.assertEqual(Channel.result(waiter)[0]["result"], 5)

    def test_broken_bytes_end_the_connection_with_the_reason(self) -> None:
        cases = {
            b"\xff" * 64: "a frame of",
            pack(b"not json"): "not JSON",
            pack(b'{"jsonrpc":"1.0","id":1}'): "JSON-RPC 2.0",
            pack(b"[1]"): "JSON-RPC 2.0",
            pack(b'{"jsonrpc":"2.0"}'): "neither",
            pack(b'{"jsonrpc":"2.0","id":"x"}'): "id is not an integer",
            pack(b'{"jsonrpc":"2.0","id":1,"method":5}'): "method is not a string",
            pack(b"[" * 100_000): "not JSON",
            b"\x00\x00\x00\x05\x00\x00\x00\x00ab": "middle of a frame",
        }
        for data, reason in cases.items():
            ours, theirs = socket.socketpair()
            recorder = Recorder()
            channel = Channel(SocketTransport(ours), recorder, "broken")
            channel.start()
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            self.assertTrue(recorder.gone.wait(LIMIT), data[:20])
            self.assertIn(reason, str(channel.gone))
            channel.close()
            theirs.close()

    def test_random_and_mutated_streams_end_the_connection_or_leave_it_whole(self) -> None:
        draw = random.Random(29)
        good = [
            pack(b'{"jsonrpc":"2.0","method":"news","params":[1,2,{"a":null}]}', b"body"),
            pack(b'{"jsonrpc":"2.0","id":7,"method":"echo","params":{}}'),
            pack(b'{"jsonrpc":"2.0","id":3,"result":{},"files":[{"id":"x"}]}', bytes(5000)),
        ]
        ends = {True: 0, False: 0}
        for _ in range(400):
            stream = bytearray(b"".join(draw.choice(good) for _ in range(draw.randrange(1, 5))))
            for _ in range(draw.randrange(4)):
                at = draw.randrange(len(stream))
                stream[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
            ours, theirs = socket.socketpair()
            recorder = Recorder()
            channel = recorder.channel = Channel(SocketTransport(ours), recorder, "fuzzed")
            recorder.on_request = lambda message, body: channel.reply(message["id"], {})
            channel.start()
            theirs.sendall(stream)
            theirs.shutdown(socket.SHUT_WR)
            self.assertTrue(recorder.gone.wait(LIMIT), bytes(stream)[:100])
            ends["has closed the connection" in str(channel.gone)] += 1
            channel.close()
            theirs.close()
        self.assertTrue(ends[True] and ends[False], ends)

    def test_unknown_methods_and_doubled_answers_change_nothing(self) -> None:
        self.far.start()
        self.near.request("echo", 1, timeout=LIMIT)
        self.far.reply(1, "again")
        self.far.reply(999, "made up")
        self.assertEqual(self.near.request("echo", 2, timeout=LIMIT)[0]["result"], 2)
        self.assertEqual(len(self.recorder.strays), 2)

    def test_a_handler_that_raises_answers_with_the_error_and_reading_goes_on(self) -> None:
        def fail(message: dict, body: bytes) -> None:
            raise LookupError("in the handler")

        self.recorder.on_request = fail
        self.far.start()
        with (
            contextlib.redirect_stderr(io.StringIO()) as printed,
            self.assertRaises(RemoteError) as caught,
        ):
            self.far.request("anything", {}, timeout=LIMIT)
        self.assertIn("LookupError: in the handler", printed.getvalue())
        self.assertIn("LookupError: in the handler", str(caught.exception))
        self.assertEqual(self.near.request("echo", 2, timeout=LIMIT)[0]["result"], 2)

    def test_signals_that_raise_anywhere_in_a_request_lose_nothing(self) -> None:
        self.far.start()

        class Struck(BaseException):
            pass

        def strike(number: int, frame: object) -> None:
            raise Struck

        draw = random.Random(17)
        before = signal.signal(signal.SIGALRM, strike)
        struck = 0
        try:
            for number in range(200):
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.random() * 0.003)
                    for count in range(1000):
                        self.near.request(
                            "echo", count, bytes(draw.choice((0, 300_000))), timeout=LIMIT
                        )
                    self.near.request("silence", {}, timeout=LIMIT)
                except Struck:
                    struck += 1
                self.assertEqual(
                    self.near.request("echo", number, timeout=LIMIT)[0]["result"], number
                )
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(struck, 200)
        self.assertIsNone(self.near.gone)

    def test_frames_beyond_the_sockets_buffer_pass_both_ways_at_once(self) -> None:
        self.far.start()
        body = os.urandom(700_000)
        at_once(4, lambda _: self.near.request("echo", 0, body, timeout=LIMIT))

    def test_nothing_is_closed_under_a_thread_that_still_writes(self) -> None:
        happened: list[str] = []
        moved = threading.Event()
        send, close = self.near.transport.send, self.near.transport.close

        class Watched:
            """The sending lock, which tells when somebody has to wait for it."""

            def __init__(self, lock: threading.Lock) -> None:
                self.lock = lock

            def __enter__(self) -> None:
                if not self.lock.acquire(blocking=False):
                    moved.set()
                    self.lock.acquire()

            def __exit__(self, *_: object) -> None:
                self.lock.release()

        def closing() -> None:
            happened.append("closed")
            moved.set()
            close()

        def sending(data: bytes) -> int:
            closer.start()
            self.assertTrue(moved.wait(LIMIT))
            happened.append("written")
            return send(data)

        closer = threading.Thread(target=self.near.close)
        self.near._writer.lock = Watched(self.near._writer.lock)  # type: ignore[assignment]
        self.near.transport.close = closing  # type: ignore[method-assign]
        self.near.transport.send = sending  # type: ignore[method-assign]
        with self.assertRaises(ChannelGone):
            self.near.notify("late", {})
        closer.join(LIMIT)
        self.assertEqual(happened, ["written", "closed"])

    def test_an_idle_channel_costs_no_wakeups(self) -> None:
        self.far.start()
        self.near.request("echo", 1, timeout=LIMIT)

        def switches() -> int:
            total = 0
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/status") as file:
                    for line in file:
                        if line.startswith("voluntary_ctxt_switches"):
                            total += int(line.split()[1])
            return total

        waiter = Waiter()
        self.near.wait(waiter, 0.2)  # the deputies have come to rest
        before = switches()
        self.near.wait(waiter, 0.5)
        self.assertLess(switches() - before, 20)


class PacketChannels(Channels):
    """The same over packets, on systems that have them."""

    pair = staticmethod(packet_pair)
    # Of streams:
    test_broken_bytes_end_the_connection_with_the_reason = None
    test_random_and_mutated_streams_end_the_connection_or_leave_it_whole = None

    def test_many_chores_and_a_large_frame_go_out_in_packets_of_their_own(self) -> None:
        chores = [pack(b'{"jsonrpc":"2.0","method":"chore"}', bytes(30_000)) for _ in range(3)]
        self.near.set_chore(lambda: chores)
        self.far.start()
        self.near.due()
        _, body = self.near.request("echo", {}, b"x" * 200_000, timeout=LIMIT)
        self.assertEqual(len(body), 200_000)
        self.near.due()
        self.assertEqual(self.near.request("echo", 1, timeout=LIMIT)[0]["result"], 1)
        self.far_recorder.wait(lambda: len(self.far_recorder.notifications) == 6)


if __name__ == "__main__":
    unittest.main()
