"""Atomic changes of memory: lane by lane, in the order of waves and lanes. The hardware promises no order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from .errors import UnknownInstruction
from .store import Lanes, Store
from .waves import Array

_ATOMIC: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda old, new: old + new, "sub": lambda old, new: old - new, "or": lambda old, new: old | new,
    "and": lambda old, new: old & new, "xor": lambda old, new: old ^ new, "swap": lambda old, new: new,
    "umax": max, "umin": min, "smax": max, "smin": min, "max": max, "min": min,
    "wrxchg": lambda old, new: new, "storexchg": lambda old, new: new,
}  # fmt: skip


def atomic(name: str) -> tuple[Callable[[int, int], int] | None, int, str]:
    """Return what an atomic does (None: compare and swap), how many bytes it changes, and their kind: u, i or f."""
    match = re.fullmatch(r"(\w+?)(?:_(x2|[uifb](?:32|64)))?", name)
    size = 8 if match and match[2] and (match[2] == "x2" or match[2].endswith("64")) else 4
    word = match[1] if match else ""
    if word == "cmpswap":
        return None, size, "u"
    kind = match[2][0] if match and match[2] else ""
    if word not in _ATOMIC or (word in ("max", "min") and kind not in ("u", "i")):
        raise UnknownInstruction(f"unknown atomic {name}")
    return _ATOMIC[word], size, "i" if word in ("smax", "smin") else kind if kind in ("i", "f") else "u"


def change(
    store: Store,
    offset: Array,
    values: Array,
    operate: Callable[[int, int], int] | None,
    size: int,
    kind: str,
    lanes: Lanes,
) -> Array:
    """Change memory lane by lane, and return what was there before: lanes x bytes."""
    store.add(offset, size, lanes)
    before = np.empty((len(offset), size), np.uint8)
    dtype = np.dtype(f"<{kind}{size}")
    given = np.ascontiguousarray(values).view(dtype)
    for row, place_ in enumerate(offset):
        old = store.data[place_ : place_ + size].view(dtype)
        before[row] = store.data[place_ : place_ + size]
        if operate is None:
            new, expected = given[row]
            if old[0] == expected:
                old[0] = new
        elif kind == "f":
            old[0] = operate(old[0], given[row, 0])
        else:
            result = operate(int(old[0]), int(given[row, 0])) & ((1 << (8 * size)) - 1)
            old.view(f"<u{size}")[0] = result
    return before
