"""Nodes for the client's tests."""

import asyncio
import collections
import os
import time


class Node:
    RETURN_TYPES = ("*",)
    FUNCTION = "run"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}


class Echo(Node):
    def run(self, /, **inputs):
        return inputs


class Counts(Node):
    def __init__(self):
        self.count = 0

    def run(self):
        self.count += 1
        return self.count

    def other(self, by):
        return self.count * by


class OwnError(ConnectionResetError):
    error_code = 77  # a number, as CUDA's errors have

    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code = code


class Weird(Exception):
    pass


class Raises(Node):
    def run(self, what):
        raise_it(what)


def raise_it(what):
    if what == "file":
        open("/no/such/file")
    if what == "key":
        {}["absent"]
    if what == "own":
        raise OwnError(7, "reset")
    if what == "weird":
        raise Weird(object())
    if what == "chained":
        try:
            raise_it("key")
        except KeyError as error:
            raise ValueError("the outer one") from error
    if what == "unicode":
        b"\xff".decode()
    if what == "exit":
        raise SystemExit(3)
    if what == "group":
        raise OSError(28, "No space left", "/full")


class Waits(Node):
    """Waits until a file appears."""

    def run(self, path):
        while not os.path.exists(path):
            time.sleep(0.002)
        return "seen"


class WaitsAsync(Node):
    async def run(self, path):
        while not os.path.exists(path):
            await asyncio.sleep(0.002)
        return "seen"


class Sleeps(Node):
    async def run(self, seconds, value=None):
        await asyncio.sleep(seconds)
        return value


class Meets(Node):
    """Returns once some of its kind wait beside each other."""

    waiting: list = []

    async def run(self, count, value):
        event = asyncio.Event()
        self.waiting.append(event)
        if len(self.waiting) == count:
            for each in self.waiting:
                each.set()
            self.waiting.clear()
        await event.wait()
        return value


class Dies(Node):
    def run(self):
        os.kill(os.getpid(), 9)


class Progresses(Node):
    """With ComfyUI: a progress bar."""

    def run(self, steps):
        import comfy.utils

        bar = comfy.utils.ProgressBar(steps, node_id="7")
        for step in range(steps):
            bar.update_absolute(step + 1, steps)
            time.sleep(0.11)  # bars report ten times a second at most
        return "done"


class Polls(Node):
    """With ComfyUI: computes until it is interrupted; says so in a file once it has begun."""

    def run(self, path):
        import comfy.model_management

        open(path, "w").close()
        while True:
            comfy.model_management.throw_exception_if_processing_interrupted()
            time.sleep(0.002)


class FlagNow(Node):
    def run(self):
        import comfy.model_management

        return comfy.model_management.processing_interrupted()


class Context(Node):
    def run(self):
        import comfy_execution.utils

        return comfy_execution.utils.get_executing_context()


class AsksHost(Node):
    """Asks the thread in the host that waits for this call."""

    def run(self, method, params=None, times=1):
        from comfy_supervisor_worker.calls import current_call  # the worker's own module

        import gc

        from comfy_supervisor_worker.worker import Worker

        worker = next(each for each in gc.get_objects() if type(each) is Worker)
        assert current_call.get() is not None
        answers = []
        for number in range(times):
            message, _ = worker.ask_caller(
                method, params if params is not None else {"number": number}
            )
            answers.append(message["result"])
        return answers


Point = collections.namedtuple("Point", "x y")


class Kind(str):
    pass


class Thing:
    def __init__(self, word):
        self.word = word


class Marks:
    """Unpickling this leaves a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


class Makes(Node):
    def run(self, what, word=None):
        if what == "thing":
            return (Thing(word), [Thing(word)])
        if what == "mark":
            return Marks(word)
        if what == "text":
            return Kind(word)
        if what == "point":
            return Point(1, [2])
        if what == "live":
            return (each for each in [word])
        raise AssertionError(what)


class Leaves:
    """Leaves a file when it goes."""

    def __init__(self, path):
        self.path = path
        self.stays = (each for each in ())  # does not pickle

    def __del__(self):
        open(self.path, "x").close()


class Keeps(Node):
    def run(self, path):
        return Leaves(path)


class Reads(Node):
    def run(self, value):
        if isinstance(value, tuple) and not isinstance(value, Point):
            value = value[0]
        return (
            type(value).__name__,
            getattr(value, "word", None),
            value == "text",
            value == (1, [2]),
        )


class Next(Node):
    def run(self, value):
        return next(value)


class Sees(Node):
    def run(self, value):
        return (type(value).__module__, type(value).__name__, repr(value))


NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in list(globals().values())
    if isinstance(node, type) and issubclass(node, Node)
}
