"""How long prompts take that do next to nothing; prints JSON of medians in milliseconds.

    python speed.py PORT

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
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).parent))

from client import Client  # noqa: E402

_WARM_UP = 5


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


async def measure(client: Client, make: Callable[[], dict[str, Any]], times: int) -> float:
    """The median of some prompts."""
    taken = []
    for number in range(_WARM_UP + times):
        graph = make()
        before = time.perf_counter()
        answer = await client.submit(graph)
        assert answer["status"] == 200, answer
        prompt_id = answer["body"]["prompt_id"]
        while True:
            message = await client.hear(60)
            assert message is not None, "no message for a minute"
            data = message["data"]
            if message["type"] == "execution_error":
                raise RuntimeError(data)
            if message["type"] == "executing" and data["node"] is None and data["prompt_id"] == prompt_id:
                break
        if number >= _WARM_UP:
            taken.append((time.perf_counter() - before) * 1000)
    return statistics.median(taken)


async def object_info(client: Client, times: int) -> float:
    """The median of answers to /object_info."""
    taken = []
    for number in range(1 + times):
        before = time.perf_counter()
        answer = await client.http("GET", "/object_info")
        assert answer["status"] == 200
        if number:
            taken.append((time.perf_counter() - before) * 1000)
    return statistics.median(taken)


async def main(port: int) -> None:
    async with Client(port, "speed") as client:
        seen = {
            "chain": await measure(client, lambda: chain(10), 50),
            "pictures": await measure(client, lambda: pictures(5), 10),
            "waits": await measure(client, lambda: waits(10), 3),
            "object_info": await object_info(client, 10),
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
