"""Random values, the same for a seed, and a comparison that forgives nothing."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

_TEXTS = (
    "",
    "plain",
    "ünïcödé",
    '\x00\n"\\',
    "🎉",
    "\ud800",
    "\udfff\ud800",
    "\ud83d\ude00",
    "a" * 1000,
    "é" * 500,
)
_INTS = (
    0,
    1,
    -1,
    1 << 31,
    -(1 << 63),
    1 << 64,
    10**30,
    -(10**30),
    10**4000,
    -(10**5000),
    (1 << 53) + 1,
)
_FLOATS = (0.0, -0.0, 1.5, -1e308, 5e-324, math.inf, -math.inf, math.nan, 0.1)


def scalar(draw: random.Random) -> Any:
    """One value without parts."""
    kind = draw.randrange(10)
    if kind == 0:
        return draw.choice((None, True, False, ...))
    if kind == 1:
        return draw.choice(_INTS)
    if kind == 2:
        return draw.getrandbits(draw.choice((8, 64, 200))) * draw.choice((1, -1))
    if kind == 3:
        return draw.choice(_FLOATS)
    if kind == 4:
        return draw.uniform(-1e6, 1e6)
    if kind == 5:
        return draw.choice(_TEXTS)
    if kind == 6:
        return "".join(chr(draw.randrange(0x11000)) for _ in range(draw.randrange(12)))
    if kind == 7:
        return draw.randbytes(draw.choice((0, 1, 100, 5000)))
    if kind == 8:
        return bytearray(draw.randbytes(draw.randrange(50)))
    return draw.choice(
        (
            complex(1, -0.0),
            complex(math.nan, math.inf),
            slice(1, None, -2),
            slice("a", 2.5),
            range(3, 10**20, 7),
            range(0),
        )
    )


def hashable(draw: random.Random, depth: int) -> Any:
    """A value that can be a key."""
    kind = draw.randrange(6)
    if kind == 0 and depth > 0:
        return tuple(hashable(draw, depth - 1) for _ in range(draw.randrange(3)))
    if kind == 1 and depth > 0:
        return frozenset(hashable(draw, depth - 1) for _ in range(draw.randrange(3)))
    while True:
        value = scalar(draw)
        try:
            hash(value)
        except TypeError:
            continue
        if (
            value == value
        ):  # a NaN among keys is found by identity only, which nothing carries across
            return value


def value(draw: random.Random, depth: int = 4) -> Any:
    """Any value."""
    kind = draw.randrange(12) if depth > 0 else 99
    size = draw.choice((0, 1, 2, 3, 6))
    if kind == 0:
        return [value(draw, depth - 1) for _ in range(size)]
    if kind == 1:
        return tuple(value(draw, depth - 1) for _ in range(size))
    if kind == 2:
        return {draw.choice(_TEXTS) + str(i): value(draw, depth - 1) for i in range(size)}
    if kind == 3:
        return {hashable(draw, 2): value(draw, depth - 1) for _ in range(size)}
    if kind == 4:
        return {hashable(draw, 2) for _ in range(size)}
    if kind == 5:
        return frozenset(hashable(draw, 2) for _ in range(size))
    if kind == 6:
        return [draw.choice((1, 2.5, None, "x", True)) for _ in range(draw.randrange(40))]
    if kind == 7:
        shared = value(draw, depth - 1)
        return [shared, {"again": shared}, (shared,)]
    return scalar(draw)


def same(left: Any, right: Any) -> bool:
    """Whether two values are of the same types with the same contents in the same order, NaN and
    -0.0 included.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (left != left and right != right) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) and same(left[a], right[b]) for a, b in zip(left, right)
        )
    if isinstance(left, slice):
        return same((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    return bool(left == right)


_SNIPPETS = (b"[", b"]", b"{", b"}", b'{"r":0}', b"1e999", b"-", b'"', b"null", b"9" * 50)
_TAGS = (b"m", b"t", b"d", b"a", b"o", b"h", b"n", b"0", b"-1")


def mutated(draw: random.Random, body: bytes) -> bytes:
    """A body with a few changes, mostly with its length kept right, so that the JSON is reached."""
    result = bytearray(body)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        if not result:
            break
        at = draw.randrange(len(result))
        action = draw.randrange(5)
        if action == 0:
            result[at] = draw.randrange(256)
        elif action == 1:
            del result[at : at + draw.randrange(1, 9)]
        elif action == 2:
            result[at:at] = draw.choice(_SNIPPETS)
        elif action == 3:
            start = draw.randrange(len(result))
            result[at:at] = result[start : start + draw.randrange(20)]
        else:
            result[at : at + 1] = draw.choice(_TAGS)
    if len(result) > 4 and draw.random() < 0.8:
        (length,) = struct.unpack_from("<I", result)
        struct.pack_into("<I", result, 0, min(length, len(result) - 4))
    return bytes(result)
