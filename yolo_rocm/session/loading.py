"""How the loaders of a session load: the preset's values and the trainings that are going on, as a loader policy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..ultralytics_hooks import trainers
from ..ultralytics_hooks.log import say
from .current_run import OngoingRun

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    from ..data.policy import LoaderPolicy
    from ..data.reader import Trace


def loader_policy(run: OngoingRun) -> LoaderPolicy:
    """Return what a preset says about loaders, as the loaders take it.

    Args:
        run: The run, whose trainings are asked for when a loader starts and for each of its batches.
    """
    from ..data.broken_files import naming
    from ..data.policy import LoaderPolicy
    from ..ultralytics_hooks.datasets import MODULES, UltralyticsAdapter

    loader, workers, tell = run.settings.preset.loader, run.workers, partial(say, "loader.trouble", warning=True)
    name_broken = naming(tell)

    def observe(kind: str, trace: Trace, asked: float, got: float) -> None:
        trainings = run.open_trainings
        for training in trainings:
            training.meter.observe(kind, trace, asked, got)
        if not trainings:
            name_broken(kind, trace, asked, got)

    same = {"context", "persistent", "pin_memory", "prefetch", "timeout", "reproducible", "skip_broken"}
    return LoaderPolicy(
        **loader.model_dump(include=same),
        workers=loader.workers if workers is None else workers,
        trains=lambda: bool(run.open_trainings),
        device=lambda: _prefetch_device(loader.device_prefetch, run),
        adapter=UltralyticsAdapter(loader.mosaic_mb),
        modules=MODULES,
        insist=workers is not None or run.settings.is_explicit("loader.workers"),
        tell=tell,
        observe=observe,
    )


def what_to_try(workers: int, batch: int, cached: bool) -> str:
    """Return what a training could try that waits for its data, without what it does already.

    Args:
        workers: Its loading workers.
        batch: Images of a batch of one rank.
        cached: Whether images are kept in memory or on disk.
    """
    from ..data.transport import HAS_MEMFD
    from ..data.worker_count import recommended_workers
    from ..telemetry.bottleneck import CACHE, FASTER_READING

    # On Windows none is recommended unasked; a training that waits for data may ask.
    recommended = recommended_workers(wanted=max(4, 2 * workers), batch_size=max(batch, 1), memfd=HAS_MEMFD)
    more = min(limit.workers for limit in recommended.limits)
    tips = [f"workers={more}"] if more > workers else []
    tips += [] if cached else [CACHE]
    return ", ".join(tips) or FASTER_READING


def _prefetch_device(wanted: bool | str, run: OngoingRun) -> Any:
    """Return the GPU that training batches are copied to ahead of time, or None."""
    device = next((training.device() for training in run.open_trainings), None)
    if device is None or device.type != "cuda":
        return None
    import torch

    from ..data.prefetch import prefetches_by_default

    memory = torch.cuda.get_device_properties(device).total_memory / 2**30
    ahead = prefetches_by_default(memory) if wanted == "auto" else wanted
    return device if ahead else None


def start_workers_early(policy: LoaderPolicy, trainer: Any) -> None:
    """Start the fork server of a trainer's loading workers, if it is going to have any, while the model is built."""
    from ..data.worker_start import start_server

    if policy.context == "forkserver" and trainers.asked_workers(trainer, policy.insist, policy.workers):
        start_server(policy.modules)
