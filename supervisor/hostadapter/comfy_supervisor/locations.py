"""Where the supervisor listens and keeps its log, as its settings have it."""

from __future__ import annotations

import os
import sys


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


def _xdg(name: str) -> str:
    """One of XDG's variables, which count only when absolute."""
    folder = os.environ.get(name, "")
    return folder if os.path.isabs(folder) else ""


def state_directory() -> str:
    """The folder of logs and of the daemon's own log."""
    given = os.environ.get("COMFY_SUPERVISOR_STATE_DIR")
    if given:
        return given
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        if not local or "systemprofile" in local.lower():  # of a service
            local = _home("AppData", "Local")
        return os.path.join(local, "comfy-supervisor")
    if sys.platform == "darwin":
        return _home("Library", "Application Support", "comfy-supervisor")
    return os.path.join(_xdg("XDG_STATE_HOME") or _home(".local", "state"), "comfy-supervisor")


def runtime_directory() -> str:
    """The folder of the socket."""
    given = os.environ.get("COMFY_SUPERVISOR_RUNTIME_DIR")
    if given:
        return given
    runtime = _xdg("XDG_RUNTIME_DIR") if sys.platform not in ("win32", "darwin") else ""
    return (
        os.path.join(runtime, "comfy-supervisor")
        if runtime
        else os.path.join(state_directory(), "run")
    )


def socket_path() -> str:
    """The supervisor's socket, or the path that stands for its pipe."""
    return os.environ.get("COMFY_SUPERVISOR_SOCKET") or os.path.join(
        runtime_directory(), "supervisor.sock"
    )
