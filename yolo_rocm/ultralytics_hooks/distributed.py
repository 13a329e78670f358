"""Trainers as ranks of one training: any number of machines, any launcher, a GPU or a CPU each.

Ultralytics takes the number of `device`s for the number of processes, counts GPUs by the global rank in some versions,
lets every rank choose a run folder, and knows no distributed training on a CPU. The interventions here put the
launcher's variables in the place of those guesses.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..utils import process_group
from ..utils.process_group import Place
from .ranks import rank

_FOLDER_PATIENCE: Final = 10.0  # seconds a network file system may take to show a new folder
Begin = Callable[[Any], None]


class _Ranks:
    """Who takes trainers over; the newest one does. Counted like the loader policies."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stack: list[Begin] = []
        self.undo = ExitStack()
        self.device: Any = None


_ranks = _Ranks()


def runs_launched_file() -> bool:
    """Probe: is this process one of those that Ultralytics' own launcher has started with a file it has written?"""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return bool(file) and Path(str(file)).parent.name == "DDP" and Path(str(file)).name.startswith("_temp_")


@contextmanager
def ranks_join(begin: Begin) -> Iterator[None]:
    """Make every trainer of this process a rank of the launcher's training. Without a launcher nothing happens.

    Args:
        begin: Called with each trainer when it has been constructed: `on_pretrain_routine_start` is for rank 0 alone.
    """
    here = process_group.place()
    if here is None or rank() == -1:
        yield
        return
    with _ranks.lock:
        if not _ranks.stack:
            with ExitStack() as undo:
                _intervene(here, undo)
                _ranks.undo = undo.pop_all()
        _ranks.stack.append(begin)
    try:
        yield
    finally:
        with _ranks.lock:
            _ranks.stack.remove(begin)
            if not _ranks.stack:
                _ranks.undo.close()


def _intervene(here: Place, undo: ExitStack) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from ultralytics.engine import trainer, validator

    def replace(target: Any, name: str, value: Any) -> None:
        undo.callback(setattr, target, name, getattr(target, name))
        setattr(target, name, value)

    base = trainer.BaseTrainer
    undo.enter_context(process_group.gloo_like_nccl())
    replace(trainer, "get_save_dir", _one_folder(trainer.get_save_dir, here))
    replace(base, "__init__", _taken_over(base.__init__, here))
    replace(base, "_setup_ddp", _setup(here))
    replace(base, "_do_train", _with_world(base._do_train, here))
    replace(DistributedDataParallel, "__init__", _on_own_device(DistributedDataParallel.__init__))
    # The final evaluation asks CUDA which device it is on, whatever the training ran on.
    replace(torch.cuda, "current_device", _or_none(torch.cuda.current_device))
    replace(validator, "AutoBackend", _loaded_on_own_device(validator.AutoBackend))


def _join(arguments: Any, here: Place) -> None:
    _ranks.device = process_group.local_device(arguments.device, here)
    process_group.join(here, _ranks.device)


def _one_folder(original: Callable[..., Path], here: Place) -> Callable[..., Path]:
    """Let rank 0 choose the run folder for all. It is the first thing a trainer does once it knows its device."""

    @functools.wraps(original)
    def get_save_dir(args: Any, *more: Any, **named: Any) -> Path:
        if args.batch < 1 or args.batch < here.world:
            raise ConfigError(
                f"batch={args.batch} for {here.world} processes: it is the batch of all of them together, at least one "
                f"image each, and cannot be found automatically. Give it, as in batch={8 * here.world}."
            )
        if args.rect:
            args.rect = False  # as Ultralytics' own launcher does: its sampler shuffles
        _join(args, here)
        chosen = process_group.from_first(str(original(args, *more, **named)) if here.rank == 0 else None)
        return Path(chosen)

    return get_save_dir


def _taken_over(original: Callable[..., None], here: Place) -> Callable[..., None]:
    @functools.wraps(original)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _take_place(self, here)
        _require_folder(Path(self.save_dir))
        _ranks.stack[-1](self)

    return initialise


def _take_place(trainer: Any, here: Place) -> None:
    trainer.device = _ranks.device
    if hasattr(trainer, "world_size"):  # older versions count processes inside train()
        trainer.world_size = here.world


def _require_folder(folder: Path) -> None:
    """Refuse a run folder that only rank 0 can see: the final evaluation reads `best.pt` in every rank."""
    from torch import distributed

    distributed.barrier()
    until = time.monotonic() + _FOLDER_PATIENCE
    while not (folder / "args.yaml").exists():
        if time.monotonic() > until:
            raise ConfigError(
                f"this machine cannot see the run folder {folder} that rank 0 has made. Training on several machines "
                "needs a folder they share: project=/a/shared/folder."
            )
        time.sleep(0.2)


def _setup(here: Place) -> Callable[..., None]:
    def _setup_ddp(self: Any, *world: Any) -> None:
        _join(self.args, here)
        _take_place(self, here)

    return _setup_ddp


def _with_world(original: Callable[..., Any], here: Place) -> Callable[..., Any]:
    """Probe: `_do_train` takes the number of processes in older versions, and has it from the trainer in newer ones."""
    takes = "world_size" in inspect.signature(original).parameters

    @functools.wraps(original)
    def _do_train(self: Any, *world: Any, **named: Any) -> Any:
        from .log import say_diagnosis

        process_group.training_ended(well=False)
        try:
            result = original(self, here.world) if takes else original(self, *world, **named)
        except Exception as error:
            say_diagnosis(error)
            raise
        process_group.training_ended(well=True)
        return result

    return _do_train


def _on_own_device(original: Callable[..., None]) -> Callable[..., None]:
    """Give DistributedDataParallel the one device a module is on; for a CPU it takes none."""

    @functools.wraps(original)
    def initialise(self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_ids:
            device = next(module.parameters()).device
            device_ids = None if device.type == "cpu" else [device.index]
        original(self, module, device_ids, *args, **kwargs)

    return initialise


def _or_none(original: Callable[[], int]) -> Callable[[], int]:
    def current_device() -> int:
        import torch

        return original() if torch.cuda.is_available() else 0

    return current_device


def _loaded_on_own_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        if _ranks.device is not None and "device" in kwargs:
            kwargs["device"] = _ranks.device
        return original(*args, **kwargs)

    return load
