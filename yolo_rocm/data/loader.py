"""Loaders that follow a policy: for any data set, and as the base of those that Ultralytics builds."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import SequentialSampler

from .batches import Batches
from .guards import check_before_start
from .pinning import decide_pinning
from .policy import LoaderPolicy
from .reader import BatchReader
from .transport import HAS_MEMFD

_open: weakref.WeakSet[Any] = weakref.WeakSet()


class PolicyLoaderMixin:
    """Goes before a DataLoader class: the arguments follow a policy, and the batches come from `Batches`.

    Subclasses set `endless` where one iterator serves all epochs, as Ultralytics' loader does.
    """

    policy: LoaderPolicy
    endless = False
    iterator: Any = None
    _complete = False
    _eager = False
    _seed: int | None = None

    def __init__(self, dataset: Any, *args: Any, policy: LoaderPolicy, **kwargs: Any) -> None:
        self.policy = policy
        asked = {"dataset": dataset, **kwargs}
        super().__init__(*args, **policy.apply(asked))
        self.iterator = None
        self._pinned, why = decide_pinning(policy.pin_memory, bool(kwargs.get("pin_memory")), self._batch_bytes())
        if why:
            policy.tell(why)
        object.__setattr__(self, "pin_memory", self._pinned)
        self._complete = True
        _open.add(self)

    def _batch_bytes(self) -> int:
        loader: Any = self
        return self.policy.adapter.image_bytes(loader.dataset) * (loader.batch_size or 1)

    def _get_iterator(self) -> Any:
        if not self._complete:
            # Ultralytics before 8.4.158 starts workers in the constructor, and after every reset. Ours start when they
            # are needed, but seeds are drawn when Ultralytics draws them: the samplers go on from the same state.
            self._eager = True
            self._seed = self._draw_seed()
            return None
        loader: Any = self
        policy = self.policy
        kind = "val" if isinstance(loader.sampler, SequentialSampler) else "train"
        reader = BatchReader(loader.dataset, loader.collate_fn, policy.adapter, policy.skip_broken)
        workers, prefetch = loader.num_workers, loader.prefetch_factor or 2
        check_before_start(
            {"dataset": loader.dataset, "collate_fn": loader.collate_fn, "worker_init_fn": loader.worker_init_fn},
            method=policy.context,
            workers=workers,
            prefetch=prefetch,
            batch_bytes=0 if HAS_MEMFD else self._batch_bytes(),  # /dev/shm does not limit a memfd
            always_main=False,
        )
        base_seed = self._draw_seed() if self._seed is None else self._seed
        self._seed = None
        return Batches(
            reader,
            policy,
            workers=workers,
            prefetch=prefetch,
            base_seed=base_seed,
            init=loader.worker_init_fn,
            pinned=self._pinned,
            device=policy.device() if kind == "train" else None,
            kind=kind,
        )

    def _draw_seed(self) -> int:
        """Draw the seed of the workers before the sampler draws its own, and from the same generator, as torch does."""
        loader: Any = self
        return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())

    def __iter__(self) -> Iterator[Any]:
        """Yield one epoch of batches; workers are kept for the next unless the policy says otherwise."""
        loader: Any = self
        fresh = self.iterator is None
        if fresh:
            self.iterator = self._get_iterator()
        iterator = self.iterator
        if fresh or not self.endless:
            iterator.begin(iter(loader.batch_sampler))
        try:
            for _ in range(len(loader)):
                yield next(iterator)
        except StopIteration:
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
        if self._eager:
            self._seed = self._draw_seed()

    def __del__(self) -> None:
        """End the workers."""
        try:
            self.close()
        except Exception:  # the interpreter is going down
            return


def close_all() -> None:
    """End the workers of every loader that is still open."""
    for loader in list(_open):
        loader.close()
