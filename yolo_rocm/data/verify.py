"""The proof that batches are reproducible: build a loader again and compare, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from ..errors import LoaderError
from .seeding import generators_kept

Leaf = tuple[str, bytes]
"""One thing in a batch: what it is, and the bytes of its numbers where it is an array."""


def fingerprint(batch: Any) -> str:
    """Return a hash of everything in a batch: structure, types, shapes and bytes; the order of dictionaries aside.

    It is the same in every process and on every run for the same content. Objects count with their attributes.
    """
    return _hash(dict(_leaves(batch)))


def _hash(leaves: Mapping[str, Leaf]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path, (description, content) in leaves.items():
        for piece in (path.encode(), description.encode(), content):
            # Each piece with its length, so that no two batches are told apart only by where a piece ends.
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
    return digest.hexdigest()


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield everything in a batch by its path."""
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        dense = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        yield path, (f"{kind} {value.layout} {value.dtype} {tuple(value.shape)}", dense.numpy().tobytes())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield path, (f"{kind} {value.dtype} {value.shape}", value.tobytes())
    elif (inside := _inside(value)) is not None:
        yield path, (kind, b"")
        for key, part in inside:
            yield from _leaves(part, f"{path}[{key}]" if path else key.strip("'"))
    else:
        items = sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else repr(value)
        yield path, (f"{kind} {items}", b"")


def _inside(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a container or object by key; None for what has none."""
    if isinstance(value, (str, bytes, set, frozenset, np.generic, type, os.PathLike)):
        return None
    if isinstance(value, Mapping):
        return sorted(((repr(key), part) for key, part in value.items()), key=lambda item: item[0])
    if isinstance(value, (list, tuple, np.ndarray)):
        return [(str(i), part) for i, part in enumerate(value)]
    return sorted(vars(value).items()) if hasattr(value, "__dict__") else None


@dataclass(frozen=True)
class Difference:
    """Where a run differs from the first one, and how."""

    run: int
    batch: int
    key: str
    how: str

    def __str__(self) -> str:
        return f"run {self.run}, batch {self.batch}, {self.key}: {self.how}"


@dataclass(frozen=True)
class Verification:
    """The result of `verify_reproducibility`.

    Attributes:
        same: Every run gave the same batches.
        runs: Runs that were made.
        batches: Batches of the first run.
        differences: Every difference from the first run.
        fingerprints: One per batch of the first run, to compare with another process, machine or worker count.
    """

    same: bool
    runs: int
    batches: int
    differences: list[Difference] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.same:
            return f"reproducible: {self.runs} runs gave the same {self.batches} batches, byte for byte"
        count, shown = len(self.differences), "; ".join(map(str, self.differences[:5]))
        return f"not reproducible, {count} differences from run 1: {shown}{'; ...' if count > 5 else ''}"


class Draws(Dataset[dict[str, Any]]):
    """Samples drawn from every generator that augmentations use."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Any]:
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"index": index, "drawn": torch.tensor(drawn, dtype=torch.float64)}


def verify_reproducibility(
    make_loader: Callable[[], Iterable[Any]] | None = None,
    batches: int = 4,
    runs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Build a loader several times and compare its first batches, key by key.

    Args:
        make_loader: Builds the loader as a run would, seeds included: what it does not seed goes on from wherever the
            last run has left the generators, which is what shows a missing seed. By default a seeded loader of this
            package with two workers, over samples drawn from every generator that augmentations use.
        batches: Batches to read in each run.
        runs: Runs to compare, at least 2.
        progress: Called with (runs made, all runs) after each of them.

    Raises:
        LoaderError: There is nothing to compare.
    """
    if runs < 2 or batches < 1:
        raise LoaderError(f"runs={runs}, batches={batches}: at least 2 runs of 1 batch are needed to compare anything.")
    if make_loader is None:
        from .create import create_dataloader

        make_loader = partial(create_dataloader, Draws(), 4, shuffle=True, seed=0, num_workers=2)
    differences: list[Difference] = []
    first: list[dict[str, Leaf]] = []
    with generators_kept():
        for run in range(1, runs + 1):
            read = _read(make_loader(), batches)
            if progress is not None:
                progress(run, runs)
            first = first or read
            for i, (one, other) in enumerate(zip(first, read, strict=False)):
                differences += [Difference(run, i + 1, *how) for how in _differences(one, other)]
            fewer, more = sorted((len(first), len(read)))
            if fewer < more:
                differences.append(Difference(run, fewer + 1, "batch", f"only {fewer} of {more} batches came"))
    if not first:
        raise LoaderError("The loader gave no batch, so there is nothing to compare: is the data set empty?")
    return Verification(not differences, runs, len(first), differences, [_hash(leaves) for leaves in first])


def _read(loader: Any, batches: int) -> list[dict[str, Leaf]]:
    iterator: Any = None
    try:
        iterator = iter(loader)
        return [dict(_leaves(batch)) for batch in islice(iterator, batches)]
    finally:
        # torch's own loader has no `close`, and its workers would wait for the garbage collector.
        getattr(loader, "close", getattr(iterator, "_shutdown_workers", int))()


def _differences(a: Mapping[str, Leaf], b: Mapping[str, Leaf]) -> Iterator[tuple[str, str]]:
    """Yield path and kind of every difference."""
    for path in dict.fromkeys([*a, *b]):
        if path not in a or path not in b:
            yield path, f"only in {'run 1' if path in a else 'this run'}"
        elif a[path][0] != b[path][0]:
            yield path or "batch", f"{a[path][0][:60]} and {b[path][0][:60]}"
        elif a[path] != b[path]:
            yield path or "batch", "other values"
