"""The class attribute ACCELERATOR: a node that names a backend this machine lacks stays visible and says so when run."""

from __future__ import annotations

import sys
from typing import Any


def available(backend: str) -> bool:
    """Whether torch in this process has a backend; unknown names count as present."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    has_cuda = bool(torch.cuda.is_available())
    is_rocm = getattr(torch.version, "hip", None) is not None
    if backend == "cuda":
        return has_cuda and not is_rocm
    if backend == "rocm":
        return has_cuda and is_rocm
    if backend == "xpu":
        return hasattr(torch, "xpu") and bool(torch.xpu.is_available())
    if backend == "mps":
        return bool(torch.backends.mps.is_available())
    return True


def require(wanted: Any, node: str) -> None:
    """Raises RuntimeError when none of the wanted backends (a name or several) is available."""
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    names = [str(name).lower() for name in names]
    if names and not any(available(name) for name in names):
        raise RuntimeError(
            f"{node} needs {' or '.join(names)}, which this machine does not have: run it where that is available, or"
            f" take the node out of the workflow"
        )
