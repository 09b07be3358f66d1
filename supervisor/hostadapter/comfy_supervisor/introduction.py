"""The first exchange on a connection: who this process is, and whether the other side fits."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import errors, starting
from .wire import PROTOCOL
from .wire.channel import Channel, encode_json
from .wire.errors import ChannelGone, RemoteError
from .wire.frames import MAX_HEADER_BYTES
from .wire.process import start_time

VERSION = "1"
_SAME_CONTAINER = "run the host and its supervisor in the same container"


def hello(owner: str, name: str, comfyui: str, facts: Any) -> dict[str, Any]:
    """The parameters of `hello` for a host that has no session yet."""
    python = ".".join(map(str, sys.version_info[:3]))
    environ = {name: value for name, value in os.environ.items() if _is_text(name + value)}
    params: dict[str, Any] = {
        "protocol": PROTOCOL,
        "role": "host",
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "owner": owner,
        "name": f"{name}/{VERSION} python {python}",
        "environ": environ,
        "comfyui": comfyui,
        "host_facts": facts,
    }
    facts_file = os.environ.get("COMFY_SUPERVISOR_HOST_FACTS")
    if facts_file:
        params["host_facts_file"] = os.path.abspath(facts_file)
    return params


def shorten(params: dict[str, Any]) -> None:
    """Leaves out the longest variables where the parameters would not fit into a header."""
    room = MAX_HEADER_BYTES - 4096
    environ = params["environ"]
    for name in sorted(environ, key=lambda name: len(environ[name]), reverse=True):
        if len(encode_json(params)) <= room:
            break
        del environ[name]


def introduce(channel: Channel, path: str, params: dict[str, Any]) -> dict[str, Any]:
    """Says hello and returns what the supervisor answered. Raises SupervisorUnavailable."""
    peer = channel.transport.peer_pid()
    if peer == 0:
        raise _refusal(
            f"the supervisor at {path} runs in another PID namespace, where memory files can not be"
            " opened by PID",
            _SAME_CONTAINER,
        )
    try:
        message, _ = channel.request("hello", params, timeout=starting.START_SECONDS)
    except RemoteError as error:
        raise errors.SupervisorUnavailable(
            f"the supervisor at {path} refused this process: {error.message}", {**error.data}
        ) from None
    except (ChannelGone, TimeoutError) as error:
        text = f"no answer from what listens at {path}: {error}"
        raise errors.SupervisorUnavailable(text) from error
    answer = message.get("result")
    answer = answer if isinstance(answer, dict) else {}
    if answer.get("protocol") != PROTOCOL:
        raise _refusal(
            f"the supervisor at {path} speaks protocol {answer.get('protocol')}, this client"
            f" {PROTOCOL}",
            "restart the supervisor after an upgrade",
        )
    supervisor = answer.get("supervisor")
    if not isinstance(supervisor, dict):
        supervisor = answer["supervisor"] = {}
    pid = supervisor.get("pid")
    begun = start_time(pid) if isinstance(pid, int) else ""
    if (peer > 0 and pid != peer) or begun != (supervisor.get("start_time") or begun):
        raise _refusal(
            f"the supervisor at {path} calls itself process {pid}, which is another one here: it"
            " runs in another PID namespace",
            _SAME_CONTAINER,
        )
    return answer


def _refusal(text: str, remedy: str) -> errors.SupervisorUnavailable:
    return errors.SupervisorUnavailable(text, {"kind": "unavailable", "remedy": remedy})


def _is_text(value: str) -> bool:
    """Whether a variable is Unicode; what is not can not be told in JSON."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
