"""A fake card for Python processes: what torch would take and return, counted in a shared file.

The library is the one that testdata/fakecard builds (FAKECARD_LIBRARY), the cards are in FAKECARD_FILE. Sizes are bytes.
"""

from __future__ import annotations

import ctypes
import itertools
import os

OUT_OF_MEMORY = 2


class CardError(RuntimeError):
    """The card is not there, or fell off the bus."""


class OutOfMemoryError(RuntimeError):
    """The card has not that many bytes left."""


def visible() -> list[Card]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order; all where it is not set. As CUDA has it, what is no card's
    number ends the list."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards: list[Card] = []
    for number in itertools.count() if listed is None else listed.split(","):
        try:
            card = Card(int(number))
            card.memory()
        except (ValueError, CardError):
            break
        cards.append(card)
    return cards


class Card:
    """One card as this process sees it."""

    def __init__(self, index: int = 0, library: str | None = None) -> None:
        path = library or os.environ["FAKECARD_LIBRARY"]
        self.index = index
        self._library = ctypes.CDLL(path)
        for name in ("fakecard_take", "fakecard_return"):
            getattr(self._library, name).argtypes = [ctypes.c_int, ctypes.c_uint64]

    def take(self, size: int) -> None:
        """Takes bytes: all of them, or OutOfMemoryError."""
        self._check(self._library.fakecard_take(self.index, size), f"taking {size} bytes")

    def give_back(self, size: int) -> None:
        """Returns bytes; more than this process holds is all it holds."""
        self._check(self._library.fakecard_return(self.index, size), f"returning {size} bytes")

    def held(self) -> int:
        """What this process holds."""
        size = ctypes.c_uint64()
        code = self._library.fakecard_held(self.index, ctypes.byref(size))
        self._check(code, "asking what is held")
        return size.value

    def memory(self) -> tuple[int, int]:
        """What this process reads as (free, total), like torch.cuda.mem_get_info."""
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        code = self._library.fakecard_free(self.index, ctypes.byref(free), ctypes.byref(total))
        self._check(code, "asking what is free")
        return free.value, total.value

    def _check(self, code: int, what: str) -> None:
        if code == OUT_OF_MEMORY:
            raise OutOfMemoryError(f"fake card {self.index}: {what}: out of memory")
        if code != 0:
            raise CardError(f"fake card {self.index}: {what}: error {code}")
