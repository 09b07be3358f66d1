"""A connection on which both sides send requests.

Whoever waits for something reads for everybody: a thread that waits takes the reading lock and
dispatches what arrives, so that a reply needs no switch of threads. While nobody waits, or the one
who could read is computing, a background thread (the deputy) reads. It steps in after GRACE seconds
without a reader, and at once when asked to.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Protocol

from .errors import ChannelGone, ProtocolError, RemoteError, error_object
from .frames import FrameBuffer, PacketBuffer, pack
from .transport import Transport
from .wake import Bell, Wake
from .writer import Writer

GRACE = (
    0.010  # seconds without a reader before the deputy reads; far above the gap between two calls
)
_PARKED = 2.0  # seconds that the deputy rests while somebody else reads; it is woken earlier
_CHUNK_BYTES = 64 << 10

Message = dict[str, Any]
_decode_json = json.JSONDecoder().decode
encode_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Handler(Protocol):
    """Gets what the other side sends of its own accord, in order, on the thread that reads: it must
    not block.
    """

    def on_request(self, message: Message, body: bytes) -> None: ...
    def on_notification(self, message: Message, body: bytes) -> None: ...
    def on_stray(
        self, message: Message
    ) -> None: ...  # a reply nobody waits for; it may carry files
    def on_gone(self, error: ChannelGone) -> None: ...


class Waiter:
    """What a thread waits for: a reply, or something in its inbox."""

    __slots__ = ("inbox", "reply", "notify", "_lock")

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        """`notify` is called on the reading thread when something has come, instead of waking a
        thread.
        """
        self.inbox: deque[Any] = deque()
        self.reply: tuple[Message, bytes] | ChannelGone | None = None
        self.notify = notify
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Ends one `sleep`, the present or the next."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # awake already

    def sleep(self, seconds: float = -1) -> None:
        """Waits for `wake`; it may also return without one."""
        self._lock.acquire(timeout=seconds)


class Channel:
    """One end of a connection. Every method may be called from every thread, except where it says
    otherwise.
    """

    def __init__(
        self,
        transport: Transport,
        handler: Handler,
        name: str,
        place: Callable[[int], int] | None = None,
    ) -> None:
        """`name` is the deputy's; `place` moves descriptors (see Wake). Nothing is read before
        `start`.
        """
        self.transport = transport
        self._handler = handler
        self._name = name
        self._buffer = PacketBuffer() if transport.packet_bytes else FrameBuffer()
        self._pending: dict[int, Waiter] = {}
        self._next_id = 0
        self._id_lock = threading.Lock()
        self._gone: ChannelGone | None = None
        self._writer = Writer(transport, self)
        # Reading. The order of a write and the next read in these fields matters; each pair is
        # commented.
        self._reading = threading.Lock()
        self._turns = 0  # counts the ends of turns at reading
        self._followers: dict[Waiter, None] = {}
        self._undispatched = False  # the buffer may hold whole frames
        self._background = 0  # requests that nobody waits for in `wait`
        self._deputy: threading.Thread | None = None
        self._deputy_parked = False
        self._deputy_reads = False
        self._wake: Wake | Bell = Wake(place) if transport.pollable else Bell()
        _channels.add(self)

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the deputy; from now on frames are read."""
        self._deputy = threading.Thread(target=self._run_deputy, name=self._name, daemon=True)
        self._deputy.start()

    def close(self) -> None:
        """Ends the connection. Pending requests end with ChannelGone."""
        self.fail(ChannelGone("the connection was closed"))
        deputy = self._deputy
        if deputy is None:
            self._end_reading()
        elif deputy is not threading.current_thread():
            deputy.join()

    @property
    def gone(self) -> ChannelGone | None:
        """Why the connection has ended, or None while it lives."""
        return self._gone

    def abandon(self) -> None:
        """In a forked child: lets go of the descriptors without a word to the other side."""
        self._gone = ChannelGone("the connection belongs to the parent process of this fork")
        self.transport.close()
        self._wake.close()
        self._pending = {}
        self._followers = {}

    def fail(self, error: ChannelGone) -> None:
        """Ends the connection with a reason; a second one changes nothing."""
        with self._id_lock:
            if self._gone is not None:
                return
            self._gone = error
            pending, self._pending = self._pending, {}
            self.transport.shutdown()  # before anybody can see that it may be closed
        for waiter in pending.values():
            waiter.reply = error
            self._notify_waiter(waiter)
        for waiter in list(self._followers):
            waiter.wake()
        self._wake.set()
        self._handler.on_gone(error)

    def while_alive(self, function: Callable[[], None]) -> None:
        """Runs a function that notes something down, unless the connection has ended: whoever takes
        stock after its end finds what was noted. Raises ChannelGone.
        """
        with self._id_lock:
            if self._gone is not None:
                raise self._gone
            function()

    def end_pending(self, error: ChannelGone) -> None:
        """Ends every pending request with an error, while the connection goes on."""
        with self._id_lock:
            pending, self._pending = self._pending, {}
            self._background -= sum(waiter.notify is not None for waiter in pending.values())
        for waiter in pending.values():
            waiter.reply = error
            self._notify_waiter(waiter)

    # ---- sending ---------------------------------------------------------------------------------

    def set_chore(self, chore: Callable[[], list[bytes]]) -> None:
        """`chore` returns frames that are due; they go out with the next frame, or from the deputy
        soon after `due`.
        """
        self._writer.chore = chore

    def due(self) -> None:
        """Says that the chore has something. For finalizers: takes no lock and never blocks."""
        self._writer.due = True
        # Pairs with the deputy, which sets these flags and then reads `due` before it waits for
        # long.
        if self._deputy_parked or self._deputy_reads or not self.transport.pollable:
            self._wake.set()

    def send(self, header: bytes, body: bytes = b"") -> None:
        """Sends one frame. Raises ChannelGone, and ProtocolError for one beyond the limits."""
        self._writer.send(pack(header, body))

    def notify(self, method: str, params: Any, body: bytes = b"", **fields: Any) -> None:
        """Sends a notification; `fields` are further fields of the message (call, files ...)."""
        message = {"jsonrpc": "2.0", "method": method, "params": params, **fields}
        self.send(encode_json(message).encode(), body)

    def reply(self, request: int, result: Any, body: bytes = b"", **fields: Any) -> None:
        """Answers a request."""
        message = {"jsonrpc": "2.0", "id": request, "result": result, **fields}
        self.send(encode_json(message).encode(), body)

    def reply_empty(self, request: int, body: bytes) -> None:
        """Answers a request with an empty result and a body; the cheapest reply."""
        self.send(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % request, body)

    def reply_error(
        self, request: int, error: dict[str, Any], body: bytes = b"", **fields: Any
    ) -> None:
        """Answers a request with an error object (see errors.error_object)."""
        message = {"jsonrpc": "2.0", "id": request, "error": error, **fields}
        self.send(encode_json(message).encode(), body)

    # ---- requests --------------------------------------------------------------------------------

    def begin(self, waiter: Waiter) -> int:
        """Registers a request whose reply goes to `waiter`; returns its id. The caller then sends
        it.
        """
        with self._id_lock:
            if self._gone is not None:
                raise self._gone
            self._next_id = request = self._next_id + 1
            self._pending[request] = waiter
            if waiter.notify is not None:
                self._background += 1
        if waiter.notify is not None and not self._deputy_reads:
            self._wake.set()  # nobody may wait for a while: the deputy reads at once
        return request

    def forget(self, request: int) -> bool:
        """Drops a pending request; its reply becomes a stray one. False when there was none."""
        with self._id_lock:
            waiter = self._pending.pop(request, None)
            if waiter is not None and waiter.notify is not None:
                self._background -= 1
        return waiter is not None

    def request(
        self,
        method: str,
        params: Any,
        body: bytes = b"",
        timeout: float | None = None,
        **fields: Any,
    ) -> tuple[Message, bytes]:
        """Sends a request and waits. Raises RemoteError, ChannelGone, and TimeoutError after
        `timeout` seconds.

        Never to be called on the thread that reads, from inside a handler.
        """
        waiter = Waiter()
        request = self.begin(waiter)
        try:
            message = {
                "jsonrpc": "2.0",
                "id": request,
                "method": method,
                "params": params,
                **fields,
            }
            self.send(encode_json(message).encode(), body)
            if not self.wait(waiter, timeout):
                raise TimeoutError(f"no answer to {method!r} within {timeout} s")
            return self.result(waiter)
        finally:
            self.forget(request)

    @staticmethod
    def result(waiter: Waiter) -> tuple[Message, bytes]:
        """The reply a waiter has received. Raises RemoteError or ChannelGone."""
        reply = waiter.reply
        if isinstance(reply, ChannelGone):
            raise reply
        assert reply is not None
        message, body = reply
        error = message.get("error")
        if error is not None:
            if not isinstance(error, dict):
                error = {}
            raise RemoteError(error, body, message.get("files"))
        return message, body

    # ---- reading ---------------------------------------------------------------------------------

    def wait(self, waiter: Waiter, timeout: float | None = None) -> bool:
        """Waits until the waiter has a reply or something in its inbox, or the channel is gone;
        False at the timeout.

        `timeout` is in seconds. The waiting thread reads for everybody unless another one does.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not waiter.inbox and waiter.reply is None and self._gone is None:
                left = -1.0
                if end is not None and (left := end - time.monotonic()) <= 0:
                    return False
                if self.transport.pollable and self._lead(waiter, end):
                    continue
                self._followers[waiter] = None
                try:
                    # Pairs with _after_turn (which unlocks, then looks for followers) and with
                    # _notify_waiter.
                    if waiter.inbox or waiter.reply is not None or not self._reading.locked():
                        if self.transport.pollable or waiter.inbox or waiter.reply is not None:
                            continue
                    if self._deputy_reads and self.transport.pollable:
                        self._wake.set()  # it steps back, and wakes us
                    waiter.sleep(left)
                finally:
                    self._followers.pop(waiter, None)
            return True
        finally:
            # Whoever was woken in order to read, and had what it waits for by then, wakes the next.
            if self._followers and not self._reading.locked():
                self._wake_follower()

    def _lead(self, waiter: Waiter, end: float | None) -> bool:
        """Reads until the waiter has something or its time is up; False at once if somebody else
        reads.
        """
        held: list[bool] = (
            []
        )  # so that an exception from outside finds the lock either held and noted or not taken
        try:
            held.extend(map(self._reading.acquire, (False,)))
            if not held[0]:
                return False
            # A function of its own: CPython 3.13 leaves the jump that ends a loop inside a `try` out
            # of what the `finally` covers, and that is where signal handlers run.
            self._read_for(waiter, end)
            return True
        finally:
            if held and held[0]:
                self._reading.release()
                self._after_turn()

    def _read_for(self, waiter: Waiter, end: float | None) -> None:
        """The reading of `_lead`. For the holder of the reading lock."""
        while not waiter.inbox and waiter.reply is None and self._gone is None:
            if end is not None:
                left = end - time.monotonic()
                if left <= 0 or not self._readable(left):
                    return
            self._pump()

    def read_in_background(self, wanted: bool) -> None:
        """Asks for the deputy to read at once from now on, or no longer; calls are counted."""
        with self._id_lock:
            self._background += 1 if wanted else -1
        if wanted and not self._deputy_reads:
            self._wake.set()

    def _readable(self, seconds: float) -> bool:
        if self._undispatched:
            return True
        poll = select.poll()
        poll.register(self.transport.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000 + 1))

    def _after_turn(self) -> None:
        """Ends a turn at reading, after the lock's release: somebody else is to read."""
        self._turns += 1
        if not self._wake_follower() and (self._deputy_parked or self._background):
            self._deputy_parked = False
            self._wake.set()

    def _wake_follower(self) -> bool:
        """Wakes a thread that has to read for what it waits for, if there is one."""
        for follower in list(self._followers):
            if follower.reply is None and not follower.inbox:
                follower.wake()
                return True
        return False

    def _pump(self) -> None:
        """Receives once and dispatches what is complete. For the holder of the reading lock.

        An exception from outside (Ctrl-C) loses nothing: a frame whose dispatch it struck is
        dispatched again.
        """
        buffer = self._buffer
        if not self._undispatched:
            self._undispatched = True
            try:
                # One C call receives and stores.
                buffer.chunks.extend(map(self.transport.recv, (max(_CHUNK_BYTES, buffer.missing),)))
            except OSError as error:
                self.fail(ChannelGone(f"the other side is gone: {error}"))
                return
        try:
            while (frame := buffer.peek()) is not None:
                header, body, size = frame
                self._dispatch(header, body)
                buffer.drop(size)
        except ProtocolError as error:
            self.fail(ChannelGone(f"the other side broke the protocol: {error}"))
        self._undispatched = False
        if buffer.chunks and not buffer.chunks[-1]:
            torn = " in the middle of a frame" if len(buffer.chunks) > 1 else ""
            self.fail(ChannelGone(f"the other side has closed the connection{torn}"))

    def _dispatch(self, header: bytes, body: bytes) -> None:
        try:
            message = _decode_json(str(header, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a header that is not JSON: {error}") from None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise ProtocolError("a header that is not a JSON-RPC 2.0 object")
        request = message.get("id", 0)
        method = message.get("method", "")
        if type(request) is not int or type(method) is not str:
            raise ProtocolError(
                "a header whose id is not an integer or whose method is not a string"
            )
        if not method:
            if not request:
                raise ProtocolError("a header with neither a method nor an id")
            waiter = self._pending.get(request)
            if waiter is None:
                self._guard(None, self._handler.on_stray, message)
            else:
                waiter.reply = message, body
                self.forget(request)
                self._notify_waiter(waiter)
        elif request:
            self._guard(request, self._handler.on_request, message, body)
        else:
            self._guard(None, self._handler.on_notification, message, body)

    def _notify_waiter(self, waiter: Waiter) -> None:
        if waiter.notify is not None:
            self._guard(None, waiter.notify)
        elif waiter in self._followers:
            waiter.wake()

    def waiter_of(self, request: Any) -> Waiter | None:
        """Who waits for the reply to a request of ours."""
        return self._pending.get(request)

    def post(self, waiter: Waiter, item: Any) -> None:
        """Puts an item into a waiter's inbox and wakes its thread if it sleeps."""
        waiter.inbox.append(item)
        self._notify_waiter(waiter)

    def _guard(self, request: int | None, function: Callable[..., None], *arguments: Any) -> None:
        """Calls a handler; its error is answered or printed, and reading goes on."""
        try:
            function(*arguments)
        except ChannelGone:
            pass  # every waiter has learnt of it
        except Exception as error:
            import traceback

            traceback.print_exc()
            if request is not None and self._gone is None:
                try:
                    self.reply_error(
                        request, error_object("internal", f"{type(error).__name__}: {error}")
                    )
                except ChannelGone:
                    pass

    # ---- the deputy ------------------------------------------------------------------------------

    def _run_deputy(self) -> None:
        try:
            if not self.transport.pollable:
                self._run_reader()
                return
            poll = select.poll()
            poll.register(self._wake.fileno(), select.POLLIN)
            while self._gone is None:
                turns = self._turns
                if poll.poll((_PARKED if self._deputy_parked else GRACE) * 1000):
                    self._wake.clear()
                self._deputy_parked = False
                if self._writer.due:
                    self._writer.flush()
                if (self._background or turns == self._turns) and self._reading.acquire(
                    blocking=False
                ):
                    self._read_as_deputy()
                elif turns == self._turns:
                    # Somebody reads and nothing goes on. Pairs with _after_turn and due: set, then
                    # look again.
                    self._deputy_parked = True
                    if self._writer.due or not self._reading.locked() or turns != self._turns:
                        self._deputy_parked = False
        except OSError:
            if self._gone is None:
                raise
        finally:
            self._end_reading()

    def _read_as_deputy(self) -> None:
        """Reads until a thread that waits wants to."""
        self._deputy_reads = True
        try:
            both = select.poll()
            both.register(self._wake.fileno(), select.POLLIN)
            both.register(self.transport.fileno(), select.POLLIN)
            wake = self._wake.fileno()
            while self._gone is None and not self._followers:
                if self._writer.due:
                    self._writer.flush()
                if self._undispatched:
                    self._pump()
                    continue
                ready = both.poll()
                if any(descriptor == wake for descriptor, _ in ready):
                    self._wake.clear()
                if len(ready) == 2 or ready[0][0] != wake:
                    self._pump()
        finally:
            self._deputy_reads = False
            self._reading.release()
            self._after_turn()

    def _run_reader(self) -> None:
        """Where a transport can not be polled, the deputy alone reads, and another thread does the
        chores.
        """
        chores = threading.Thread(target=self._run_chores, name=self._name + "-chores", daemon=True)
        chores.start()
        with self._reading:
            while self._gone is None:
                self._pump()
        chores.join()

    def _run_chores(self) -> None:
        assert isinstance(self._wake, Bell)
        while self._gone is None:
            self._wake.wait()
            self._writer.flush()

    def _end_reading(self) -> None:
        """Closes the descriptors, once nobody reads or writes: what a thread still wrote to a number
        that is free would go to whatever file gets it next.
        """
        with self._reading:
            if self.transport.pollable:  # a writer that waits was woken by the shutdown
                with self._writer.lock, self._id_lock:
                    self.transport.close()
            else:
                self.transport.close()
            self._wake.close()


_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for channel in list(_channels):
        channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
