"""Nodes for the daemon's own tests. They need nothing but the standard library."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

GO_ON = threading.Event()


def _node(function):
    """Makes a node class of a function."""
    name = function.__name__

    def run(self, **inputs):
        return function(**inputs)

    async def run_async(self, **inputs):
        return await function(**inputs)

    return type(
        name,
        (),
        {
            "INPUT_TYPES": classmethod(lambda cls: {"required": {}, "optional": {}}),
            "RETURN_TYPES": ("*",),
            "FUNCTION": "run",
            "CATEGORY": "test",
            "run": run_async if asyncio.iscoroutinefunction(function) else run,
        },
    )


def Echo(**inputs):
    return (inputs,)


def Where():
    return ({"pid": os.getpid(), "cwd": os.getcwd(), "environ": dict(os.environ), "argv": sys.argv},)


def Block(marker, seconds=60.0):
    """Says that it runs, by a file, and computes without polling anything."""
    with open(marker, "w") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return ("done",)


async def Wait(marker="", seconds=60.0):
    if marker:
        with open(marker, "w") as file:
            file.write(str(os.getpid()))
    await asyncio.sleep(seconds)
    return ("waited",)


async def Meet(name, marker):
    """Ends only when its twin runs beside it."""
    with open(f"{marker}.{name}", "w"):
        pass
    other = f"{marker}.{'b' if name == 'a' else 'a'}"
    while not os.path.exists(other):
        await asyncio.sleep(0.01)
    return (name,)


def Raise(text):
    raise FileNotFoundError(2, text)


def Die(signal_number=int(signal.SIGKILL)):
    print("about to die", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal_number)
    time.sleep(60)


def Leave(code=3):
    print("leaving early", file=sys.stderr, flush=True)
    os._exit(code)


def Speak(text, stream="stdout", times=1):
    for _ in range(times):
        print(text, file=getattr(sys, stream), flush=True)
    return (times,)


def Cycle():
    value: list = []
    value.append(value)
    return (value,)


def Fill(byte, count):
    return (bytes([byte]) * count,)


def _worker():
    """This process's worker object, which packs have no business with."""
    import gc

    from comfy_supervisor_worker.worker import Worker

    return next(found for found in gc.get_objects() if isinstance(found, Worker))


def Ask(method, params):
    """Asks the caller's thread and returns what it says."""
    reply, _ = _worker().ask_caller(method, params)
    return (reply["result"],)


def Tell(method, params):
    """Says something to the supervisor."""
    _worker().channel.notify(method, params)
    return ("told",)


def Say(messages, double=False):
    """Sends whole headers of the caller's choice, and its own answer twice if wanted."""
    import json

    from comfy_supervisor_worker.calls import current_call

    channel = _worker().channel
    for message in messages:
        channel.send(json.dumps(message).encode())
    if double:
        channel.send(b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"first"}}' % current_call.get().request)
    return ("said",)


def Write(text):
    """Writes into the connection what is no frame."""
    _worker().channel.transport.send(text.encode("latin-1"))
    time.sleep(60)


def _after_sending(what, then):
    """Has a function run right after the next frame whose header contains something is sent."""
    channel = _worker().channel
    send = channel.send

    def sending(header, body=b""):
        send(header, body)
        if what in header:
            channel.send = send
            then()

    channel.send = sending


def _pause(marker):
    """Says that it runs, by a file, and goes on when that is gone."""
    with open(marker, "w") as file:
        file.write(str(os.getpid()))
    while os.path.exists(marker):
        time.sleep(0.005)


def Steps(count, marker):
    """Reports progress at every step, each as soon as it may."""
    worker = _worker()
    for step in range(count):
        _pause(marker)
        worker.report_progress(step + 1, count, "node 7")
    _pause(marker)
    return (count,)


def FillAndDie(count, marker):
    """Sends a result and dies before anybody can have opened its memory file."""
    _pause(marker)
    _after_sending(b'"result"', lambda: os.kill(os.getpid(), signal.SIGKILL))
    return (bytes(count),)


def FillLater(count, marker):
    """Returns a large result once it may, and says when it has asked for the memory."""
    _pause(marker)
    _after_sending(b"memory.reserve", lambda: os.close(os.open(marker + ".asked", os.O_CREAT)))
    return (bytes(count),)


def Limit(name, soft):
    """Sets one of this process's limits; a negative number: to what it may be at most. Descriptors count from the first
    that is free.
    """
    import resource

    what = getattr(resource, f"RLIMIT_{name}")
    _, hard = resource.getrlimit(what)
    if name == "NOFILE" and soft >= 0:
        free = os.dup(0)
        os.close(free)
        soft += free
    resource.setrlimit(what, (hard if soft < 0 else soft, hard))
    return ("set",)


def Forks():
    """Forks until the system has no room for another process; the children stay."""
    count = 0
    while True:
        try:
            if os.fork() == 0:
                signal.pause()
                os._exit(0)
        except BlockingIOError as error:
            return (count, str(error))
        count += 1


def Pool():
    """What this process's memory files are at."""
    import gc

    gc.collect()
    return ({**_worker().memory.pool.sizes(), "booked_bytes": _worker().memory.pool.booked},)


def Orphan(marker, seconds=600):
    """Leaves a grandchild in a session of its own behind, whose PID is in the marker; then blocks."""
    code = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    subprocess.run([sys.executable, "-c", code, marker, str(seconds)], check=True, stdin=subprocess.DEVNULL)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return ("done",)


class Kept:
    """Stays in its worker, and leaves a file when it goes."""

    def __init__(self, marker):
        self.marker = marker
        self.lock = threading.Lock()

    def __del__(self):
        open(self.marker, "x").close()


def Keep(marker):
    return (Kept(marker),)


class Strict:
    """Has inputs of its own, as nodes of real packs do."""

    INPUT_TYPES = classmethod(lambda cls: {"required": {"radius": ("INT",)}})
    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "test"

    @classmethod
    async def VALIDATE_INPUTS(cls, name, marker):
        return (await Meet(name, marker)) == (name,)

    def run(self, radius):
        return (radius,)


NODE_CLASS_MAPPINGS = {"Strict": Strict} | {
    function.__name__: _node(function)
    for function in (
        Echo, Say, Write, Where, Block, Wait, Meet, Raise, Die, Leave, Speak, Cycle, Fill, Steps, Ask, Tell, Orphan,
        FillAndDie, FillLater, Keep, Pool, Limit, Forks,
    )
}
NODE_DISPLAY_NAME_MAPPINGS = {"Echo": "Echo what comes in"}
