"""Graphs that a node returns to be executed in its place."""


def is_link(obj):
    """Whether a value of a graph is ``[node id, output index]``."""
    return (
        isinstance(obj, list)
        and len(obj) == 2
        and isinstance(obj[0], str)
        and isinstance(obj[1], (int, float))
    )


class Node:
    """One node of a graph under construction."""

    def __init__(self, id, class_type, inputs):
        self.id = id
        self.class_type = class_type
        self.inputs = inputs
        self.override_display_id = None

    def out(self, index):
        """A link to one of the node's outputs."""
        return [self.id, index]

    def set_input(self, key, value):
        """Set an input; None removes it."""
        if value is None:
            self.inputs.pop(key, None)
        else:
            self.inputs[key] = value

    def get_input(self, key):
        """An input's value, or None."""
        return self.inputs.get(key)

    def set_override_display_id(self, override_display_id):
        """Show the node's progress at another node."""
        self.override_display_id = override_display_id

    def serialize(self):
        """The node as a prompt has it."""
        serialized = {"class_type": self.class_type, "inputs": self.inputs}
        if self.override_display_id is not None:
            serialized["override_display_id"] = self.override_display_id
        return serialized


class GraphBuilder:
    """Builds a graph whose node ids share a prefix that is unique to the call."""

    _default_prefix_root = ""
    _default_prefix_call_index = 0
    _default_prefix_graph_index = 0

    def __init__(self, prefix=None):
        self.prefix = GraphBuilder.alloc_prefix() if prefix is None else prefix
        self.nodes = {}
        self.id_gen = 1

    @classmethod
    def set_default_prefix(cls, prefix_root, call_index, graph_index=0):
        """Set what the prefixes of the next builders start with."""
        cls._default_prefix_root = prefix_root
        cls._default_prefix_call_index = call_index
        cls._default_prefix_graph_index = graph_index

    @classmethod
    def alloc_prefix(cls, root=None, call_index=None, graph_index=None):
        """A prefix that no other builder of this call has."""
        parts = (
            cls._default_prefix_root if root is None else root,
            cls._default_prefix_call_index if call_index is None else call_index,
            cls._default_prefix_graph_index if graph_index is None else graph_index,
        )
        GraphBuilder._default_prefix_graph_index += 1
        return "".join(f"{part}." for part in parts)

    def node(self, class_type, id=None, **kwargs):
        """A new node, or the one that has that id already."""
        if id is None:
            id = str(self.id_gen)
            self.id_gen += 1
        id = self.prefix + id
        return self.nodes.setdefault(id, Node(id, class_type, kwargs))

    def lookup_node(self, id):
        """The node of that id, or None."""
        return self.nodes.get(self.prefix + id)

    def finalize(self):
        """The graph as a prompt has it."""
        return {id: node.serialize() for id, node in self.nodes.items()}

    def remove_node(self, id):
        """Take a node out."""
        del self.nodes[self.prefix + id]


class ExecutionBlocker:
    """Returned in place of an output, keeps the nodes that use it from running."""

    def __init__(self, message):
        self.message = message
