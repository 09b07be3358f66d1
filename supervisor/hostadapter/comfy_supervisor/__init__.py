"""Calling nodes that run in workers of comfy-supervisor.

    import comfy_supervisor

    session = comfy_supervisor.connect()
    result = session.call("some-pack-nodes", "SomeNode", image=image, strength=0.5)

Standard library only; numpy and torch are used where they are loaded, or when a value of theirs
arrives. A process has one session for each supervisor; forked children connect for themselves.
"""

from .calls import Call, Cancellation, CallerRequest, Options, Progress
from .errors import (
    Ambiguous,
    CallCancelled,
    CallSilent,
    NotBuilt,
    PackFailed,
    QuotaExceeded,
    StartFailed,
    Stopped,
    SupervisorError,
    SupervisorGone,
    SupervisorUnavailable,
    UnknownEnvironment,
    UnknownInput,
    UnknownNode,
    ValueCannotCross,
    WorkerDied,
)
from .session import Session, connect
from .wire.opaque import Handle, Opaque

__all__ = [
    "Ambiguous",
    "Call",
    "CallCancelled",
    "CallSilent",
    "CallerRequest",
    "Cancellation",
    "Handle",
    "NotBuilt",
    "Opaque",
    "Options",
    "PackFailed",
    "Progress",
    "QuotaExceeded",
    "Session",
    "StartFailed",
    "Stopped",
    "SupervisorError",
    "SupervisorGone",
    "SupervisorUnavailable",
    "UnknownEnvironment",
    "UnknownInput",
    "UnknownNode",
    "ValueCannotCross",
    "WorkerDied",
    "connect",
]
