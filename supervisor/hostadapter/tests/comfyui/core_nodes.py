"""Holds every node of a real ComfyUI against the class that its contract makes.

    python core_nodes.py COMFYUI WORKER_PROGRAM ADAPTER

Run inside a copy of ComfyUI. Each class is described as a worker would, sent through JSON, built as a host would, and
compared with the original in everything that ComfyUI looks at. Prints one line for each difference.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys

COMFYUI, PROGRAM, ADAPTER = sys.argv[1:4]
sys.argv = ["main.py", "--cpu"]
sys.path[:0] = [COMFYUI, PROGRAM, ADAPTER]
os.chdir(COMFYUI)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import nodes  # noqa: E402
from comfy_api.internal import _ComfyNodeInternal, first_real_override  # noqa: E402
from comfy_supervisor_worker.comfyui import contract, shapes  # noqa: E402
from comfyui_adapter import proxy_v1, proxy_v3  # noqa: E402
from comfyui_adapter import shapes as built  # noqa: E402

READ = (
    "INPUT_IS_LIST RETURN_TYPES OUTPUT_IS_LIST RETURN_NAMES DESCRIPTION OUTPUT_NODE HAS_INTERMEDIATE_OUTPUT CATEGORY"
    " OUTPUT_TOOLTIPS DEPRECATED EXPERIMENTAL DEV_ONLY API_NODE SEARCH_ALIASES ESSENTIALS_CATEGORY FUNCTION NOT_IDEMPOTENT"
).split()
MISSING = "<missing>"


class Bridge:
    """Answers with what was scanned; nothing is called."""

    environment = pack = "core"

    def __init__(self) -> None:
        self.known: dict[str, object] = {}

    def inputs(self, node: str) -> object:
        return built.copied(self.known[node])


def information(cls: type) -> dict[str, object]:
    """What ComfyUI reads of a class."""
    if issubclass(cls, _ComfyNodeInternal):
        found: dict[str, object] = {"info": cls.GET_NODE_INFO_V1(), "inputs": cls.INPUT_TYPES(), "all": cls.ACCEPT_ALL_INPUTS}
        methods = {name: first_real_override(cls, name) for name in contract.V3_METHODS}
    else:
        found = {"inputs": cls.INPUT_TYPES(), "order": {key: list(value) for key, value in cls.INPUT_TYPES().items()}}
        methods = {name: getattr(cls, name, None) for name in contract.V1_METHODS}
    for name in READ:
        found[name] = getattr(cls, name, MISSING)
    for name, method in methods.items():
        if method is not None:
            spec = inspect.getfullargspec(method)
            found[f"{name}()"] = [spec.args, spec.varargs, spec.varkw, spec.kwonlyargs]
    found["async"] = inspect.iscoroutinefunction(getattr(cls, cls.FUNCTION))
    return json.loads(json.dumps(found, default=repr))


def main() -> None:
    asyncio.run(nodes.init_extra_nodes(init_custom_nodes=False, init_api_nodes=False))
    describer = shapes.Describer()
    described = [contract.describe_node(name, cls, describer) for name, cls in nodes.NODE_CLASS_MAPPINGS.items()]
    document = json.loads(shapes.encode({"nodes": described, "tables": describer.tables}))
    builder, bridge = built.Builder(document["tables"], for_json=True), Bridge()
    for node in document["nodes"]:
        name = node["name"]
        if "error" in node or "error" in node["inputs"]:
            print(f"{name}: {node.get('error') or node['inputs']['error']}")
            continue
        bridge.known[name] = builder.build(node["inputs"]["value"])
        original = nodes.NODE_CLASS_MAPPINGS[name]
        make = proxy_v3.make_v3 if node["kind"] == "v3" else proxy_v1.make_v1
        proxy = make(node, builder, bridge)
        if hasattr(original, "RELATIVE_PYTHON_MODULE"):
            proxy.RELATIVE_PYTHON_MODULE = original.RELATIVE_PYTHON_MODULE
        expected, found = information(original), information(proxy)
        for key in sorted(set(expected) | set(found)):
            if expected.get(key, MISSING) != found.get(key, MISSING):
                print(f"{name}: {key} is {found.get(key, MISSING)}, want {expected.get(key, MISSING)}")
    print(f"{len(document['nodes'])} nodes compared")


if __name__ == "__main__":
    main()
