"""Nodes of the third kind."""

import asyncio
import json

from comfy_api.latest import io, ui


class ContractV3(io.ComfyNode):
    """Everything a schema says, a locked class, and hidden values that were asked for."""

    RETURNS = "a constant of the pack's"

    @classmethod
    def define_schema(cls):
        return io.Schema(
            node_id="ContractV3",
            display_name="Contract: V3",
            category="contract/v3",
            description="A schema.",
            search_aliases=["third"],
            inputs=[
                io.String.Input("text", default="a", multiline=True, tooltip="some text"),
                io.Int.Input("number", default=2, min=0, max=9),
                io.Combo.Input("choice", options=["x", "y"]),
                io.Float.Input("fraction", optional=True, default=0.5),
                io.AnyType.Input("anything", optional=True),
            ],
            outputs=[io.String.Output("said", display_name="said", tooltip="what it said"), io.Int.Output(is_output_list=True)],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo, io.Hidden.dynprompt],
            is_experimental=True,
        )

    @classmethod
    def execute(cls, text, number, choice, fraction=0.25, anything=None):
        try:
            cls.changed = True
            locked = False
        except AttributeError:
            locked = True
        report = {
            "inputs": [text, number, choice, fraction, str(anything)],
            "me": cls.hidden.unique_id,
            "prompt": sorted(cls.hidden.prompt),
            "graph": len(cls.hidden.dynprompt.all_node_ids()),
            "info": cls.hidden.extra_pnginfo,
            "schema": cls.SCHEMA.node_id,
            "constant": cls.RETURNS,
            "locked": locked,
            "unasked": cls.hidden.api_key_comfy_org,
        }
        return io.NodeOutput(json.dumps(report, sort_keys=True), list(range(number)))


class ContractV3Async(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema("ContractV3Async", category="contract/v3", inputs=[io.Int.Input("value")], outputs=[io.Int.Output()])

    @classmethod
    async def execute(cls, value):
        await asyncio.sleep(0.01)
        nothing = cls.hidden.unique_id is None
        return io.NodeOutput(value * 2 if nothing else -1)


class ContractV3Dynamic(io.ComfyNode):
    """Autogrow and dynamic combo: nested inputs."""

    @classmethod
    def define_schema(cls):
        return io.Schema(
            "ContractV3Dynamic",
            category="contract/v3",
            inputs=[
                io.Autogrow.Input("items", template=io.Autogrow.TemplatePrefix(io.Int.Input("item"), prefix="item", min=1, max=5)),
                io.DynamicCombo.Input(
                    "mode",
                    options=[
                        io.DynamicCombo.Option("add", [io.Int.Input("amount", default=1)]),
                        io.DynamicCombo.Option("name", [io.String.Input("label", default="x")]),
                    ],
                ),
            ],
            outputs=[io.String.Output()],
        )

    @classmethod
    def execute(cls, items, mode):
        return io.NodeOutput(json.dumps([sorted(items.items()), sorted(mode.items())]))


class ContractV3Lazy(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(
            "ContractV3Lazy",
            category="contract/v3",
            inputs=[
                io.Boolean.Input("left"),
                io.AnyType.Input("a", lazy=True, optional=True),
                io.AnyType.Input("b", lazy=True, optional=True),
            ],
            outputs=[io.AnyType.Output()],
        )

    @classmethod
    def check_lazy_status(cls, left, a=None, b=None):
        name, value = ("a", a) if left else ("b", b)
        return [name] if value is None else []

    @classmethod
    def execute(cls, left, a=None, b=None):
        return io.NodeOutput(a if left else b)


class ContractV3Validates(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema("ContractV3Validates", category="contract/v3", inputs=[io.Int.Input("value", max=5)], outputs=[io.Int.Output()])

    @classmethod
    def validate_inputs(cls, value):
        return True if value < 10 else "ten or more"

    @classmethod
    def fingerprint_inputs(cls, value):
        return f"v{value}"

    @classmethod
    def execute(cls, value):
        return io.NodeOutput(value)


class ContractV3UI(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(
            "ContractV3UI",
            category="contract/v3",
            inputs=[io.Image.Input("image"), io.String.Input("how", default="preview")],
            outputs=[io.Image.Output()],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, image, how):
        if how == "block":
            return io.NodeOutput(block_execution="stop here")
        if how == "dict":
            return {"ui": {"words": ["a", "b"]}, "result": (image,)}
        return io.NodeOutput(image, ui=ui.PreviewImage(image, cls=cls))


class ContractV3Expands(io.ComfyNode):
    @classmethod
    def define_schema(cls):
        return io.Schema(
            "ContractV3Expands", category="contract/v3", inputs=[io.String.Input("text")], outputs=[io.String.Output()], enable_expand=True
        )

    @classmethod
    def execute(cls, text):
        from comfy_execution.graph_utils import GraphBuilder

        graph = GraphBuilder()
        node = graph.node("ContractSync", value=text + "!")
        return io.NodeOutput(node.out(0), expand=graph.finalize())


NODES = {
    kind.define_schema().node_id: kind
    for kind in (
        ContractV3,
        ContractV3Async,
        ContractV3Dynamic,
        ContractV3Lazy,
        ContractV3Validates,
        ContractV3UI,
        ContractV3Expands,
    )
}
