"""The checkpoints of one training: each whole or not there, and what is said and done to go on from one."""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import ultralytics_hooks as hooks
from ..data.loader import PolicyLoaderMixin
from ..data.resume_position import Position
from ..data.seeding import random_states, set_random_states
from ..errors import CheckpointError, LostRankError
from ..utils.atomic import free_bytes, no_room, partial, write_file
from .resume_file import STATE_FILE, StateFile

if TYPE_CHECKING:
    from ..preset.schema import Settings
    from .run_command import RunCommand

# Settings on which the digits of a training depend, next to those of Ultralytics.
_SAME: Final = ("conv.engine", "conv.vendor", "loader.reduced_decode", "loader.reproducible")


class Checkpoints:
    """What is done when a trainer saves, resumes, and ends. Told of every event by `TrainingRun`.

    Args:
        trainer: The trainer, before it has built anything.
        settings: The preset; `checkpoint.exact_resume` and what else has to be the same when resuming.
        command: How the run was started, for the command that resumes.
    """

    def __init__(self, trainer: Any, settings: Settings, command: RunCommand) -> None:
        self._trainer: Callable[[], Any] = weakref.ref(trainer)
        self._preset, self._command = settings.preset, command
        self._last, self._best = Path(trainer.last), Path(trainer.best)
        self._whole: int | None = None  # epochs in last.pt
        self._complete = self._evaluated = False  # last.pt holds the last epoch; the final evaluation is done
        self._file = StateFile(Path(trainer.wdir))
        self._exact = settings.preset.checkpoint.exact_resume and hooks.rank() == -1
        self._state: dict[str, Any] | None = None
        self._loader_fits = False
        self.steps = hooks.OptimizerSteps(trainer)
        hooks.write_whole_checkpoints(trainer, self.write)

    def begin(self) -> None:
        """Put everything back that the checkpoint lacks, once the trainer has resumed in its own way."""
        trainer = self._trainer()
        source = hooks.resumed_from(trainer) if trainer is not None and hooks.is_writer() else None
        if source is None:
            return
        self._whole = trainer.start_epoch
        for path in (self._last, self._best):
            partial(path).unlink(missing_ok=True)
        hooks.drop_unfinished_results(trainer)
        state, reason = StateFile(source.parent).find(source)
        if state is not None and hooks.rank() == -1:
            self._restore(trainer, state)
        elif state is not None or reason or self._exact:
            reason = (
                "several processes train" if state is not None else reason or f"there is no {STATE_FILE} next to it"
            )
            hooks.say(f"goes on from the checkpoint alone, in half precision: {reason}", warning=True)

    def _restore(self, trainer: Any, state: dict[str, Any]) -> None:
        hooks.restore_trainer(trainer, state)
        self._state = state
        was, now = state["facts"], self._facts(trainer)
        changes = {name: f"{name} was {was.get(name)} and is {now[name]}" for name in now if was.get(name) != now[name]}
        self._loader_fits = not {"batch", "number of images", "epochs"} & changes.keys()
        obstacles = {
            "the loader is not one of this package": state["loader"] is None,
            "loading workers start anew (rocm.loader.reproducible=strict makes batches the same)": now.get("workers"),
            "kernels of a GPU may add in another order": trainer.device.type != "cpu",
            "the number of epochs depends on time": getattr(trainer.args, "time", None),
        }
        why = "; ".join([*changes.values(), *(words for words, there in obstacles.items() if there)])
        if why:
            hooks.say(f"weights and optimizer are as they were, what follows is not: {why}", warning=True)
        else:
            hooks.say(f"goes on exactly as if it had not been stopped after epoch {self._whole}")

    def _facts(self, trainer: Any) -> dict[str, Any]:
        """Return what has to be the same for the same digits; batches of strict loaders do not depend on workers."""
        facts = {**hooks.resume_facts(trainer), **{name: attrgetter(name)(self._preset) for name in _SAME}}
        if self._preset.loader.reproducible != "strict":
            facts["workers"] = hooks.worker_count(trainer.train_loader)
        return facts

    def epoch_starts(self) -> None:
        """Put back what the training loop clears before its first epoch."""
        trainer = self._trainer()
        if trainer is None:
            return
        self.steps.epoch_starts(trainer)
        state, self._state = self._state, None
        if state is None:
            return
        if self._loader_fits:
            self.steps.go_on_from(trainer, state)
            if state["loader"] is not None and isinstance(trainer.train_loader, PolicyLoaderMixin):
                trainer.train_loader.go_on_from(Position(**state["loader"]))
        set_random_states(state["random"])

    def write(self, path: Path, data: bytes) -> None:
        """Write a checkpoint in one step, and the state that belongs to a new `last.pt` before that gets its name.

        Raises:
            CheckpointError: It cannot be written, also after the states have made room; the old one is left.
        """
        of_last = path.name == self._last.name
        try:
            write_file(path, data, durable=True, before=lambda: self._keep_state(data) if of_last else None)
        except OSError as error:
            if no_room(error) and self._file.remove():
                self._exact = False
                hooks.say("the disk is full: what exact resuming needs made room for the checkpoint", warning=True)
                return self.write(path, data)
            raise self._refusal(str(path), error, f"{len(data) / 2**20:.1f} MiB are needed") from error
        trainer = self._trainer()
        if of_last and trainer is not None:
            self._whole = hooks.finished_epochs(trainer)
            self._complete = hooks.is_last_epoch(trainer)
            (self._file.commit if self._exact else self._file.remove)()  # a state of an earlier checkpoint is of no use

    def _keep_state(self, data: bytes) -> None:
        trainer = self._trainer()
        if trainer is None or not self._exact:
            return
        try:
            loader = trainer.train_loader
            position = loader.position() if isinstance(loader, PolicyLoaderMixin) else None
            if position is not None and hooks.mosaic_closes_after(trainer):
                position = replace(position, closed=True)
            state = {
                **hooks.trainer_state(trainer),
                "facts": self._facts(trainer),
                "loader": position and vars(position),
                "last_step": self.steps.last,
                "random": random_states(),
            }
            self._file.stage(state, data)
        except Exception as error:  # it must never cost the checkpoint
            self._exact = False
            why = f"from here on resuming is as in stock Ultralytics: {error}"
            hooks.say(f"what exact resuming needs cannot be kept, {why}", warning=True)

    def no_room(self, error: OSError) -> CheckpointError:
        """Say of any other file of the run that it does not fit, what is whole, and how to go on."""
        return self._refusal(error.filename or f"a file of {self._last.parent.parent}", error)

    def lost_rank(self, error: BaseException) -> LostRankError:
        """Say that another rank has gone, what is whole, and how to go on."""
        here, why = hooks.place_of_rank(), " ".join(str(error).split())[:200]
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
        own = "" if trainer is None else hooks.code_of_script(trainer)
        script = f" (it leaves out {own} of your script: there, YOLO(...).train(resume=True) goes on with them)"
        return f"{said} To go on{script if own else ''}: {self._going_on()}"

    def finished(self) -> None:
        """Remove the state: a training that is complete cannot be resumed."""
        self._evaluated = True
        if self._whole is not None:  # else it belongs to an earlier run in the same folder
            self._file.remove()
