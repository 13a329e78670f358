"""What resuming needs to know of a trainer, and all that one is made of between two epochs, taken out and put back.

Ultralytics' own checkpoint holds the averaged weights and the optimizer in half precision and not the weights in
training, nor gradients that are being accumulated, nor random states. It stays as it is; this is for a file next to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..utils.atomic import write_file
from .models import load_model, model_class, plain_model

# Progress of a trainer that its checkpoint lacks, or holds rounded.
_PROGRESS = ("best_fitness", "fitness", "metrics", "accumulate")


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


def resume_facts(trainer: Any) -> dict[str, Any]:
    """Return what has to be the same for a training to go on to the last digit, by the name people have for it."""
    import torch
    import ultralytics

    names = ("imgsz", "close_mosaic", "freeze", "time", "cache", "fraction", "rect", "single_cls", "multi_scale")
    return {
        "torch": str(torch.__version__),
        "Ultralytics": str(ultralytics.__version__),
        "device": str(trainer.device.type),
        "threads of torch": torch.get_num_threads(),
        "AMP": bool(trainer.amp),
        "batch": int(trainer.batch_size),
        "number of images": len(trainer.train_loader.dataset),
        "epochs": int(trainer.epochs),
        **{name: str(getattr(trainer.args, name, None)) for name in names},
    }


def trainer_state(trainer: Any) -> dict[str, Any]:
    """Return weights, averages, optimizer and progress of a trainer; nothing is copied."""
    model = plain_model(trainer.model)
    criterion = getattr(model, "criterion", None)
    changing = vars(criterion) if hasattr(criterion, "update") else {}  # a loss that changes from epoch to epoch
    return {
        "model": model.state_dict(),
        "ema": trainer.ema.ema.state_dict(),
        "updates": trainer.ema.updates,
        "optimizer": trainer.optimizer.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "gradients": {name: p.grad for name, p in model.named_parameters() if p.grad is not None},
        "criterion": {name: value for name, value in changing.items() if type(value) in (int, float)},
        "stopper": {name: value for name, value in vars(trainer.stopper).items() if name != "patience"},
        "trainer": {name: getattr(trainer, name) for name in _PROGRESS},
    }


def restore_trainer(trainer: Any, state: dict[str, Any]) -> None:
    """Put weights, averages, optimizer and progress back, once the trainer has resumed in its own way."""
    model = plain_model(trainer.model)
    model.load_state_dict(state["model"])
    trainer.ema.ema.load_state_dict(state["ema"])
    trainer.ema.updates = state["updates"]
    for saved, group in zip(state["optimizer"]["param_groups"], trainer.optimizer.param_groups, strict=True):
        if "fused" in group:
            saved["fused"] = group["fused"]  # which kernel runs is for the device at hand to decide
    trainer.optimizer.load_state_dict(state["optimizer"])
    if state["scaler"] and trainer.scaler.is_enabled():
        trainer.scaler.load_state_dict(state["scaler"])
    if state["criterion"] and hasattr(model, "init_criterion"):
        if getattr(model, "criterion", None) is None:
            model.criterion = model.init_criterion()
        vars(model.criterion).update(state["criterion"])
    vars(trainer.stopper).update(state["stopper"])
    progress = state["trainer"]
    trainer.best_fitness, trainer.fitness = progress["best_fitness"], progress["fitness"]
    trainer.metrics = {**(trainer.metrics or {}), **(progress["metrics"] or {})}


class OptimizerSteps:
    """Knows the batch after which the optimizer made its last step, and goes on from one that another process made.

    The training loop keeps that number in a local variable, and begins with a step at once when it resumes. So while
    going on, the loop's own steps are left out, and those due by its rule are made when a batch ends.
    """

    def __init__(self, trainer: Any) -> None:
        self._batch = self._epoch = self.last = -1
        self._takes_over = False
        original = trainer.optimizer_step

        def step(due: bool = False) -> None:
            if due or not self._takes_over:
                original()
                self.last = self._batch

        trainer.optimizer_step = step  # on the trainer, so that nothing here keeps the trainer alive

    def go_on_from(self, trainer: Any, state: dict[str, Any]) -> None:
        """Take over after another process's last step, with the gradients it was accumulating."""
        import torch

        self.last, self._takes_over = state["last_step"], True
        trainer.accumulate = state["trainer"]["accumulate"]
        for name, parameter in plain_model(trainer.model).named_parameters():
            if name in state["gradients"]:  # they may have been saved in another layout, which fused optimizers refuse
                parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(state["gradients"][name])

    def epoch_starts(self, trainer: Any) -> None:
        """Count batches from here; an epoch that starts again is the loop's own, with another batch size perhaps."""
        if self._epoch == trainer.epoch:
            self.last, self._takes_over = -1, False
        self._epoch = trainer.epoch
        self._batch = len(trainer.train_loader) * trainer.epoch - 1

    def batch_starts(self) -> None:
        """Count the batch."""
        self._batch += 1

    def batch_ends(self, trainer: Any) -> None:
        """Make the step that is due, where the loop does not."""
        if self._takes_over and self._batch - self.last >= trainer.accumulate:
            trainer.optimizer_step(due=True)
