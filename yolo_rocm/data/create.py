"""Loaders for any PyTorch project: one made here, or every DataLoader of the process under the same policy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..errors import ConfigError
from ..utils import scoped_patch
from ..utils.log_lines import log
from .broken_files import naming
from .loader import PolicyLoader
from .main_guard import DEFAULT_METHOD
from .pinning import decide_pinning
from .policy import LoaderPolicy
from .reader import PlainAdapter
from .seeding import seed_worker
from .transport import HAS_MEMFD
from .worker_count import recommended_workers
from .worker_start import worker_context

_ALLOWED: Final[dict[str, tuple[Any, ...]]] = {
    "context": ("spawn", "forkserver", "fork"),
    "reproducible": ("worker", "strict"),
    "pin_memory": (True, False, "auto"),
}


class _SharingAdapter(PlainAdapter):
    """Shares the lists that a data set's author names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def lists(self, dataset: Any) -> Mapping[str, list[Any]]:
        """Return the named lists."""
        return {name: getattr(dataset, name) for name in self._names}


def create_dataloader(
    dataset: Dataset[Any],
    batch_size: int = 1,
    *,
    shuffle: bool = False,
    seed: int | None = None,
    num_workers: int | None = None,
    context: str = DEFAULT_METHOD,
    pin_memory: bool | str = "auto",
    prefetch: int | None = None,
    timeout: float = 120,
    persistent: bool = True,
    reproducible: str = "worker",
    skip_broken: bool = False,
    share: Sequence[str] = (),
    tell: Callable[[str], None] | None = None,
    **arguments: Any,
) -> DataLoader[Any]:
    """Make a loader that suits this platform, for any data set.

    Args:
        dataset: A map-style data set gets the watched workers; an iterable one torch's own, started the same way.
        batch_size: Samples in one batch.
        shuffle: Draw a new order for every epoch.
        seed: Makes order and workers reproducible; without it both differ from run to run.
        num_workers: None takes what `recommended_workers` says.
        context: `spawn`, `forkserver` (the default on Linux) or `fork`.
        pin_memory: True, False, or `auto`: where there is a GPU, it works and it fits.
        prefetch: Batches each worker holds ready; 2 by default.
        timeout: Seconds to wait for a batch before an error; 0 waits without limit.
        persistent: Keep workers across epochs.
        reproducible: `strict` gives the same batches for any number of workers.
        skip_broken: Replace samples whose file cannot be read (OSError, cv2.error) by others.
        share: Names of lists of the data set that workers only read: they are in memory once for all of them.
        tell: Takes lines for the user; the logger `yolo_rocm` by default.
        **arguments: Any other argument of DataLoader.

    Raises:
        ConfigError: An argument is wrong.
        LoaderError: Later, when iterating: workers cannot start, are stuck, or die again and again.
    """
    _check(context=context, reproducible=reproducible, pin_memory=pin_memory)
    is_stream = isinstance(dataset, IterableDataset)
    if batch_size is None and arguments.get("batch_sampler") is None and not is_stream:
        raise ConfigError("batch_size=None: samples without a batch are torch's own DataLoader's. Give a number.")
    if num_workers is None:
        num_workers = int(recommended_workers(batch_size=batch_size or 1, buffer_images=0, memfd=HAS_MEMFD))
    tell = tell or partial(log, "loader.trouble")
    policy = LoaderPolicy(
        context=context,
        workers=num_workers,
        persistent=persistent,
        pin_memory=pin_memory,
        prefetch=prefetch,
        timeout=timeout,
        reproducible=reproducible,
        skip_broken=skip_broken,
        adapter=_SharingAdapter(share),
        insist=True,
        tell=tell,
        observe=naming(tell),
    )
    generator = arguments.pop("generator", None)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        arguments.setdefault("worker_init_fn", seed_worker)
    arguments = {"generator": generator, "pin_memory": True, "num_workers": num_workers, **arguments}
    if arguments.get("batch_sampler") is None:
        arguments["batch_size"] = batch_size
        if arguments.get("sampler") is None and not is_stream:
            arguments["shuffle"] = shuffle
    if is_stream:
        return DataLoader(dataset, **torch_arguments(policy, arguments))
    return PolicyLoader(dataset, policy=policy, **arguments)


def _check(**choices: Any) -> None:
    """Raise where an argument has no value that it may have."""
    for name, value in choices.items():
        if value not in _ALLOWED[name]:
            raise ConfigError(f"{name}={value!r} is not known; allowed: {', '.join(map(str, _ALLOWED[name]))}.")


def torch_arguments(policy: LoaderPolicy, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of torch's own DataLoader; what the caller has given stays."""
    result = dict(given)
    if policy.pin_memory != "auto" or result.get("pin_memory"):
        result["pin_memory"], _ = decide_pinning(policy.pin_memory, bool(result.get("pin_memory")), 0)
    if not result.get("num_workers"):
        return result
    result.setdefault("persistent_workers", policy.persistent)
    if result.get("multiprocessing_context") is None:
        result["multiprocessing_context"] = worker_context(policy.context)
    if policy.prefetch is not None:
        result.setdefault("prefetch_factor", policy.prefetch)
    result.setdefault("timeout", policy.timeout)
    return result


class PatchedDataLoaders(ExitStack):
    """What `patch_dataloader` did; `undo()`, or leaving a `with` block, puts DataLoader back."""

    def __init__(self, policy: LoaderPolicy) -> None:
        super().__init__()
        initialiser = scoped_patch.attribute("torch.utils.data:DataLoader", "__init__")
        self.enter_context(initialiser.on(lambda original: _initialiser(original, policy), "policy"))
        _patches.add(self)
        self.callback(_patches.discard, self)

    def undo(self) -> None:
        """Put DataLoader back; safe to call twice."""
        self.close()


_patches: set[PatchedDataLoaders] = set()  # a patch stays where nobody keeps its handle


def patch_dataloader(
    context: str = DEFAULT_METHOD, *, persistent: bool = True, timeout: float = 120, pin_memory: bool | str = "auto"
) -> PatchedDataLoaders:
    """Let every DataLoader made from now on follow the policy, where its caller has not set the argument.

    Args:
        context: Start method of loaders with workers.
        persistent: Keep workers across epochs.
        timeout: Seconds to wait for a batch; 0 waits without limit.
        pin_memory: `auto` keeps the caller's wish only where pinning works.

    Returns:
        A handle with `undo()`, usable in a `with` statement.
    """
    _check(context=context, pin_memory=pin_memory)
    return PatchedDataLoaders(
        LoaderPolicy(context=context, persistent=persistent, timeout=timeout, pin_memory=pin_memory)
    )


def _initialiser(original: Callable[..., None], policy: LoaderPolicy) -> Callable[..., None]:
    @functools.wraps(original)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, PolicyLoader):
            names = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn",
                     "pin_memory", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context")  # fmt: skip
            # By name from here on, so that what the caller gave by position counts as given.
            kwargs = torch_arguments(policy, {**dict(zip(names, args, strict=False)), **kwargs})
            args = ()
        original(self, *args, **kwargs)

    return initialise
