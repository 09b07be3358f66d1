"""Asking workers what is in their packs, as many side by side as the machine allows, once for each content.

Registration happens pack by pack inside ComfyUI's start, which would make scans serial: so the first pack's question
starts the scans of all packs that ComfyUI is going to load, and each pack then waits for its own.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable

from .scancache import Scan, ScanCache

_WORKER_BYTES = 1 << 30  # of RAM that a pack's imports are allowed for, torch's included


@dataclass(frozen=True)
class Wanted:
    """One scan: of which environment, kept under which name, and valid for which fingerprint."""

    environment: str
    place: str
    fingerprint: str


class Scans:
    """The scans of one start of ComfyUI."""

    def __init__(self, cache: ScanCache, scan: Callable[[str], dict[str, Any]], log: Callable[[str], None]) -> None:
        """`scan(environment)` starts a worker, asks it and ends it; it raises what went wrong."""
        self._cache = cache
        self._scan = scan
        self._log = log
        self._lock = threading.Lock()
        self._running: dict[str, Future[dict[str, Any]]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, wanted: list[Wanted]) -> None:
        """Starts those that no cache answers and that are not under way."""
        with self._lock:
            missing = []
            for item in wanted:
                if item.place not in self._running and self.cached(item) is None:
                    missing.append(item)
            if missing and self._pool is None:
                self._pool = ThreadPoolExecutor(side_by_side(len(missing)), "comfy-supervisor-scan")
            for item in missing:
                assert self._pool is not None
                self._running[item.place] = self._pool.submit(self._run, item)

    def cached(self, item: Wanted) -> dict[str, Any] | None:
        """The kept scan of exactly this content."""
        kept = self._cache.load(item.place)
        return kept.document if kept is not None and kept.fingerprint == item.fingerprint else None

    def outdated(self, item: Wanted) -> dict[str, Any] | None:
        """The kept scan of this place, of whatever content."""
        kept = self._cache.load(item.place)
        return None if kept is None else kept.document

    def result(self, item: Wanted) -> dict[str, Any]:
        """The scan, kept or made. Raises what scanning raised."""
        kept = self.cached(item)
        if kept is not None:
            return kept
        self.begin([item])
        with self._lock:
            running = self._running.get(item.place)
        if running is None:  # another thread's scan of it has just been kept
            kept = self.cached(item)
            return kept if kept is not None else self._run(item)
        return running.result()

    def close(self) -> None:
        """Lets the threads end; scans under way are finished."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _run(self, item: Wanted) -> dict[str, Any]:
        document = self._scan(item.environment)
        try:
            self._cache.store(item.place, Scan(item.fingerprint, document))
        except OSError as error:
            self._log(f"the scan of {item.environment} could not be kept: {error}")
        return document


def side_by_side(count: int) -> int:
    """How many scans may run at once: as many as there are cores, and RAM for."""
    cores = os.cpu_count() or 1
    return max(1, min(count, cores, _free_bytes() // _WORKER_BYTES))


def _free_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 4 * _WORKER_BYTES  # unknown: a few at once do no harm
