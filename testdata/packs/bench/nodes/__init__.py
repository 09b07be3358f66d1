"""Nodes that do next to nothing, so that what is measured is the way to them and back."""


class _Node:
    FUNCTION = "run"
    CATEGORY = "bench"
    RETURN_TYPES = ("*",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("*",)}}


class BenchNoop(_Node):
    """Returns a small value."""

    def run(self, value):
        return (value,)


class BenchTake(_Node):
    """Takes an array and reads all of it."""

    def run(self, value):
        return (int(value.max()),)


class BenchMake(_Node):
    """Makes an array of so many bytes."""

    def run(self, value):
        import numpy

        return (numpy.ones(value, dtype=numpy.uint8),)


class BenchAddOne(_Node):
    """Takes an array and makes another one of it."""

    def run(self, value):
        return (value + 1,)


class BenchPass(_Node):
    """Hands on what it gets, unread."""

    def run(self, value):
        return (value,)


NODE_CLASS_MAPPINGS = {node.__name__: node for node in (BenchNoop, BenchTake, BenchMake, BenchAddOne, BenchPass)}
