"""What a host needs to know of a pack to register it."""

from __future__ import annotations

from typing import Any

from . import contract
from .shapes import Describer


def scan(nodes: dict[str, type], display_names: dict[str, str]) -> dict[str, Any]:
    """The contracts of all nodes."""
    describer = Describer()
    contracts = [contract.describe_node(name, cls, describer) for name, cls in nodes.items()]
    return {"nodes": contracts, "display_names": dict(display_names), "tables": describer.tables}


def inputs(nodes: dict[str, type]) -> dict[str, Any]:
    """The present INPUT_TYPES of all nodes; one that raises takes down only itself."""
    describer = Describer()
    described = {name: contract.input_types(cls, describer) for name, cls in nodes.items()}
    return {"inputs": described, "tables": describer.tables}
