"""One process's memory files: those it made, those it maps, and what it tells the supervisor about
them.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from .channel import Channel
from .errors import CannotCross, RemoteError, SupervisorChanged
from .frames import pack
from .mappings import Mappings
from .pagemap import Pagemap
from .pool import Pool


class Memory:
    """Made once per process; `channel` returns the connection of the moment (it changes when a
    client reconnects).
    """

    def __init__(self, owner: str, channel: Callable[[], Channel]) -> None:
        """`owner` begins the ids of the files this process makes."""
        self.owner = owner
        self._channel = channel
        self._returned = 0  # bytes given back since the last notice
        self.pool = Pool(owner, self._reserve, self._give_back)
        self.mappings = Mappings(self._due)
        self.pagemap = Pagemap()

    def _reserve(self, size: int, held: Callable[[], int]) -> None:
        while True:
            try:
                # What is booked already goes along, so that asking twice books once.
                self._channel().request("memory.reserve", {"bytes": size, "held": held()})
                return
            except SupervisorChanged:
                pass  # the next one is asked
            except RemoteError as error:
                raise CannotCross(error.message, error.kind) from error

    def _give_back(self, size: int) -> None:
        self._returned += size
        self._due()

    def _due(self) -> None:
        self._channel().due()

    def notices(self) -> list[bytes]:
        """The frames that are due; a channel's chore."""
        frames = []
        released = self.mappings.collect()
        for start in range(0, len(released), 1000):  # within the size limit of a header
            frames.append(
                _notification("memory.released", {"files": released[start : start + 1000]})
            )
        returned, self._returned = self._returned, 0
        if returned:
            frames.append(_notification("memory.return", {"bytes": returned}))
        return frames

    def on_released(self, params: Any) -> None:
        """Handles the supervisor's `memory.released`: nobody refers to these files of ours any
        more.
        """
        entries = params.get("files") if isinstance(params, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                self.pool.released(entry["id"], spoiled=bool(entry.get("spoiled")))

    def inventory(self) -> dict[str, Any]:
        """The answer to `memory.inventory`."""
        return {
            "owned": self.pool.lent(),
            "holds": self.mappings.holds(),
            "reserved_bytes": self.pool.booked,
        }


def _notification(method: str, params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return pack(json.dumps(message, separators=(",", ":")).encode())
