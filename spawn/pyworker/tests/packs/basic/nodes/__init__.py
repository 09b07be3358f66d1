"""Nodes for the worker's tests; none needs anything but the standard library."""

import asyncio
import os
import sys
import threading
import time
import types

from . import helper

print("importing basic", end="")  # half a line: it must arrive all the same


class Node:
    RETURN_TYPES = ("*",)
    FUNCTION = "run"
    CATEGORY = "test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("*",)}}


class Echo(Node):
    def run(self, value=None):
        return (value,)


class KeepsState(Node):
    def __init__(self):
        self.count = 0

    def run(self):
        self.count += 1
        return (self.count,)


class Says(Node):
    def run(self, text, stream="stdout"):
        getattr(sys, stream).write(text)
        return ()


class Names(Node):
    def run(self):
        return (
            __name__,
            helper.WORD,
            sys.argv,
            "nodes" in sys.modules,
            os.readlink("/proc/self/fd/0"),
        )


class PackError(ValueError):
    error_code = 77


class Raises(Node):
    def run(self, what):
        if what == "recursion":
            return self.run(what)
        if what == "file":
            raise FileNotFoundError(2, "No such file or directory", "/no/such/file")
        if what == "pack":
            raise PackError("of the pack", 3)
        if what == "object":
            raise RuntimeError(object())
        if what == "cause":
            try:
                {}["missing"]
            except KeyError as error:
                raise ValueError("because of another") from error
        if what == "exit":
            sys.exit(3)
        if what == "keyboard":
            raise KeyboardInterrupt
        if what == "base":
            raise BaseException("bare")
        if what == "text":

            class Broken(Exception):
                def __str__(self):
                    raise RuntimeError("no text")

            raise Broken
        if what == "long":
            raise ValueError("é" * 300_000)
        raise AssertionError(what)


class Exits(Node):
    def run(self, code):
        os._exit(code)


class AsyncEcho(Node):
    async def run(self, value, seconds=0.0):
        await asyncio.sleep(seconds)
        return (value,)


class AsyncMeet(Node):
    """Ends only when another call of it runs at the same time."""

    waiting: list = []

    async def run(self, word):
        mine = asyncio.get_running_loop().create_future()
        AsyncMeet.waiting.append((word, mine))
        if len(AsyncMeet.waiting) == 2:
            (first, a), (second, b) = AsyncMeet.waiting
            a.set_result(second)
            b.set_result(first)
        return (await mine,)


class AsyncForever(Node):
    cancelled = 0

    async def run(self):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            AsyncForever.cancelled += 1
            raise


class AsyncForeverCount(Node):
    def run(self):
        return (AsyncForever.cancelled,)


class LeavesTask(Node):
    """Starts a task that outlives the call."""

    done: list = []

    def run(self):
        async def later():
            await asyncio.sleep(0)
            LeavesTask.done.append(True)

        asyncio.get_running_loop().create_task(later())
        return ()


class LeftTaskDone(Node):
    def run(self):
        return (len(LeavesTask.done),)


class AsyncExits(Node):
    async def run(self):
        raise SystemExit(4)


def _high_sockets():
    """How many sockets there are among the numbers where the protocol's descriptors live."""
    count = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            count += number >= 1000 and os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except OSError:
            pass
    return count


class Forks(Node):
    """The connection's sockets as the worker and as a forked child see them."""

    def run(self):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.write(writer, str(_high_sockets()).encode())
            os._exit(0)
        os.close(writer)
        sockets = os.read(reader, 100)
        os.close(reader)
        os.waitpid(child, 0)
        return (_high_sockets(), int(sockets))


class ClosesDescriptors(Node):
    def run(self):
        os.closerange(3, 1000)
        return ("alive",)


class Computes(Node):
    """Holds the main thread until a file appears."""

    def run(self, path):
        while not os.path.exists(path):
            time.sleep(0.005)
        return ("seen",)


class Interruptible(Node):
    """Computes until a file appears, beside ComfyUI's flag, and returns what the flag then is."""

    def run(self, path):
        name = "comfy.model_management"
        flag = sys.modules.get(name)
        if flag is None:
            flag = sys.modules[name] = types.ModuleType(name)
            flag.value = False
            flag.interrupt_current_processing = lambda value=True: setattr(flag, "value", value)
        while not os.path.exists(path):
            time.sleep(0.005)
        return (flag.value,)


class HoldsLock(Node):
    """Returns what can not be pickled."""

    made: list = []

    def run(self):
        class Local:
            def __init__(self):
                self.lock = threading.Lock()
                self.word = "the same"

        HoldsLock.made.append(Local())
        return (HoldsLock.made[-1],)


class GoesSlowly:
    """Says when it begins to go, and goes once it may."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()

    def __del__(self):
        open(os.path.join(self.folder, "begun"), "x").close()
        while not os.path.exists(os.path.join(self.folder, "may go")):
            time.sleep(0.002)


class HoldsSlow(Node):
    def run(self, folder):
        return (GoesSlowly(folder),)


class IsHeld(Node):
    def run(self, value):
        return (any(value is made for made in HoldsLock.made),)


class Plain:
    """A class of the pack that pickles."""

    def __init__(self, word):
        self.word = word


class MakesPlain(Node):
    def run(self, word):
        return (Plain(word),)


class ReadsPlain(Node):
    def run(self, value):
        return (type(value) is Plain, getattr(value, "word", None))


class Cyclic(Node):
    def run(self):
        value = {"a": [1]}
        value["a"].append(value)
        return (value,)


class Big(Node):
    def run(self, count):
        return (b"x" * count,)


class BrokenInputs(Node):
    @classmethod
    def INPUT_TYPES(cls):
        raise SystemExit("this node alone")

    def run(self):
        return ("still runs",)


class AnyType(str):
    def __ne__(self, other):
        return False


class Odd(Node):
    RETURN_TYPES = (AnyType("*"), "INT")
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"value": (AnyType("*"), {"default": float("inf"), "choices": (1, object)})}
        }

    @classmethod
    def IS_CHANGED(cls, value):
        return value

    def run(self, value, **rest):
        return (value, sorted(rest))


class Static(Node):
    @staticmethod
    def run(a, *, b=2):
        return (a, b)


class MaybeText(Node):
    def run(self):
        return (AnyType("seen as text"), AnyType("again"))


NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in list(globals().values())
    if isinstance(node, type) and issubclass(node, Node)
}
NODE_DISPLAY_NAME_MAPPINGS = {"Echo": "Says it again"}
