"""What goes on while a node computes: stopping it, and asking everything else meanwhile."""

from __future__ import annotations

import json
from typing import Any

from cases import case, input_folder, shown, simple
from client import Client


@case("cancel: a node that never reports progress")
async def cancel(client: Client) -> Any:
    return [await _cancelled(client, kind, "/interrupt") for kind in ("ContractSlow", "ContractSwallows")]


@case("cancel: by the ID of the prompt")
async def cancel_by_id(client: Client) -> Any:
    return await _cancelled(client, "ContractSlow", "/interrupt", {"prompt_id": "{id}"})


@case("cancel: by the ID of another prompt")
async def cancel_another(client: Client) -> Any:
    file = await input_folder(client) / "contract-go.txt"
    file.unlink(missing_ok=True)

    async def press(client: Client, message: dict[str, Any]) -> None:
        if message["type"] == "contract.begun":
            await client.http("POST", "/interrupt", json={"prompt_id": "11111111-2222-4333-8444-555555555555"})
            file.write_text("")

    return await client.run(shown(("ContractSlow", {"until": file.name})), during=press)


@case("cancel: as a job")
async def cancel_job(client: Client) -> Any:
    return await _cancelled(client, "ContractSlow", "/api/jobs/{id}/cancel")


@case("cancel: the next prompt is not hit")
async def cancel_then_run(client: Client) -> Any:
    await _cancelled(client, "ContractSlow", "/interrupt")
    file = await input_folder(client) / "contract-there.txt"
    file.write_text("")
    return await client.run(shown(("ContractSlow", {"until": file.name})))


async def _cancelled(client: Client, kind: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Runs a node that would go on for ever, and stops it once it says that it computes."""

    async def press(client: Client, message: dict[str, Any]) -> None:
        if message["type"] == "executing" and message["data"]["node"] == "1":
            running.append(message["data"]["prompt_id"])
        if message["type"] == "contract.begun":
            filled = json.loads(json.dumps(body or {}).replace("{id}", running[0]))
            await client.http("POST", path.format(id=running[0]), json=filled)

    running: list[str] = []
    inputs: dict[str, Any] = {"seed": 1} if kind == "ContractBarEndless" else {"until": "never.txt"}
    return await client.run(shown((kind, inputs)), during=press)


@case("cancel: as jobs")
async def cancel_jobs(client: Client) -> Any:
    return await _cancelled(client, "ContractSlow", "/api/jobs/cancel", {"job_ids": ["{id}"]})


@case("cancel: a node that reports progress all the time")
async def cancel_progress(client: Client) -> Any:
    result = await _cancelled(client, "ContractBarEndless", "/interrupt")
    said = [message["type"] for message in result["messages"] if message["type"].startswith("execution")]
    return {"said": said, "status": result["status"]}


@case("lanes: a node that computes holds up nobody")
async def busy(client: Client) -> Any:
    file = await input_folder(client) / "contract-busy.txt"
    file.unlink(missing_ok=True)
    answers: list[Any] = []

    async def ask(client: Client, message: dict[str, Any]) -> None:
        if message["type"] != "contract.begun":
            return
        for path in ("/object_info", "/object_info/ContractDropdown", "/contract/hello/busy", "/contract/file"):
            answers.append((await client.http("GET", path))["status"])
        for number in (1, 51):
            graph = shown(("ContractValidatesAsync", {"number": number, "choice": "a"}))
            answer = await client.submit(graph)
            answers.append([answer["status"], sorted(answer["body"].get("node_errors", ()))])
        file.write_text("")  # only now the node can end

    result = await client.run(shown(("ContractSlow", {"until": file.name})), during=ask)
    await client.run(shown(("ContractSync", {"value": "after those that waited"})))
    return {"answers": answers, "outputs": result["outputs"]}


@case("modes: those of a node's questions")
async def asked(client: Client) -> Any:
    return await client.run(shown(("ContractSync", {"value": "needed"}), ("ContractAsked", {"seed": 1, "lazy": ["1", 0]})))


simple("server: as packs use it", "ContractServer", seed=0)
simple("flags: as the host has them", "ContractFlags", seed=0)


@case("flags: the preview method of a prompt")
async def preview_method(client: Client) -> Any:
    seen = []
    for seed, method in ((1, "taesd"), (2, "latent2rgb"), (3, "default")):
        seen.append((await client.run(shown(("ContractFlags", {"seed": seed})), preview_method=method))["outputs"])
    return seen


@case("V3: an extension, its nodes and what it has loaded")
async def extension(client: Client) -> Any:
    return [
        await client.http("GET", "/object_info/ExtensionNode"),
        await client.run(shown(("ExtensionNode", {"value": 3}))),
        (await client.http("GET", "/node_replacements"))["body"].get("ExtensionOldNode"),
        await client.run(shown(("ExtensionOldNode", {"number": 4}))),
    ]


@case("routes: static files")
async def static_files(client: Client) -> Any:
    paths = ("/contract/static/served.txt", "/contract/static/none.txt", "/contract/static/../routes.py")
    return [await client.http("GET", path) for path in paths]
