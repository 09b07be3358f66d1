"""Nodes with known answers, and nodes that do harm."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import random
import signal
import sys
import threading
import time


def _table(key):
    """A permutation of all bytes."""
    return bytes((byte * (2 * key + 1) + key) % 256 for byte in range(256))


def Echo(**inputs):
    return (inputs,)


def Translate(data, key):
    """As many bytes out as come in."""
    return (data.translate(_table(key)),)


def Digest(data):
    """Much in, little out."""
    return (hashlib.sha256(data).hexdigest(),)


def Make(seed, size):
    """Little in, much out."""
    return (random.Random(seed).randbytes(size),)


def Fail(text):
    raise ValueError(text)


async def Nap(seconds, answer):
    await asyncio.sleep(seconds)
    return (answer,)


def Compute(seconds, answer):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.005)
    return (answer,)


def _worker():
    """This process's worker object, which packs have no business with."""
    from comfy_supervisor_worker.worker import Worker

    return next(found for found in gc.get_objects() if isinstance(found, Worker))


def _memory_files():
    """How many descriptors of this process are memory files."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
        except OSError:
            pass  # the folder's own
    return count


def Accounts():
    """What this process holds."""
    gc.collect()
    memory = _worker().memory
    return (
        {
            "pid": os.getpid(),
            "pool": memory.pool.sizes(),
            "holds": len(memory.mappings.holds()),
            "memory_files": _memory_files(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count(),
        },
    )


# ---- harm --------------------------------------------------------------------------------------


def Leave(code):
    """Ends the process at once."""
    print("leaving", file=sys.stderr, flush=True)
    os._exit(code)


def Signal(number):
    """Has a signal end the process."""
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)
    time.sleep(30)


def CloseAll():
    """Closes what a careless pack closes that wants to be a daemon."""
    os.closerange(3, 4096)
    return ("closed",)


def Garbage(kind):
    """Writes into the connection to the supervisor."""
    rubbish = {
        "noise": b"GET / HTTP/1.1\r\n\r\n" * 20,
        "torn": b"\x00\x00\x00\x40\x00\x00\x00\x00{",
        "huge": b"\xff\xff\xff\xff\xff\xff\xff\xff",
        "text": b"\x00\x00\x00\x04\x00\x00\x00\x00null",
    }[kind]
    channel = _worker().channel
    with channel._writer.lock:
        channel.transport.send(rubbish)
        if kind == "torn":
            os._exit(0)
    return ("written",)


def Lies():
    """Says what makes no sense, as whole frames."""
    channel = _worker().channel
    channel.reply(999999, {"late": True})
    channel.notify("memory.return", {"bytes": -1})
    channel.notify("memory.return", {"bytes": "many"})
    channel.notify("memory.released", {"files": [{"id": "nobody-1", "count": 5}, {"id": 7}, 3]})
    channel.notify("progress", {"value": 1, "max": 2}, call=987654)
    channel.notify("no.such.notification", {"x": 1})
    return ("lied",)


def Flood(megabytes, newline):
    """Prints much."""
    text = ("x" * 99 + "\n") * 10000 if newline else "x" * 1000000
    for _ in range(megabytes):
        sys.stdout.write(text)
    sys.stdout.flush()
    return (megabytes,)


def Lines(count):
    """Prints many short lines."""
    text = "short\n" * 10000
    for _ in range(count // 10000):
        sys.stdout.write(text)
    sys.stdout.flush()
    return (count,)


def Burn(seconds):
    """Prints to nowhere, as fast as it can."""
    text = "short\n" * 10000
    end = time.monotonic() + seconds
    with open(os.devnull, "w") as nowhere:
        while time.monotonic() < end:
            nowhere.write(text)
    return (seconds,)


def Brood():
    """Leaves children behind: one that holds the pipes, one in a session of its own."""
    for own_session in (False, True):
        if os.fork() == 0:
            if own_session:
                os.setsid()
                if os.fork():
                    os._exit(0)
            time.sleep(600)
            os._exit(0)
    return ("left",)


def _node(function):
    """Makes a node class of a function."""

    def run(self, **inputs):
        return function(**inputs)

    async def run_async(self, **inputs):
        return await function(**inputs)

    return type(
        function.__name__,
        (),
        {
            "INPUT_TYPES": classmethod(lambda cls: {"required": {}, "optional": {}}),
            "RETURN_TYPES": ("*",),
            "FUNCTION": "run",
            "CATEGORY": "stress",
            "run": run_async if asyncio.iscoroutinefunction(function) else run,
        },
    )


NODE_CLASS_MAPPINGS = {
    function.__name__: _node(function)
    for function in (
        Echo,
        Translate,
        Digest,
        Make,
        Fail,
        Nap,
        Compute,
        Accounts,
        Leave,
        Signal,
        CloseAll,
        Garbage,
        Lies,
        Flood,
        Lines,
        Burn,
        Brood,
    )
}
