"""Trainers as ranks of one training: any number of machines, any launcher, a GPU each.

Ultralytics takes the number of `device`s for the number of processes, counts GPUs by the global rank in some versions,
and lets every rank choose a run folder. The patches here put the launcher's variables in the place of those guesses.
It knows no distributed training on a CPU: the tests, which have no GPUs, make Gloo look like NCCL.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..utils import process_group
from ..utils.process_group import Place
from ..utils.scoped_patch import attribute
from .ranks import rank

_FOLDER_PATIENCE: Final = 10.0  # seconds a network file system may take to show a new folder
_FIRST: Final = "torch_distributed_zero_first"
OnTrainerCreated = Callable[[Any], None]


def runs_launched_file() -> bool:
    """Probe: is this process one of those that Ultralytics' own launcher has started with a file it has written?"""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return bool(file) and Path(str(file)).parent.name == "DDP" and Path(str(file)).name.startswith("_temp_")


@contextmanager
def ranks_join(on_trainer_created: OnTrainerCreated, patience_s: float) -> Iterator[None]:
    """Make every trainer of this process a rank of the launcher's training. Without a launcher nothing happens.

    Args:
        on_trainer_created: Called with each trainer when it has been made: the event for that is for rank 0 alone.
        patience_s: How long a rank waits for the others.
    """
    here = process_group.place()
    if here is None or rank() == -1:
        yield
        return
    this = _Rank(here, on_trainer_created, patience_s)
    trainer, base = "ultralytics.engine.trainer", "ultralytics.engine.trainer:BaseTrainer"
    with ExitStack() as undo:
        for target, name, make in (
            (trainer, "get_save_dir", this.one_folder),
            (base, "__init__", this.taken_over),
            (base, "_setup_ddp", this.setup),
            (base, "_do_train", this.with_world),
            ("torch.nn.parallel:DistributedDataParallel", "__init__", _on_own_device),
            ("ultralytics.engine.validator", "AutoBackend", this.loaded_on_own_device),
        ):
            undo.enter_context(attribute(target, name).on(make, "rank"))
        for module in _once_for_all() if here.spans_machines else ():
            undo.enter_context(attribute(module, _FIRST).on(this.in_turn, "rank"))
        yield


def _once_for_all() -> list[str]:
    """Return the modules that let the first process of each machine do something before the others."""
    for name in ("trainer", "validator"):
        importlib.import_module(f"ultralytics.engine.{name}")
    loaded = [(name, module) for name, module in sys.modules.items() if name.startswith("ultralytics.")]
    return [name for name, module in loaded if _FIRST in vars(module)]


class _Rank:
    """What makes trainers of this process ranks. Its methods return what takes the place of Ultralytics' own."""

    def __init__(self, here: Place, on_trainer_created: OnTrainerCreated, patience_s: float) -> None:
        self._here, self._on_trainer_created, self._patience_s = here, on_trainer_created, patience_s
        self._device: Any = None

    def _join(self, arguments: Any) -> None:
        self._device = process_group.local_device(arguments.device, self._here)
        process_group.join(self._here, self._device, self._patience_s)

    def _take_place(self, trainer: Any) -> None:
        trainer.device = self._device
        if hasattr(trainer, "world_size"):  # older versions count processes inside train()
            trainer.world_size = self._here.world

    def one_folder(self, original: Callable[..., Path]) -> Callable[..., Path]:
        """Let rank 0 choose the run folder for all. It is the first thing a trainer does once it knows its device."""

        @functools.wraps(original)
        def get_save_dir(args: Any, *more: Any, **named: Any) -> Path:
            world = self._here.world
            if args.batch < 1 or args.batch < world:
                raise ConfigError(
                    f"batch={args.batch} for {world} processes: it is the batch of all of them together, at least one "
                    f"image each, and cannot be found automatically. Give it, as in batch={8 * world}."
                )
            if args.rect:
                args.rect = False  # as Ultralytics' own launcher does: its sampler shuffles
            self._join(args)
            first = self._here.rank == 0
            return Path(process_group.from_first(str(original(args, *more, **named)) if first else None))

        return get_save_dir

    def taken_over(self, original: Callable[..., None]) -> Callable[..., None]:
        """Pass on each trainer once it has been made."""

        @functools.wraps(original)
        def initialise(trainer: Any, *args: Any, **kwargs: Any) -> None:
            original(trainer, *args, **kwargs)
            self._take_place(trainer)
            _require_folder(Path(trainer.save_dir))
            self._on_trainer_created(trainer)

        return initialise

    def setup(self, original: Callable[..., None]) -> Callable[..., None]:
        """Join the other processes as the launcher has described them."""

        def _setup_ddp(trainer: Any, *world: Any) -> None:
            self._join(trainer.args)
            self._take_place(trainer)

        return _setup_ddp

    def with_world(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Give `_do_train` the number of processes, which newer versions have from the trainer; note how it ends."""
        takes = "world_size" in inspect.signature(original).parameters

        @functools.wraps(original)
        def _do_train(trainer: Any, *world: Any, **named: Any) -> Any:
            process_group.training_ended(well=False)
            result = original(trainer, self._here.world) if takes else original(trainer, *world, **named)
            process_group.training_ended(well=True)
            return result

        return _do_train

    def in_turn(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Let rank 0 go before the first processes of other machines, which may write the same files as it."""

        def first(local_rank: int) -> Any:
            return process_group.in_turn(self._here) if process_group.is_joined() else original(local_rank)

        return first

    def loaded_on_own_device(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Let the final evaluation run on the device of this rank, not on the one CUDA names first."""

        def load(*args: Any, **kwargs: Any) -> Any:
            if self._device is not None and "device" in kwargs:
                kwargs["device"] = self._device
            return original(*args, **kwargs)

        return load


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


def _on_own_device(original: Callable[..., None]) -> Callable[..., None]:
    """Give DistributedDataParallel the one device a module is on; for a CPU it takes none."""

    @functools.wraps(original)
    def initialise(self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_ids:
            device = next(module.parameters()).device
            device_ids = None if device.type == "cpu" else [device.index]
        original(self, module, device_ids, *args, **kwargs)

    return initialise
