"""One training under a run: the phase it is in, and what is done at each of its events."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..ultralytics_hooks import models, ranks, trainers
from ..ultralytics_hooks.log import say
from . import relaunch, sigterm
from .artifacts import FACTS_FILE, write_facts, write_run_page
from .checkpoints import Checkpoints
from .current_run import OngoingRun
from .given import GIVEN, given_to, keep_given
from .layout import Layout
from .listeners import DataWaits, Graphs, LayerNames, StepTimes, Telemetry
from .loading import start_workers_early

if TYPE_CHECKING:
    from ..telemetry.wait_meter import Meter


class Phase(Enum):
    """How far a training has come."""

    FIRST_BATCH = "layers are named, algorithms and layouts measured; with another layout, once more"
    TUNED = "computes as measured; some steps are timed"
    STEADY = "layers are known: a seam that decides nothing is bypassed"
    DONE = "results, facts and page are written"


_UNDER_WAY: Final = (Phase.TUNED, Phase.STEADY)


class Training:
    """Everything this package holds of one trainer. Its methods are named after Ultralytics' events.

    Args:
        run: The run it is of.
        trainer: The trainer, before it has built anything.

    Attributes:
        folder: Where its results are.
        phase: How far it has come.
        checkpoints: What is whole, and how to go on from it.
        is_open: Whether its trainer is held.
    """

    def __init__(self, run: OngoingRun, trainer: Any) -> None:
        self._run, self._session = run, run.session
        self._trainer: Callable[[], Any] = weakref.ref(trainer)
        self.folder = Path(trainer.save_dir)
        self.phase, self.is_open = Phase.FIRST_BATCH, True
        self._began = datetime.now().astimezone()
        self._asked_batch: int | None = None
        self._held = ExitStack()
        start_workers_early(run.loader_policy(), trainer)
        self.checkpoints = Checkpoints(trainer, run.command(trainer.args.device))
        self._layout = Layout(run, trainer)
        self._graphs = Graphs(run.session)
        self._layers = LayerNames(run.session)
        self._waits = DataWaits(self.folder, trainer)
        telemetry = Telemetry(self.folder, run)
        self._times = StepTimes(run.session, lambda: self._graphs.are_replayed, telemetry.is_on)
        # In this order they hear of each event.
        self._listeners = (
            self.checkpoints, self._layout, telemetry, self._graphs, self._waits, self._times, self._layers,
        )  # fmt: skip
        relaunch.write_note(self.folder)

    def hold(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the trainer is let go."""
        self._held.callback(undo)

    def is_of(self, trainer: Any) -> bool:
        """Return whether a trainer is the one that is held."""
        return self.is_open and self._trainer() is trainer

    def device(self) -> Any:
        """Return the device of the trainer, or None if it is gone."""
        return getattr(self._trainer(), "device", None)

    @property
    def meter(self) -> Meter:
        """How long epochs wait for data."""
        return self._waits.meter

    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Set everything up that needs the model, and write what resuming needs."""
        self._session.inference.close()  # the training needs the memory
        for listener in self._listeners:
            listener.set_up(trainer)
        if ranks.is_main_rank():
            keep_given(self.folder, self._run, fresh=not trainer.start_epoch)

    def on_train_epoch_start(self, trainer: Any) -> None:
        """Warn if the epoch before gave NaN and is run again."""
        if self._asked_batch is None:
            self._asked_batch = trainer.batch_size  # Ultralytics makes it smaller where it does not fit
        if trainers.nan_recoveries(trainer):
            # Ultralytics carries on from last.pt, which can hide a kernel that computes wrongly.
            advice = "try amp=False, and " if getattr(trainer, "amp", False) else ""
            doctor = f"{advice}`yolo-rocm doctor` tests whether the kernels of this card compute right"
            text = f"epoch {trainer.epoch + 1} gave NaN and is run again. If it happens again: {doctor}"
            say("epoch.nan", text, warning=True)
        for listener in self._listeners:
            listener.epoch_starts(trainer)

    def on_train_batch_start(self, trainer: Any) -> None:
        """End here if a signal came unheard; name layers in the first batch."""
        sigterm.check()
        if self.phase is Phase.FIRST_BATCH:
            self._layers.name(trainer.model)
        for listener in self._listeners:
            listener.batch_starts(trainer)

    def on_train_batch_end(self, trainer: Any) -> None:
        """Measure after the first batch; bypass a seam that decides nothing once the layers are known."""
        for listener in self._listeners:
            listener.batch_ends(trainer)
        steps = self._times.steps
        if steps.is_last_cold:
            self.meter.set_up(steps.batch)
        if self.phase is Phase.FIRST_BATCH and self._session.report is not None:
            self._tune(trainer)
        # What is compiled would be compiled anew.
        if self.phase is Phase.TUNED and steps.layers_are_known and not models.is_compiled(trainer.model):
            self._session.convolutions.bypass_seam()
            self.phase = Phase.STEADY

    def _tune(self, trainer: Any) -> None:
        """Measure algorithms and layouts for what the first batch has computed; log what computes it from now on."""
        self._layers.close()
        self._session.tune()
        if self._layout.decide(trainer):
            self._session.restart_reports()  # the next batch has everything in the other layout
            return
        self.phase = Phase.TUNED
        self.meter.set_up(self._times.steps.batch)
        self._graphs.begin(trainer)
        say("layers.first_batch", f"{self._session.summary()} (each of them in {FACTS_FILE})")

    def on_train_epoch_end(self, trainer: Any) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.epoch_trained(trainer)

    def on_fit_epoch_end(self, trainer: Any) -> None:
        """Write the facts after the first epoch: a run that is killed later has them too."""
        for listener in self._listeners:
            listener.epoch_validated(trainer)
        if trainer.epoch == trainer.start_epoch:
            self._write_facts(trainer)

    def on_train_end(self, trainer: Any) -> None:
        """Write what is known of the run next to `results.csv`, as data and as a page."""
        self.checkpoints.finished()
        relaunch.remove_note()
        if self._write_facts(trainer):
            write_run_page(trainer, self._run.settings)
            self.phase = Phase.DONE

    def teardown(self, trainer: Any) -> None:
        """Let go of the trainer."""
        self.close()

    def _write_facts(self, trainer: Any) -> bool:
        """Write `rocm.json` where there is something to write and it is this rank's to do; return whether."""
        if self._session.report is None or not ranks.is_main_rank():
            return False
        here = ranks.place_of_rank()
        facts = {
            GIVEN: given_to(self._run),
            "step": self._times.steps.facts(getattr(trainer, "accumulate", 1)),
            "graphs": self._graphs.said,
            "ranks": 1 if here is None else here.world,
            "batch": {"asked": self._asked_batch, "used": getattr(trainer, "batch_size", None)},
        }
        write_facts(trainer, self._run, self.meter, self._began, facts)
        return True

    def say_stopped(self, stop: BaseException, *, newest: bool) -> None:
        """Say which checkpoint is whole and how to go on, and leave the page of what there is.

        Args:
            stop: What has come: Ctrl-C, SIGTERM or SIGHUP.
            newest: It is the newest training of its run; of the others only unfinished ones say something.
        """
        if self.phase is Phase.DONE and not newest:
            return
        how = f"stopped by {stop if isinstance(stop, sigterm.Terminated) else 'Ctrl-C'}"
        say("run.stopped", self.checkpoints.stopped(how), warning=True)
        self.leave_page()

    def leave_page(self) -> None:
        """Write what is known of a run that does not come to its end, if it has come to its first batch."""
        trainer = self._trainer()
        if trainer is None or self.phase not in _UNDER_WAY:
            return
        with sigterm.put_off():
            try:
                if self._write_facts(trainer):
                    write_run_page(trainer, self._run.settings, pictures=False)
            except Exception as error:  # of less weight than what has ended the run
                say("report.failed", f"the report is not complete: {type(error).__name__}: {error}", warning=True)

    def close(self) -> None:
        """Let go of the trainer; safe to call twice."""
        self.is_open = False
        with ExitStack() as ends:  # each is closed, whatever another raises
            ends.push(self._held)
            for listener in reversed(self._listeners):
                ends.callback(listener.close)
