"""What can go wrong besides the node's own exceptions, which are raised as themselves."""

from __future__ import annotations

from typing import Any

from .wire.errors import CannotCross, RemoteError


class SupervisorError(Exception):
    """An error of the supervisor, not of a node. `kind` is for programs, `remedy` says what to do
    next.
    """

    kind = "internal"

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data = data or {}
        self.kind = str(self.data.get("kind") or type(self).kind)
        self.remedy = str(self.data.get("remedy") or "")
        self.environment = str(self.data.get("environment") or "")
        self.node = str(self.data.get("node") or "")

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else ""
        return f"{text} ({self.remedy})" if self.remedy and self.remedy not in text else text


class SupervisorUnavailable(SupervisorError, ConnectionError):
    """No supervisor could be reached or started, or it refused this process."""

    kind = "unavailable"


class SupervisorGone(SupervisorError, ConnectionError):
    """The connection to the supervisor ended while this waited. A call may or may not have run; the
    next one works.
    """

    kind = "gone"


class WorkerDied(SupervisorError):
    """The worker's process ended during the call. The next call starts another one."""

    kind = "worker_died"

    @property
    def signal(self) -> str:
        """The signal that ended it, such as SIGKILL, or ""."""
        return str(self.data.get("signal") or "")

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or None when a signal ended it."""
        return self.data.get("exit_code")

    @property
    def stderr(self) -> list[str]:
        """The last lines it wrote."""
        return list(self.data.get("stderr") or ())


class StartFailed(WorkerDied):
    """The worker did not come up."""

    kind = "start_failed"


class PackFailed(SupervisorError):
    """The pack's import raised; `__cause__` is what it raised."""

    kind = "pack_failed"


class UnknownEnvironment(SupervisorError, LookupError):
    """There is no environment of that name."""

    kind = "unknown_environment"


class Ambiguous(UnknownEnvironment):
    """The name fits several environments."""

    kind = "ambiguous"


class NotBuilt(SupervisorError):
    """The environment is known, but not built for this host."""

    kind = "not_built"


class UnknownNode(SupervisorError, LookupError):
    """The environment has no such node."""

    kind = "unknown_node"


class UnknownInput(SupervisorError, TypeError):
    """The node's function has no such input."""

    kind = "unknown_input"


class CallCancelled(SupervisorError):
    """The call was cancelled; `__cause__` is what the node raised then, if it did."""

    kind = "cancelled"


class CallSilent(SupervisorError, TimeoutError):
    """The call's time was up: it was silent for too long, or took longer than the caller would
    wait.
    """

    kind = "silent"


class ValueCannotCross(SupervisorError, ValueError):
    """An input or a result that can not be sent; the message names the place in it."""

    kind = "value"


class QuotaExceeded(SupervisorError, MemoryError):
    """There is no room for another memory file."""

    kind = "quota"


class Stopped(SupervisorError):
    """The worker or the supervisor was stopped by somebody."""

    kind = "stopped"


def _classes(base: type[SupervisorError]) -> dict[str, type[SupervisorError]]:
    found = {base.kind: base}
    for derived in base.__subclasses__():
        found.update(_classes(derived))
    return found


_BY_KIND = _classes(SupervisorError)


def from_remote(error: RemoteError) -> SupervisorError:
    """The exception for an error reply that is not a node's own."""
    return _BY_KIND.get(error.kind, SupervisorError)(error.message, error.data)


def from_value(error: CannotCross) -> SupervisorError:
    """The exception for a value that can not be sent or opened here."""
    return _BY_KIND.get(error.kind, ValueCannotCross)(str(error), {"kind": error.kind})
