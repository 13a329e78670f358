"""The proof that batches are reproducible: build a loader again and compare, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..errors import LoaderError
from .seeding import random_states, set_random_states


class _Part(NamedTuple):
    """One thing in a batch: its type, it in words, and a copy of its numbers where it is an array."""

    kind: str
    words: str
    data: Any = None

    def __bytes__(self) -> bytes:
        if isinstance(self.data, torch.Tensor):
            return self.data.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return b"" if self.data is None else bytes(np.ascontiguousarray(self.data).tobytes())


def fingerprint(batch: Any) -> str:
    """Return a hash of everything in a batch: structure, types, shapes and bytes; the order of dictionaries aside.

    It is the same in every process and on every run for the same content. Objects count with their attributes.
    """
    return _hash(dict(_flat(batch)))


def _hash(parts: Mapping[str, _Part]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path, part in parts.items():
        for piece in (path.encode(), part.kind.encode(), part.words.encode(), bytes(part)):
            # Each piece with its length, so that no two batches are told apart only by where a piece ends.
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
    return digest.hexdigest()


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, _Part]]:
    """Yield everything in a batch by its path; arrays as copies, since a loader may hand out the same buffers again."""
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
        words = f"{value.dtype} {tuple(value.shape)}"
        yield (
            path,
            _Part(kind if dense.layout == value.layout else f"{value.layout} {kind}", words, dense.cpu().clone()),
        )
        return
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield path, _Part(kind, f"{value.dtype} {value.shape}", value.copy())
        return
    inside = _inside(value)
    if inside is None:
        words = str(sorted(map(repr, value))) if isinstance(value, (set, frozenset)) else repr(value)
        yield path, _Part(kind, words)
        return
    yield path, _Part(kind, "")
    for key, part in inside:
        yield from _flat(part, f"{path}[{key}]" if path else key.strip("'"))


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
    """What `verify_reproducibility` found.

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
        shown = "; ".join(str(difference) for difference in self.differences[:5])
        more = f"; and {len(self.differences) - 5} more" if len(self.differences) > 5 else ""
        return f"not reproducible, differences from run 1: {shown}{more}"


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
    before = random_states()
    try:
        first: list[dict[str, _Part]] = []
        for run in range(1, runs + 1):
            found = _read(make_loader(), batches)
            if progress is not None:
                progress(run, runs)
            first = first or found
            both = min(len(first), len(found))
            how = f"only {both} of {max(len(first), len(found))} batches came"
            for i in range(both):
                differences += [Difference(run, i + 1, *one) for one in _differences(first[i], found[i])]
            if len(first) != len(found):
                differences.append(Difference(run, both + 1, "batch", how))
    finally:
        set_random_states(before)
    if not first:
        raise LoaderError("The loader gave no batch, so there is nothing to compare: is the data set empty?")
    return Verification(not differences, runs, len(first), differences, [_hash(parts) for parts in first])


def _read(loader: Any, batches: int) -> list[dict[str, _Part]]:
    iterator: Any = None
    try:
        iterator = iter(loader)
        return [dict(_flat(batch)) for batch in islice(iterator, batches)]
    finally:
        close = getattr(loader, "close", None)
        if callable(close):
            close()
        elif hasattr(iterator, "_shutdown_workers"):  # torch's own, which would wait for the garbage collector
            iterator._shutdown_workers()


def _differences(a: Mapping[str, _Part], b: Mapping[str, _Part]) -> Iterator[tuple[str, str]]:
    """Yield path and kind of every difference."""
    for path in dict.fromkeys([*a, *b]):
        if path not in a or path not in b:
            yield path, f"only in {'run 1' if path in a else 'this run'}"
        elif how := _difference(a[path], b[path]):
            yield path or "batch", how


def _difference(a: _Part, b: _Part) -> str:
    for mine, theirs in ((a.kind, b.kind), (a.words, b.words)):
        if mine != theirs:
            return f"{mine[:60]} and {theirs[:60]}"
    if bytes(a) == bytes(b):
        return ""
    try:
        one, other = (np.asarray(x.double() if isinstance(x, torch.Tensor) else x, float) for x in (a.data, b.data))
    except (TypeError, ValueError, RuntimeError):  # text, complex numbers
        return "other elements"
    unequal = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    if not unequal.any():
        return "equal values in other bytes (the sign of a zero, or of a NaN)"
    apart = np.abs(one - other)[unequal]
    return f"{int(unequal.sum())} of {one.size} values differ, by up to {np.max(apart):.4g}"
