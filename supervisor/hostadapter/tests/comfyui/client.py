"""A client of a running ComfyUI: submits prompts, hears the websocket, and makes what it heard comparable.

What differs between any two runs is replaced: prompt and client IDs, times, random parts of file names. Modules and
frames are reduced to what a person reads in the browser.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from typing import Any

import aiohttp

_TEMPORARY = re.compile(r"_temp_[a-z]{5}_")
_PREVIEW, _TEXT, _PREVIEW_WITH_METADATA = 1, 3, 4
_DROPPED = ("timestamp", "create_time", "execution_start_time", "execution_end_time")


class Client:
    """One browser, as it were."""

    def __init__(self, port: int, name: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.name = name
        self._session: aiohttp.ClientSession | None = None
        self._socket: Any = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(f"{self.url}/ws?clientId={self.name}", max_msg_size=0)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._socket.close()
        assert self._session is not None
        await self._session.close()

    async def http(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """An HTTP answer: status, the headers that say something, and the body as JSON, text or hex."""
        assert self._session is not None
        async with self._session.request(method, self.url + path, **options) as response:
            body = await response.read()
            try:
                content: Any = json.loads(body)
            except ValueError:
                try:
                    content = body.decode()
                except UnicodeDecodeError:
                    content = body.hex()
            kept = {name: value for name, value in response.headers.items() if name in ("Content-Type", "X-Answer")}
            return {"status": response.status, "headers": kept, "body": content}

    async def submit(self, graph: dict[str, Any], **extra: Any) -> dict[str, Any]:
        """Submits a prompt; the server's answer."""
        data: dict[str, Any] = {"prompt": graph, "client_id": self.name}
        if extra:
            data["extra_data"] = extra
        return await self.http("POST", "/prompt", json=data)

    async def hear(self, seconds: float) -> dict[str, Any] | None:
        """The next message of the websocket; None when none comes in time."""
        try:
            message = await self._socket.receive(seconds)
        except asyncio.TimeoutError:
            return None
        if message.type is aiohttp.WSMsgType.TEXT:
            return json.loads(message.data)
        if message.type is aiohttp.WSMsgType.BINARY:
            return _binary(message.data)
        return None

    async def run(self, graph: dict[str, Any], during: Any = None, **extra: Any) -> dict[str, Any]:
        """Runs a prompt to its end. `during(client, message)` is awaited for each message."""
        answer = await self.submit(graph, **extra)
        if answer["status"] != 200:
            return {"refused": comparable(answer, {})}
        prompt_id = answer["body"]["prompt_id"]
        replaced = {prompt_id: "<prompt>", self.name: "<client>"}
        messages = []
        while True:
            message = await self.hear(60)
            if message is None:
                return {"messages": messages, "problem": "no message for a minute"}
            if during is not None:
                await during(self, message)
            if message["type"] not in ("status", "crystools.monitor"):
                messages.append(comparable(message, replaced))
            data = message.get("data")
            if message["type"] == "executing" and data["node"] is None and data["prompt_id"] == prompt_id:
                break
        history = await self.http("GET", f"/history/{prompt_id}")
        entry = history["body"].get(prompt_id, {})
        status = entry.get("status") or {}
        return {
            "messages": messages,
            "outputs": comparable(entry.get("outputs"), replaced),
            "status": status.get("status_str"),
            "prompt": comparable(entry.get("prompt", [None] * 4)[2], replaced),
        }


def _binary(data: bytes) -> dict[str, Any]:
    (kind,) = struct.unpack(">I", data[:4])
    if kind == _TEXT:
        (length,) = struct.unpack(">I", data[4:8])
        node, text = data[8 : 8 + length], data[8 + length :]
        return {"type": "text", "data": {"node": node.decode(), "text": text.decode()}}
    if kind == _PREVIEW:
        return {"type": "preview", "data": {"format": data[4:8].hex(), "bytes": len(data) - 8}}
    if kind == _PREVIEW_WITH_METADATA:
        (length,) = struct.unpack(">I", data[4:8])
        metadata = json.loads(data[8 : 8 + length])
        return {"type": "preview", "data": {"metadata": metadata, "bytes": len(data) - 8 - length}}
    return {"type": f"binary {kind}", "data": {"bytes": len(data)}}


def comparable(value: Any, replaced: dict[str, str]) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if key in _DROPPED:
                continue
            if key == "exception_type" and isinstance(item, str):
                item = item.rpartition(".")[2]  # the pack's module has another name in a worker
            if key == "current_outputs" and isinstance(item, list):
                item = sorted(item)  # a set, natively
            if key == "traceback" and isinstance(item, list):
                item = frames(item)
            kept[replaced.get(key, key)] = comparable(item, replaced)
        return kept
    if isinstance(value, list):
        return [comparable(item, replaced) for item in value]
    if isinstance(value, str):
        for old, new in replaced.items():
            value = value.replace(old, new)
        return _TEMPORARY.sub("_temp_X_", value)
    return value


def frames(traceback: list[str]) -> list[str]:
    """The frames of a traceback that lie in the pack, as the browser shows them, without folders."""
    found = []
    for line in traceback:
        match = re.search(r'File "[^"]*/nodes/([^"/]+)", line (\d+), in (\w+)', line)
        if match:
            found.append(" ".join(match.groups()))
    return found
