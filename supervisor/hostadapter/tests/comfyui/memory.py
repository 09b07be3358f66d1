"""Has an isolated pack load models in a running ComfyUI, and the user want memory back; prints what the nodes returned.

    python memory.py PORT
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from client import Client  # noqa: E402


def graph(name: str, size_mib: int) -> dict[str, Any]:
    return {
        "1": {"class_type": "RealModel", "inputs": {"name": name, "size_mib": size_mib}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }


async def main() -> None:
    seen = []
    async with Client(int(sys.argv[1]), "memory") as client:
        for number, wish in enumerate((None, {"unload_models": True}, {"free_memory": True})):
            if wish is not None:
                answer = await client.http("POST", "/free", json=wish)
                assert answer["status"] == 200, answer
                # The loop looks at its flags when it is woken or after a prompt: after this one it has.
                await client.run(graph("between", 1 + number))
            result = await client.run(graph(f"model {number}", 256))
            seen.append((result["outputs"] or {}).get("2", {}).get("text"))
    print(json.dumps(seen))


asyncio.run(main())
