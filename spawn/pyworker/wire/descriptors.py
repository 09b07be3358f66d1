"""Keeping the protocol's descriptors out of the way of what packs do with descriptors."""

from __future__ import annotations

import os

_HIGH = 1000  # packs that close "all" descriptors loop to here or less


def move_high(descriptor: int) -> int:
    """Moves a descriptor to a high number that no exec inherits; returns the number."""
    try:
        import fcntl
        import resource
    except ImportError:  # Windows: no descriptor is inherited there
        return descriptor
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = _HIGH if soft == resource.RLIM_INFINITY or soft > _HIGH + 16 else max(3, soft - 16)
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        os.set_inheritable(descriptor, False)
        return descriptor  # the table is full above: it stays where it is
    os.close(descriptor)
    return moved
