"""Nodes for the client's tests with numpy and torch; neither is imported here."""


class Node:
    RETURN_TYPES = ("*",)
    FUNCTION = "run"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}


class Echo(Node):
    def run(self, value):
        return (value,)


class AddOne(Node):
    def run(self, value):
        return (value + 1,)


class AddInPlace(Node):
    kept: list = []

    def run(self, value, through="itself"):
        AddInPlace.kept.append(value)
        if through == "numpy":
            array = value.numpy()
            array += 1
        else:
            value += 1
        return (value,)


class SumOfKept(Node):
    def run(self):
        sums = [float(value.sum()) for value in AddInPlace.kept]
        AddInPlace.kept.clear()
        return sums


class Holder:
    def __init__(self, array):
        self.parts = {"array": array, "again": array}


class MakesHolder(Node):
    def run(self, value):
        return (Holder(value),)


class ReadsHolder(Node):
    def run(self, value):
        parts = value.parts
        return (type(value) is Holder, parts["array"] is parts["again"], parts["array"])


NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in list(globals().values())
    if isinstance(node, type) and issubclass(node, Node)
}
