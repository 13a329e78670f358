"""The checkpoints of one training: each whole or not there, and what is said and done to go on from one."""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, LostRankError
from ..ultralytics_hooks import checkpoints, ranks, resuming
from ..utils.atomic import free_bytes, no_room, write_file
from .listeners import Listener

if TYPE_CHECKING:
    from .given import RunCommand


class Checkpoints(Listener):
    """What is done when a trainer saves, resumes, and ends.

    Args:
        trainer: The trainer, before it has built anything.
        command: How the run was started, for the command that resumes.
    """

    def __init__(self, trainer: Any, command: RunCommand) -> None:
        self._trainer: Callable[[], Any] = weakref.ref(trainer)
        self._command = command
        self._last, self._best = Path(trainer.last), Path(trainer.best)
        self._whole: int | None = None  # epochs in last.pt
        self._complete = self._evaluated = False  # last.pt holds the last epoch; the final evaluation is done
        checkpoints.write_whole_checkpoints(trainer, self.write)

    def set_up(self, trainer: Any) -> None:
        """Clear away what an interrupted run left behind its checkpoint, once the trainer has resumed."""
        if ranks.is_main_rank() and resuming.resumed_from(trainer) is not None:
            self._whole = trainer.start_epoch
            resuming.drop_unfinished_results(trainer)

    def write(self, path: Path, data: bytes) -> None:
        """Write a checkpoint in one step.

        Raises:
            CheckpointError: It cannot be written; the old one is left.
        """
        try:
            write_file(path, data, durable=True)
        except OSError as error:
            raise self._refusal(str(path), error, f"{len(data) / 2**20:.1f} MiB are needed") from error
        trainer = self._trainer()
        if path.name == self._last.name and trainer is not None:
            self._whole = resuming.finished_epochs(trainer)
            self._complete = resuming.is_last_epoch(trainer)

    def no_room(self, error: OSError) -> CheckpointError:
        """Say of any other file of the run that it does not fit, what is whole, and how to go on."""
        return self._refusal(error.filename or f"a file of {self._last.parent.parent}", error)

    def lost_rank(self, error: BaseException) -> LostRankError:
        """Say that another rank has gone, what is whole, and how to go on."""
        here, why = ranks.place_of_rank(), " ".join(str(error).split())[:200]
        this = "this process" if here is None else f"rank {here.rank} of {here.world} on {platform.node()}"
        saved = f"{self._last} is whole." if self._whole is None and self._last.exists() else self.saved()
        return LostRankError(
            f"{this} has lost another process of its training ({why}). Why that one ended is in its own log. {saved} "
            f"torchrun goes on by itself where it has restarts left (--max-restarts); by hand: {self._going_on()}"
        )

    def _refusal(self, name: str, error: OSError, *facts: str) -> CheckpointError:
        free = free_bytes(self._last.parent)
        if free is not None:
            facts = (*facts, f"{free / 2**20:.1f} MiB are free in the folder of the run")
        remedy = "Make room" if no_room(error) else "Repair that"
        again = f"go on: {self._going_on()}" if self._whole else "train again, or give another folder: project="
        return CheckpointError(
            f"cannot write {name}: {'; '.join((error.strerror or str(error), *facts))}. "
            f"{self.saved()} {remedy}, then {again}"
        )

    def saved(self) -> str:
        """Say which checkpoint is whole."""
        if self._whole is None or not self._last.exists():
            return "No epoch had been saved."
        if self._complete:
            return f"The training is complete: {self._last} is whole and holds epoch {self._whole}, the last one."
        return f"{self._last} is whole and holds epoch {self._whole}."

    def _going_on(self) -> str:
        """Return the command for what is left to be done: a complete training has its evaluation left."""
        if self._complete:
            return self._command.val(self._best if self._best.exists() else self._last)
        return self._command.train(self._last)

    def stopped(self, how: str) -> str:
        """Return the line for the user after Ctrl-C and the like."""
        said = f"{how}. {self.saved()}"
        if not self._whole or self._evaluated:
            return said
        if self._complete:
            return f"{said} Only its final evaluation was cut off; to repeat it: {self._going_on()}"
        trainer = self._trainer()
        own = "" if trainer is None else resuming.code_of_script(trainer)
        script = f" (it leaves out {own} of your script: there, YOLO(...).train(resume=True) goes on with them)"
        return f"{said} To go on{script if own else ''}: {self._going_on()}"

    def finished(self) -> None:
        """Note that nothing is left to do."""
        self._evaluated = True
