"""How long prompts take that do next to nothing, natively and isolated; prints JSON of medians in milliseconds.

    python speed.py NATIVE_PORT ISOLATED_PORT

Times are from the submission until the browser hears of the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Awaitable, Callable

sys.path.insert(0, str(Path(__file__).parent))

from client import Client  # noqa: E402

Measure = Callable[[Client, dict[str, Any]], Awaitable[float]]
_WARM_UP = 3


def chain(count: int) -> dict[str, Any]:
    """Nodes one after the other, none of which is in the cache."""
    graph: dict[str, Any] = {"0": {"class_type": "SpeedNumber", "inputs": {"value": random.randrange(2**31)}}}
    for number in range(1, count):
        graph[str(number)] = {"class_type": "SpeedNumber", "inputs": {"value": [str(number - 1), 0]}}
    graph["show"] = {"class_type": "PreviewAny", "inputs": {"source": [str(count - 1), 0]}}
    return graph


def pictures(count: int) -> dict[str, Any]:
    """A picture of 64 MiB through nodes one after the other."""
    graph: dict[str, Any] = {"0": {"class_type": "SpeedPicture", "inputs": {"value": random.randrange(2**31)}}}
    for number in range(1, count - 1):
        graph[str(number)] = {"class_type": "SpeedPass", "inputs": {"image": [str(number - 1), 0]}}
    graph["corner"] = {"class_type": "SpeedCorner", "inputs": {"image": [str(count - 2), 0]}}
    graph["show"] = {"class_type": "PreviewAny", "inputs": {"source": ["corner", 0]}}
    return graph


def waits(count: int) -> dict[str, Any]:
    """Nodes that each wait for half a second, beside each other."""
    graph: dict[str, Any] = {}
    for number in range(count):
        graph[str(number)] = {"class_type": "SpeedWait", "inputs": {"value": random.randrange(2**30), "seconds": 0.5}}
    inputs = {f"value{number}": [str(number), 0] for number in range(count)}
    graph["sum"] = {"class_type": "SpeedSum", "inputs": inputs}
    graph["show"] = {"class_type": "PreviewAny", "inputs": {"source": ["sum", 0]}}
    return graph


def polls() -> dict[str, Any]:
    """A node that looks at the stop button every millisecond, and at nothing else."""
    return {
        "0": {"class_type": "SpeedPoll", "inputs": {"value": random.randrange(2**31)}},
        "show": {"class_type": "PreviewAny", "inputs": {"source": ["0", 0]}},
    }


async def run(client: Client, graph: dict[str, Any]) -> float:
    """Runs a prompt; how long it took, in milliseconds."""
    before = time.perf_counter()
    await _heard(client, await _submit(client, graph), "executing", node=None)
    return (time.perf_counter() - before) * 1000


async def cancel(client: Client, graph: dict[str, Any]) -> float:
    """Runs a prompt until its first node computes, and stops it; how long that took, in milliseconds."""
    prompt_id = await _submit(client, graph)
    await _heard(client, prompt_id, "progress", node="0")
    before = time.perf_counter()
    await client.http("POST", "/interrupt", json={})
    await _heard(client, prompt_id, "execution_interrupted")
    taken = (time.perf_counter() - before) * 1000
    await _heard(client, prompt_id, "executing", node=None)
    return taken


async def object_info(client: Client, graph: dict[str, Any]) -> float:
    """How long an answer to /object_info takes, in milliseconds."""
    before = time.perf_counter()
    answer = await client.http("GET", "/object_info")
    assert answer["status"] == 200
    return (time.perf_counter() - before) * 1000


async def _submit(client: Client, graph: dict[str, Any]) -> str:
    answer = await client.submit(graph)
    assert answer["status"] == 200, answer
    return str(answer["body"]["prompt_id"])


async def _heard(client: Client, prompt_id: str, kind: str, **wanted: Any) -> None:
    """Waits for a message of a prompt."""
    while True:
        message = await client.hear(60)
        assert message is not None, "no message for a minute"
        data = message["data"]
        if message["type"] == "execution_error":
            raise RuntimeError(data)
        if message["type"] == kind and data.get("prompt_id") == prompt_id:
            if all(data[name] == value for name, value in wanted.items()):
                return


MEASURED: dict[str, tuple[Measure, Callable[[], dict[str, Any]], int]] = {
    "chain": (run, lambda: chain(10), 50),
    "pictures": (run, lambda: pictures(5), 10),
    "waits": (run, lambda: waits(10), 5),
    "cancel": (cancel, polls, 20),
    "object_info": (object_info, dict, 20),
}


async def main(ports: list[int]) -> None:
    """Measures two ComfyUIs in turn, so that what else the machine does hits both."""
    seen: dict[str, dict[str, float]] = {}
    async with Client(ports[0], "native") as native, Client(ports[1], "isolated") as isolated:
        for name, (measure, make, times) in MEASURED.items():
            taken: dict[str, list[float]] = {}
            for number in range(_WARM_UP + times):
                for client in (native, isolated):
                    milliseconds = await measure(client, make())
                    if number >= _WARM_UP:
                        taken.setdefault(client.name, []).append(milliseconds)
            seen[name] = {who: statistics.median(each) for who, each in taken.items()}
            seen[name]["extra"] = seen[name]["isolated"] - seen[name]["native"]
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
