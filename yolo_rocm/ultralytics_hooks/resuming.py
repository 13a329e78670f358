"""What resuming needs to know of a trainer and of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..utils.atomic import write_file
from .models import load_model, model_class


def resumed_from(trainer: Any) -> Path | None:
    """Return the checkpoint that a trainer resumes from, or None."""
    if not getattr(trainer, "resume", False) or not trainer.start_epoch:
        return None
    return Path(str(trainer.args.model))


def finished_epochs(trainer: Any) -> int:
    """Return how many epochs are complete when a trainer saves a checkpoint."""
    return int(trainer.epoch) + 1


def is_last_epoch(trainer: Any) -> bool:
    """Return whether the epoch that a trainer saves is its last: of all, or because it stops early."""
    return bool(getattr(trainer, "stop", False)) or finished_epochs(trainer) >= int(trainer.epochs)


def code_of_script(trainer: Any) -> str:
    """Return in words what a trainer has of its script and no command can name; nothing where it has nothing."""
    ours = ("ultralytics", __name__.partition(".")[0])
    found = [] if type(trainer).__module__.partition(".")[0] in ours else ["the trainer class"]
    functions = [function for functions in trainer.callbacks.values() for function in functions]
    if any(str(getattr(each, "__module__", "")).partition(".")[0] not in ours for each in functions):
        found.append("the callbacks")
    return " and ".join(found)


def epochs_in(yolo: Any) -> int | None:
    """Return how many epochs the checkpoint of an unfinished training holds; None where there is nothing to resume."""
    checkpoint = getattr(yolo, "ckpt", None) or {}
    epoch = checkpoint.get("epoch", -1)
    return epoch + 1 if epoch >= 0 and checkpoint.get("optimizer") is not None else None


def run_folder(task: str, arguments: Mapping[str, Any]) -> Path:
    """Return the folder of a run by the rules of Ultralytics, whether or not it exists; nothing is made."""
    from ultralytics.cfg import get_cfg, get_save_dir

    named = {name: arguments[name] for name in ("project", "name", "save_dir") if arguments.get(name)}
    return Path(get_save_dir(get_cfg(overrides={**named, "task": task, "mode": "train", "exist_ok": True})))


def check_resumable(yolo: Any) -> None:
    """Refuse to resume what is no checkpoint of an unfinished training: Ultralytics would begin one on its own data.

    Raises:
        ConfigError: It is something else, or its training is complete.
    """
    if epochs_in(yolo) is not None:
        return
    checkpoint = getattr(yolo, "ckpt", None) or {}
    name = getattr(yolo, "ckpt_path", None) or yolo.model_name
    why = "its training is complete" if checkpoint else "it is no checkpoint"
    raise ConfigError(
        f"resume=true: {name} cannot be resumed, {why}. Give the last.pt of a training that was stopped as model=, or "
        "leave out resume and give data= to train further from it."
    )


def unfinished(last: str | Path, model: Any = None) -> Any:
    """Return a YOLO object to resume the training of a checkpoint with.

    Args:
        last: The checkpoint.
        model: A YOLO object becomes what the checkpoint holds, and keeps its callbacks: Ultralytics goes on with the
            newest run of all where the file is not there, and its older releases begin a training. Anything else is
            not looked at.

    Raises:
        ConfigError: It cannot be resumed.
    """
    yolo = load_model(last)
    check_resumable(yolo)
    if not isinstance(model, model_class()):
        return yolo
    vars(model).pop("model", None)  # the path of an exported one, which would hide the network
    vars(model).update({name: value for name, value in vars(yolo).items() if name != "callbacks"})
    if not isinstance(model, type(yolo)):  # Ultralytics does so too, where a checkpoint is of another class
        model.__class__ = type(yolo)
    return model


def drop_unfinished_results(trainer: Any) -> None:
    """Take rows out of `results.csv` that belong to epochs after the checkpoint: they are trained again.

    Ultralytics writes the row before the checkpoint, so that a kill in between would leave the epoch there twice.
    """
    path = Path(trainer.csv)
    if not path.is_file():
        return
    before = path.read_text(encoding="utf-8")
    lines = before.splitlines()
    epochs = [line.partition(",")[0].strip() for line in lines]
    kept = [number.isdigit() and int(number) <= trainer.start_epoch for number in epochs[1:]]
    after = "".join(f"{line}\n" for line in [*lines[:1], *compress(lines[1:], kept)])
    if after != before:
        write_file(path, after.replace("\n", os.linesep), durable=True)
