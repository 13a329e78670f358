"""Facts about a trainer, and small changes to one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .probes import EARLY_CALLBACKS, missing


def callbacks_fire_in_train() -> bool:
    """Return whether trainers announce themselves when `train()` has begun, not when they are made.

    Whether one has its data by then says nothing: releases between the two ways read it first.
    """
    return bool(missing(EARLY_CALLBACKS))


def set_trainer_argument(trainer: Any, name: str, value: Any) -> None:
    """Change an argument of a trainer that has been constructed but has loaded nothing yet."""
    setattr(trainer.args, name, value)
    if name == "batch":
        trainer.batch_size = value


@contextmanager
def in_place_of(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of an object while the context is open; leave it alone if somebody has replaced it since."""
    own = vars(owner)
    before, had = own.get(name), name in own
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own.get(name) is value:
            if had:
                setattr(owner, name, before)
            else:
                delattr(owner, name)


def asked_workers(trainer: Any, insist: bool, wanted: int | None) -> int:
    """Return how many workers the training loader of a trainer is going to ask for; on a CPU it asks for none."""
    if insist:
        return wanted or 0
    if trainer.device.type in ("cpu", "mps"):
        return 0
    return int(trainer.args.workers) if wanted is None else wanted


def nan_recoveries(trainer: Any) -> int:
    """Return how often the running epoch was begun again because it gave NaN."""
    return int(getattr(trainer, "nan_recovery_attempts", 0) or 0)


def loading_facts(trainer: Any) -> tuple[str, int, int, bool]:
    """Return what a trainer computes on, its loading workers, images of a rank's batch, and whether images are kept."""
    workers, batch = (int(getattr(trainer.args, name, 0) or 0) for name in ("workers", "batch"))
    compute, cached = "CPU" if trainer.device.type == "cpu" else "GPU", bool(getattr(trainer.args, "cache", False))
    return compute, workers, batch // max(1, int(getattr(trainer, "world_size", 1) or 1)), cached


def class_names(trainer: Any) -> list[str]:
    """Return the names of the classes of the data set; empty where it names none."""
    data = getattr(trainer, "data", None)
    names = data.get("names") if isinstance(data, dict) else None
    return [str(name) for name in (names.values() if isinstance(names, dict) else names or ())]


def scores(metrics: Any) -> dict[str, float]:
    """Return by name what a trained model is judged by: mAP or accuracy; nothing where several processes trained."""
    found = getattr(metrics, "results_dict", None) or {}
    return {
        key.removeprefix("metrics/"): float(value) for key, value in found.items() if "mAP" in key or "accuracy" in key
    }
