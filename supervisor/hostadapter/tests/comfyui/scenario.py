"""What is done with the contract pack, natively and isolated; prints what was seen of each case as JSON.

    python scenario.py PORT

Each case is named after the row or point that it shows.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, case, input_folder, shown, simple  # noqa: E402
from client import Client, comparable  # noqa: E402

simple("V3: expansion, before anybody has asked for object_info", "ContractV3Expands", text="first")

import serving  # noqa: E402, F401 (its cases)


@case("object_info of every node")
async def object_info(client: Client) -> Any:
    answer = await client.http("GET", "/object_info")
    return {name: info for name, info in answer["body"].items() if name.startswith("Contract")}


@case("object_info of one node")
async def object_info_of_one(client: Client) -> Any:
    return await client.http("GET", "/object_info/ContractAttributes")


simple("attributes: the node runs", "ContractAttributes", text="t", number=4, choice="one")
simple("attributes: a number of 64 bits", "ContractAttributes", text="t", number=2**64 - 1, choice="three", fraction=1)
simple("attributes: a choice that is none", "ContractAttributes", text="t", number=4, choice="four")
simple("attributes: a number below its minimum", "ContractAttributes", text="t", number=-4, choice="one")
simple("attributes: a property of the metaclass", "ContractMetaclass")
simple("behaviour: a dict that contains every name", "ContractAnyInputs", a=1, b="x", another_one=[1, 2, 3])
simple("behaviour: numbered names", "ContractNumberedInputs", input1=1, input2=2, input17=17)


@case("behaviour: a tuple without end")
async def endless(client: Client) -> Any:
    return await client.run(shown(("ContractEndless", {"count": 5}), ("ContractSync", {"value": ["1", 3]})))


simple("calls: synchronous", "ContractSync", value="v")
simple("calls: asynchronous", "ContractAsync", value="v", seconds=0.01)
simple("calls: inference mode", "ContractModes", seed=1)
simple("calls: a node that trains", "ContractTrains", steps=5)
simple("calls: a static function", "ContractStatic", text="t")
simple("calls: a class method", "ContractClassMethod", text="t")
simple("calls: a list instead of a tuple", "ContractBare", text="abc")
simple("calls: without a required input", "ContractBare")


@case("calls: in place")
async def in_place(client: Client) -> Any:
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}},
        "2": {"class_type": "ContractInPlace", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "ContractLooks", "inputs": {"value": ["2", 0]}},
        "4": {"class_type": "ContractLooks", "inputs": {"value": ["1", 0]}},
        "show": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
        "show1": {"class_type": "PreviewAny", "inputs": {"source": ["4", 0]}},
    }
    return (await client.run(graph))["outputs"]


@case("calls: an output node with an answer for the browser")
async def output_node(client: Client) -> Any:
    return await client.run({"1": {"class_type": "ContractUI", "inputs": {"value": "seen"}}})


@case("calls: asynchronous ones beside each other")
async def side_by_side(client: Client) -> Any:
    graph: dict[str, Any] = {}
    for index in range(10):
        graph[f"a{index}"] = {"class_type": "ContractMeets", "inputs": {"value": f"side {index}", "count": 10}}
        graph[f"b{index}"] = {"class_type": "PreviewAny", "inputs": {"source": [f"a{index}", 0]}}
    return (await client.run(graph))["outputs"]


@case("context: node, list index and prompt")
async def context(client: Client) -> Any:
    return await client.run(shown(("ContractListOut", {"count": 3}), ("ContractContext", {"items": ["1", 0]})))


@case("context: prefixes of expanded graphs")
async def expansion(client: Client) -> Any:
    graph = shown(("ContractExpands", {"text": "e", "times": 2}))
    graph["other"] = {"class_type": "ContractExpands", "inputs": {"text": ["1", 0], "times": 1}}
    graph["show2"] = {"class_type": "PreviewAny", "inputs": {"source": ["other", 0]}}
    return await client.run(graph)


@case("expansion: lists")
async def expansion_of_lists(client: Client) -> Any:
    graph = shown(("ContractListOut", {"count": 3}), ("ContractSync", {"value": ["1", 0]}), ("ContractExpands", {"text": "x", "times": 1}))
    graph["3"]["inputs"]["times"] = ["2", 0]
    return await client.run(graph)


@case("expansion: a tensor as a constant")
async def expansion_of_tensor(client: Client) -> Any:
    return await client.run(
        shown(
            ("ContractMakes", {"kind": "image"}), ("ContractExpandsTensor", {"image": ["1", 0]}), ("ContractLooks", {"value": ["2", 0]})
        )
    )


simple("expansion: DYNPROMPT", "ContractWalksGraph", depth=2)


@case("blockers")
async def blockers(client: Client) -> Any:
    seen = []
    for message in ("", "said why", "both"):
        graph = shown(("ContractBlocks", {"value": "v", "block": True, "message": message}))
        graph["other"] = {"class_type": "PreviewAny", "inputs": {"source": ["1", 1]}}
        seen.append(await client.run(graph))
    return seen


@case("IS_CHANGED")
async def changes(client: Client) -> Any:
    seen = []
    for kind in ("ContractChanges", "ContractChangesAsync", "ContractChangesRaises"):
        for value, changing in ((1, False), (1, False), (2, False), (2, True), (2, True)):
            result = await client.run(shown((kind, {"value": value, "changes": changing})))
            seen.append([message["data"]["nodes"] for message in result["messages"] if message["type"] == "execution_cached"])
    return seen


@case("lazy inputs")
async def lazy(client: Client) -> Any:
    seen = []
    for kind in ("ContractLazy", "ContractLazyAsync"):
        for first in (True, False):
            graph = shown(
                ("ContractSync", {"value": f"{kind} {first} a"}),
                ("ContractSync", {"value": f"{kind} {first} b"}),
                (kind, {"first": ["1", 0], "second": ["2", 0], "take_first": first}),
            )
            seen.append(await client.run(graph))
    return seen


@case("lists in and out")
async def lists(client: Client) -> Any:
    graph = shown(("ContractListOut", {"count": 4}), ("ContractListIn", {"values": ["1", 0], "scale": 3}))
    graph["show2"] = {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}}
    return await client.run(graph)


@case("hidden inputs")
async def hidden(client: Client) -> Any:
    return await client.run(
        shown(("ContractHidden", {"value": "h"})),
        extra_pnginfo={"workflow": {"nodes": []}},
        auth_token_comfy_org="token",
        api_key_comfy_org="key",
    )


@case("hidden inputs: what is written into them")
async def written(client: Client) -> Any:
    graph = shown(("ContractWrites", {"seed": 5}), ("ContractHidden", {"value": ["1", 0]}))
    graph["save"] = {"class_type": "ContractHidden", "inputs": {"value": ["2", 0]}}
    graph["show2"] = {"class_type": "PreviewAny", "inputs": {"source": ["save", 0]}}
    return await client.run(graph, extra_pnginfo={"workflow": {"id": 1}, "remove me": True})


@case("instances: kept between prompts, dropped with their node")
async def instances(client: Client) -> Any:
    seen = []
    for seed in range(3):
        seen.append((await client.run(shown(("ContractCounts", {"seed": seed}))))["outputs"])
    await client.run(shown(("ContractSync", {"value": "without it"})))
    seen.append((await client.run(shown(("ContractCounts", {"seed": 9}))))["outputs"])
    return seen


@case("validation")
async def validation(client: Client) -> Any:
    seen = []
    for kind, inputs in (
        ("ContractValidates", {"number": 1, "choice": "c"}),
        ("ContractValidates", {"number": 1, "choice": "d"}),
        ("ContractValidates", {"number": 11, "choice": "a"}),
        ("ContractValidatesAll", {"number": 11, "choice": "z"}),
        ("ContractValidatesAll", {"number": 1000, "choice": "a"}),
        ("ContractValidatesAsync", {"number": 49, "choice": "a"}),
        ("ContractValidatesAsync", {"number": 51, "choice": "a"}),
    ):
        seen.append(await client.run(shown((kind, inputs))))
    for source in (("ContractListOut", 1), ("ContractHidden", 0)):
        graph = shown((source[0], {"count": 1, "value": "v"}), ("ContractValidatesTypes", {"number": ["1", source[1]], "choice": "a"}))
        seen.append(await client.run(graph))
    return seen


for _kind in ("FileNotFoundError", "OwnError", "ValueError", "KeyError", "MemoryError", "OutOfMemoryError", "chained"):
    simple(f"errors: {_kind}", "ContractRaises", kind=_kind)
simple("errors: asynchronous", "ContractRaisesAsync", kind="OwnError")
simple("errors: INPUT_TYPES that raises", "ContractInputTypesRaise")


@case("values: made by the pack, looked into by it")
async def values_inside(client: Client) -> Any:
    kinds = (await client.http("GET", "/object_info/ContractMakes"))["body"]["ContractMakes"]["input"]["required"]["kind"][0]
    seen = {}
    for kind in kinds:
        graph = shown(("ContractMakes", {"kind": kind}), ("ContractLooks", {"value": ["1", 0]}))
        result = await client.run(graph)
        seen[kind] = result.get("outputs") or result
    return seen


@case("values: core nodes use what workers return")
async def values_in_core(client: Client) -> Any:
    seen = []
    for kind, core in (
        ("image", {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "contract"}}),
        ("video components", {"class_type": "SaveVideo", "inputs": {"video": ["1", 0], "filename_prefix": "contract", "format": "auto", "codec": "auto"}}),
        ("video file", {"class_type": "SaveVideo", "inputs": {"video": ["1", 0], "filename_prefix": "contract_file", "format": "auto", "codec": "auto"}}),
        ("mesh", {"class_type": "SaveGLB", "inputs": {"mesh": ["1", 0], "filename_prefix": "contract"}}),
        ("audio", {"class_type": "SaveAudio", "inputs": {"audio": ["1", 0], "filename_prefix": "contract"}}),
    ):
        seen.append(await client.run({"1": {"class_type": "ContractMakes", "inputs": {"kind": kind}}, "2": core}))
    return seen


@case("values: workers use what core nodes return")
async def values_of_core(client: Client) -> Any:
    seen = []
    for core in (
        {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 8, "batch_size": 2, "color": 255}},
        {"class_type": "EmptyLatentImage", "inputs": {"width": 16, "height": 16, "batch_size": 1}},
        {"class_type": "SolidMask", "inputs": {"value": 0.5, "width": 8, "height": 8}},
        {"class_type": "EmptyAudio", "inputs": {"duration": 0.01, "sample_rate": 44100, "channels": 2}},
    ):
        graph = shown(("ContractSync", {"value": "x"}), ("ContractLooks", {"value": ["core", 0]}))
        graph["core"] = core
        seen.append((await client.run(graph))["outputs"])
    return seen


@case("values: objects that only the host has")
async def host_objects(client: Client) -> Any:
    seen = []
    for core in (
        {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "euler"}},
        {"class_type": "RandomNoise", "inputs": {"noise_seed": 7}},
    ):
        graph = {
            "1": core,
            "2": {"class_type": "ContractSync", "inputs": {"value": ["1", 0]}},
            "3": {"class_type": "ContractLooks", "inputs": {"value": ["2", 0]}},
            "show": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
        }
        seen.append((await client.run(graph))["outputs"])
    return seen


@case("models: handles")
async def models(client: Client) -> Any:
    seen = []
    for maker, inputs, user, name in (
        ("ContractMakesEngine", {"name": "e"}, "ContractUsesEngine", "engine"),
        ("ContractMakesModel", {"size": 4}, "ContractUsesModel", "model"),
    ):
        for seed in range(2):
            seen.append((await client.run(shown((maker, inputs), (user, {name: ["1", 0], "seed": seed}))))["outputs"])
    return seen


for _kind in ("ContractBar", "ContractBarAsync", "ContractSetProgress", "ContractSetProgressSync"):
    simple(f"progress: {_kind}", _kind, steps=2)


@case("progress: previews")
async def previews(client: Client) -> Any:
    return await client.run(shown(("ContractPreview", {"steps": 2})))


@case("messages of the pack's own, to one client and to all")
async def messages(client: Client) -> Any:
    async with Client(int(client.url.rpartition(":")[2]), "other") as other:
        first = await client.run({"1": {"class_type": "ContractMessages", "inputs": {"steps": 2}}})
        heard: list[dict[str, Any]] = []

        async def keep(_: Client, message: dict[str, Any]) -> None:
            heard.append(message)

        await other.run(shown(("ContractSync", {"value": "after the messages"})), during=keep)
        own = [message["type"] for message in heard].index("execution_start")
        return {"first": first, "second": [comparable(message, {}) for message in heard[:own] if message["type"] != "status"]}


simple("imports", "ContractImports", seed=0)
simple("folders", "ContractFolders", seed=0)
simple("variables", "ContractVariables", seed=0)


@case("dropdowns follow the disk")
async def dropdown(client: Client) -> Any:
    folders = json.loads((await client.run(shown(("ContractFolders", {"seed": 1}))))["outputs"]["show"]["text"][0])
    assert folders["input"] == "input"
    file = await input_folder(client) / "contract-new.txt"
    for there in (False, True, False):
        if there:
            file.write_text("new")
        else:
            file.unlink(missing_ok=True)
        while True:  # the questions of one second are answered from one look at the disk
            info = await client.http("GET", "/object_info/ContractDropdown")
            shown_files = info["body"]["ContractDropdown"]["input"]["required"]["file"][0]
            if (file.name in shown_files) is there:
                break
    return shown_files


simple("logging", "ContractLogs", seed=3)

simple("V3: a schema, a locked class, hidden values", "ContractV3", text="t", number=3, choice="y")
simple("V3: a choice that is none", "ContractV3", text="t", number=3, choice="z")
simple("V3: asynchronous, without hidden values", "ContractV3Async", value=4)


@case("V3: dynamic inputs")
async def dynamic(client: Client) -> Any:
    seen = []
    for mode, name, value in (("add", "mode.amount", 3), ("name", "mode.label", "l")):
        seen.append(await client.run(shown(("ContractV3Dynamic", {"items.item0": 1, "items.item1": 2, "mode": mode, name: value}))))
    return seen


@case("V3: lazy inputs")
async def lazy_v3(client: Client) -> Any:
    seen = []
    for left in (True, False):
        graph = shown(
            ("ContractSync", {"value": f"left {left}"}),
            ("ContractSync", {"value": f"right {left}"}),
            ("ContractV3Lazy", {"left": left, "a": ["1", 0], "b": ["2", 0]}),
        )
        seen.append(await client.run(graph))
    return seen


@case("V3: validation and fingerprints")
async def validation_v3(client: Client) -> Any:
    seen = []
    for value in (7, 7, 11):
        seen.append(await client.run(shown(("ContractV3Validates", {"value": value}))))
    return seen


@case("V3: answers for the browser, and blocking")
async def ui_v3(client: Client) -> Any:
    seen = []
    for how in ("preview", "dict", "block"):
        graph = {
            "0": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}},
            "1": {"class_type": "ContractV3UI", "inputs": {"image": ["0", 0], "how": how}},
            "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
        }
        seen.append(await client.run(graph))
    return seen


simple("V3: expansion", "ContractV3Expands", text="t")


@case("routes")
async def routes(client: Client) -> Any:
    import aiohttp

    seen = [
        await client.http("GET", "/contract/hello/you?a=1&b=%20x", headers={"X-Contract": "yes"}),
        await client.http("GET", "/api/contract/hello/api"),
        await client.http("HEAD", "/contract/hello/head"),
        await client.http("POST", "/contract/json", json={"a": [1, None]}),
        await client.http("POST", "/contract/raw", data=bytes(range(256)) * 100),
        await client.http("GET", "/contract/file"),
        await client.http("GET", "/contract/missing"),
        await client.http("GET", "/contract/plain"),
        await client.http("PUT", "/contract/table"),
        await client.http("DELETE", "/contract/table"),
    ]
    form = aiohttp.FormData()
    form.add_field("text", "some text")
    form.add_field("file", b"\x00\x01content", filename="f.bin", content_type="application/x-thing")
    seen.append(await client.http("POST", "/contract/form", data=form))
    failed = await client.http("GET", "/contract/raises")
    seen.append({"status": failed["status"]})
    return seen


@case("on_prompt handlers")
async def on_prompt(client: Client) -> Any:
    return await client.run({"1": {"class_type": "ContractUI", "inputs": {"value": "as submitted"}}}, contract_mark=True)


async def main(port: int, chosen: str) -> None:
    """Runs all cases, or those whose name contains one of some texts, and prints what was seen."""
    seen = {}
    async with Client(port, "first") as client:
        await client.run(shown(("ContractSync", {"value": "awake"})))  # validation asks a worker that is awake
        for name, run in CASES.items():
            if not any(part in name for part in chosen.split("|")):
                continue
            try:
                seen[name] = await asyncio.wait_for(run(client), 120)
            except Exception as error:
                seen[name] = {"failed": f"{type(error).__name__}: {error}"}
            print(name, file=sys.stderr, flush=True)
    json.dump(seen, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
