"""The cases by name, and what they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Awaitable, Callable

from client import Client

Case = Callable[[Client], Awaitable[Any]]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Names a case."""

    def keep(function: Case) -> Case:
        CASES[name] = function
        return function

    return keep


def shown(*nodes: tuple[str, dict[str, Any]], show: tuple[str, int] = ("last", 0)) -> dict[str, Any]:
    """A graph of numbered nodes whose last output (or another one) is shown."""
    graph = {str(index + 1): {"class_type": kind, "inputs": inputs} for index, (kind, inputs) in enumerate(nodes)}
    node = str(len(nodes)) if show[0] == "last" else show[0]
    graph["show"] = {"class_type": "PreviewAny", "inputs": {"source": [node, show[1]]}}
    return graph


def simple(name: str, node: str, /, **inputs: Any) -> None:
    """A case of one node."""
    CASES[name] = lambda client: client.run(shown((node, inputs)))


async def input_folder(client: Client) -> Path:
    """The input folder of the ComfyUI."""
    argv = (await client.http("GET", "/system_stats"))["body"]["system"]["argv"]
    return Path(argv[0]).resolve().parent / "input"
