"""The proof that batches are reproducible: build a loader again and compare, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from ..errors import LoaderError


def fingerprint(batch: Any) -> str:
    """Return a hash of everything in a batch: structure, types, shapes and bytes; the order of dictionaries aside.

    It is the same in every process and on every run for the same content. Objects count with their attributes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for piece in _pieces(batch, ()):
        # Each piece with its length, so that no two batches are told apart only by where a piece ends.
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()


def compare(a: list[str], b: list[str]) -> list[int]:
    """Return the positions at which two lists of fingerprints differ; what only one of them has differs."""
    longer = max(len(a), len(b))
    return [i for i in range(longer) if i >= len(a) or i >= len(b) or a[i] != b[i]]


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


def _own_loader() -> Iterable[Any]:
    from .create import create_dataloader

    return create_dataloader(Draws(), 4, shuffle=True, seed=0, num_workers=2)


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
    make_loader = make_loader or _own_loader
    differences: list[Difference] = []
    with _generators_kept():
        first = _read(make_loader(), batches)
        prints = [fingerprint(batch) for batch in first]
        if progress is not None:
            progress(1, runs)
        for run in range(2, runs + 1):
            again = _read(make_loader(), batches)
            if progress is not None:
                progress(run, runs)
            for i in compare(prints, [fingerprint(batch) for batch in again]):
                if i >= len(first) or i >= len(again):
                    how = f"only {min(len(first), len(again))} of {max(len(first), len(again))} batches came"
                    differences.append(Difference(run, i + 1, "batch", how))
                    continue
                differences += [Difference(run, i + 1, key, how) for key, how in _differences(first[i], again[i], "")]
    if not first:
        raise LoaderError("The loader gave no batch, so there is nothing to compare: is the data set empty?")
    return Verification(not differences, runs, len(first), differences, prints)


def _read(loader: Any, batches: int) -> list[Any]:
    iterator: Any = None
    try:
        iterator = iter(loader)
        # Copies: a loader may hand out the same buffers again.
        return [_copy(batch) for batch in islice(iterator, batches)]
    finally:
        close = getattr(loader, "close", None)
        if callable(close):
            close()
        elif hasattr(iterator, "_shutdown_workers"):  # torch's own, which would wait for the garbage collector
            iterator._shutdown_workers()


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: _copy(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(part) for part in value)
    return value


@contextmanager
def _generators_kept() -> Iterator[None]:
    before = (random.getstate(), np.random.get_state(), torch.get_rng_state())
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def _pieces(value: Any, above: tuple[int, ...]) -> Iterator[Any]:
    """Yield what a value consists of as bytes or flat arrays; `above` holds the objects it lies in, against cycles."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if id(value) in above:
        yield b"cycle"
        return
    above = (*above, id(value))
    if isinstance(value, torch.Tensor):
        yield f"{value.layout} {value.dtype} {tuple(value.shape)}".encode()
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        yield dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        yield f"{value.dtype} {value.shape}".encode()
        yield from _pieces(value.tolist(), above)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    elif isinstance(value, (bytes, bytearray)):
        yield bytes(value)
    elif isinstance(value, (str, int, float, complex, type(None), np.generic, type, os.PathLike)):
        yield repr(value).encode()
    else:
        for key, part in _parts(value):
            yield key.encode()
            yield from _pieces(part, above)
        yield b""  # the end: what follows is outside


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container or object by key; sets and dictionaries in an order of their content."""
    if isinstance(value, Mapping):
        yield from sorted(((repr(key), part) for key, part in value.items()), key=lambda item: item[0])
    elif isinstance(value, (set, frozenset)):
        yield from (("element", part) for part in sorted(value, key=fingerprint))
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), part) for i, part in enumerate(value))
    elif is_dataclass(value):
        yield from ((part.name, getattr(value, part.name)) for part in fields(value))
    else:
        yield from sorted(getattr(value, "__dict__", {}).items())


def _differences(a: Any, b: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and kind of every difference, as deep inside as it can be told."""
    if fingerprint(a) == fingerprint(b):
        return
    key = path or "batch"
    arrays = (torch.Tensor, np.ndarray)
    if type(a) is not type(b):
        yield key, f"{type(a).__name__} and {type(b).__name__}"
    elif isinstance(a, arrays):
        yield key, _array_difference(a, b)
    elif isinstance(a, (str, bytes, bytearray, int, float, complex, np.generic, type, os.PathLike)):
        yield key, f"{_short(a)} and {_short(b)}"
    else:
        mine, theirs = dict(_parts(a)), dict(_parts(b))
        for name in sorted(mine.keys() | theirs.keys()):
            inner = f"{path}[{name}]" if path else name.strip("'")
            if name not in mine or name not in theirs:
                yield inner, f"only in {'this run' if name in theirs else 'run 1'}"
            else:
                yield from _differences(mine[name], theirs[name], inner)
        if isinstance(a, (set, frozenset)):
            yield key, "other elements"


def _array_difference(a: Any, b: Any) -> str:
    if a.dtype != b.dtype or tuple(a.shape) != tuple(b.shape):
        return f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
    try:
        one, other = (np.asarray(x.double() if isinstance(x, torch.Tensor) else x, float) for x in (a, b))
    except (TypeError, ValueError, RuntimeError):  # text, objects, complex numbers, sparse tensors
        return "other elements"
    unequal = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    if not unequal.any():
        return "equal values in other bytes (the sign of a zero, or of a NaN)"
    apart = np.abs(one - other)[unequal]
    return f"{int(unequal.sum())} of {one.size} values differ, by up to {np.max(apart):.4g}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
