"""Graph expansion, with prefixes that are unique per call, and blockers."""

from comfy_execution.graph_utils import ExecutionBlocker, GraphBuilder

from .behaviour import ANY


class ContractExpands:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"text": ("STRING", {"default": "a"}), "times": ("INT", {"default": 2})}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/expansion"

    def run(self, text, times):
        graph = GraphBuilder()
        other = GraphBuilder()
        node = other.node("ContractSync", value=text)
        for _ in range(times):
            node = graph.node("ContractSync", value=node.out(0))
        return {"result": (node.out(0),), "expand": {**other.finalize(), **graph.finalize()}}


class ContractExpandsTensor:
    """A tensor as a constant of an expanded graph."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",)}}

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "run"
    CATEGORY = "contract/expansion"

    def run(self, image):
        graph = GraphBuilder()
        node = graph.node("ContractInPlace", image=image * 0.5)
        return {"result": (node.out(0),), "expand": graph.finalize()}


class ContractBlocks:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {}), "block": ("BOOLEAN", {"default": True}), "message": ("STRING", {"default": ""})}}

    RETURN_TYPES = (ANY, ANY)
    FUNCTION = "run"
    CATEGORY = "contract/expansion"

    def run(self, value, block, message):
        if not block:
            return (value, value)
        blocker = ExecutionBlocker(message or None)
        return blocker if message == "both" else (blocker, value)


class ContractWalksGraph:
    """DYNPROMPT: sees the node that made it."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"depth": ("INT", {"default": 0})},
            "hidden": {"graph": "DYNPROMPT", "me": "UNIQUE_ID"},
        }

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/expansion"

    def run(self, depth, graph, me):
        if depth > 0:
            builder = GraphBuilder()
            node = builder.node("ContractWalksGraph", depth=depth - 1)
            return {"result": (node.out(0),), "expand": builder.finalize()}
        kind = graph.get_node(me)["class_type"]
        return (f"{kind} {graph.get_parent_node_id(me)} {graph.get_real_node_id(me)} {len(graph.all_node_ids())}",)


NODES = {
    kind.__name__: kind for kind in (ContractExpands, ContractExpandsTensor, ContractBlocks, ContractWalksGraph)
}
