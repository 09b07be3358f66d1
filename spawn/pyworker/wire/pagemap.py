"""Whether a private mapping still shows its file's bytes, asked of the kernel.

/proc/self/pagemap holds 64 bits a page. A page that was written to through a private mapping is
anonymous: present (bit 63) or swapped out (bit 62) without being a page of a file (bit 61).
"""

from __future__ import annotations

import os

from .files import PAGE

_CLEAN = bytes(
    top for top in range(256) if not top & 0xC0 or top & 0x20
)  # the top bytes of untouched pages
_PAGES_PER_READ = 64 << 10


class Pagemap:
    """This process's page map, opened when first used."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._pid = 0

    def untouched(self, low: int, high: int) -> bool:
        """True if no page of the addresses [low, high), which one private mapping covers, was
        written to.

        False also where the kernel does not say.
        """
        if self._pid != os.getpid():
            if not self._open():
                return False
        page, end = low // PAGE, -(-high // PAGE)
        try:
            while page < end:
                count = min(end - page, _PAGES_PER_READ)
                entries = os.pread(self._descriptor, count * 8, page * 8)
                if len(entries) != count * 8 or entries[7::8].translate(None, _CLEAN):
                    return False
                page += count
        except OSError:
            return False
        return True

    def _open(self) -> bool:
        try:
            descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        except AttributeError:  # O_CLOEXEC is a Unix name
            return False
        if self._descriptor >= 0:
            os.close(self._descriptor)  # the parent's, before a fork
        self._descriptor, self._pid = descriptor, os.getpid()
        return True
