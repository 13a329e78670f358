"""Loaders that follow a policy: a DataLoader of torch, or a class to go before one derived from it."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from ..errors import LoaderError
from .batches import Batches
from .pinning import decide_pinning
from .policy import LoaderPolicy, shuffles
from .reader import BatchReader

_open: weakref.WeakSet[Any] = weakref.WeakSet()


class PolicyLoader(DataLoader[Any]):
    """A DataLoader whose arguments follow a policy, and whose batches come from `Batches`.

    It may go before another class derived from DataLoader. Subclasses set `endless` where one iterator gives the
    batches of all epochs.
    """

    policy: LoaderPolicy
    endless = False
    iterator: Any = None
    _complete = False  # the constructor of the class below may ask for an iterator
    _seed = 0
    _next_seed: int | None = None
    _start: torch.Tensor | None = None  # state of the generator when strict workers started
    _given = 0  # batches since then

    def __init__(self, dataset: Any, *args: Any, policy: LoaderPolicy, **kwargs: Any) -> None:
        self.policy, self.built_by = policy, threading.get_ident()
        super().__init__(*args, **policy.apply({"dataset": dataset, **kwargs}))
        self.iterator = None
        batch_bytes = policy.adapter.image_bytes(dataset) * (self.batch_size or 1)
        self.pin_memory, why = decide_pinning(policy.pin_memory, bool(kwargs.get("pin_memory")), batch_bytes)
        if why:
            policy.tell(why)
        self._complete = True
        _open.add(self)

    def _indices(self) -> Iterator[Any]:
        """Return the batches to read, as lists of indices: of one epoch, or of all of them where `endless`."""
        return iter(self.batch_sampler)  # type: ignore[arg-type]

    def _stacks_images(self) -> bool:
        """Return whether the collation stacks the images of samples and does nothing else with them."""
        return self.collate_fn is default_collate

    def _get_iterator(self) -> Any:
        policy = self.policy
        kind = "train" if shuffles(self.sampler) else "val"
        skip_broken = policy.skip_broken and (kind == "train" or policy.trains())
        self._seed = self._draw_seed() if self._next_seed is None else self._next_seed
        self._next_seed = None
        return Batches(
            BatchReader(self.dataset, self.collate_fn, policy.adapter, skip_broken, self._stacks_images()),
            policy,
            workers=self.num_workers,
            prefetch=self.prefetch_factor or 2,
            base_seed=self._seed,
            init=self.worker_init_fn,
            pinned=self.pin_memory,
            device=policy.device() if kind == "train" else None,
            kind=kind,
        )

    def _draw_seed(self) -> int:
        """Draw the seed of the workers before the sampler draws its own, and from the same generator, as torch does."""
        start, self._start = self._start, None
        if start is not None:  # as if no worker had drawn ahead: how much that is depends on their number
            self.generator.set_state(start)
            deque(itertools.islice(self._indices(), self._given), maxlen=0)
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch declares its own class
        """Yield one epoch of batches; workers are kept for the next unless the policy says otherwise."""
        fresh = self.iterator is None
        if fresh:
            self.iterator = self._get_iterator()
            strict = self.endless and self.policy.reproducible == "strict" and not has_epochs(self.sampler)
            self._start = self.generator.get_state() if strict and self.generator is not None else None
            self._given = 0
        iterator = self.iterator
        if fresh or not self.endless:
            iterator.begin(self._indices())
        try:
            for _ in range(len(self)):
                self._given += 1
                yield next(iterator)  # without a name, which would keep the batch while it is trained
        except StopIteration:
            if self.iterator is not iterator:
                raise LoaderError("the loader was closed while its batches were being read.") from None
            return  # a batch sampler that gives fewer batches than it says
        finally:
            if not self.policy.persistent and self.iterator is iterator:
                self.close()

    def close(self) -> None:
        """End the workers."""
        if self.iterator is not None:
            self.iterator.close()
            self.iterator = None

    def reset(self) -> None:
        """End the workers; new ones see what has changed in the data set."""
        self.close()

    def __del__(self) -> None:
        """End the workers."""
        try:
            self.close()
        except Exception:  # the interpreter is going down
            return


def close_following(policy: LoaderPolicy) -> None:
    """End the workers of this thread's loaders that follow one policy; those of anybody else go on.

    The newest policy decides for all threads, so a run of another thread may have built loaders by this one: they end
    with that run.
    """
    with ExitStack() as ends:  # all of them, also if Ctrl-C ends one of the calls
        for loader in list(_open):
            if loader.policy is policy and loader.built_by == threading.get_ident():
                ends.callback(loader.close)


def has_epochs(sampler: Any) -> bool:
    """Return whether a sampler draws another order for each epoch it is told, as distributed ones do."""
    return hasattr(sampler, "set_epoch")


def passes(batches: Iterable[Any], sampler: Any) -> Iterator[Any]:
    """Yield the batches of one epoch after another, each in the order that belongs to its epoch.

    Workers read ahead, so that the next epoch's indices are drawn before the training says `set_epoch` for it. torch's
    own loader then gives an epoch the order of the one before. Here the sampler is told in time, and every rank of a
    distributed training draws from the same permutation however far ahead it reads.

    Args:
        batches: The batch sampler of one epoch.
        sampler: The sampler below it, with `epoch` and `set_epoch`.
    """
    for epoch in itertools.count(int(getattr(sampler, "epoch", 0))):
        sampler.set_epoch(epoch)
        yield from batches
