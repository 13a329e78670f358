"""One training under a session: what is held of its trainer, and what is done at each of its events."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, LostRankError
from ..telemetry.steps import LAUNCH, LAYERS, SampledSteps
from ..telemetry.wait_meter import EpochSummary, Meter
from ..telemetry.watch import watch
from ..ultralytics_hooks import checkpoints, memory_errors, models, ranks, step_places, trainers
from ..ultralytics_hooks.log import say
from . import relaunch, sigterm
from .artifacts import FACTS_FILE, write_facts, write_run_page
from .checkpoints import Checkpoints
from .failures import says_out_of_memory
from .graphs import Graphs
from .layout import Layout
from .loading import start_workers_early, what_to_try
from .resumed_run import GIVEN, given_to, keep_given
from .session import Session


class TrainingRun:
    """Everything this package holds of one trainer, from its first event to its last.

    Attributes:
        meter: How long epochs wait for data.
        folder: Where its results are.
    """

    def __init__(self, session: Session, trainer: Any) -> None:
        self._session = session
        self._trainer: Callable[[], Any] = weakref.ref(trainer)
        self.folder = Path(trainer.save_dir)
        self._began = datetime.now().astimezone()
        self._held = ExitStack()
        self._naming = ExitStack()
        self._stopped = self._reported = self._validated = self._written = self._aside = False
        self._watches = session.settings.preset.report.telemetry and checkpoints.is_writer()
        self._steps = SampledSteps(self._watches)
        self._summary: EpochSummary | None = None
        self._said_verdict = ""
        self._asked_batch: int | None = None
        compute, workers, batch, cached = trainers.loading_facts(trainer)
        self.meter = Meter(compute, what_to_try(workers, batch, cached))
        start_workers_early(session.loader_policy, trainer)
        self._checkpoints = Checkpoints(trainer, session.command)
        self._layout = Layout(session, trainer)
        self._graphs = Graphs(session)
        relaunch.remember(self.folder)

    def hold(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the trainer is let go."""
        self._held.callback(undo)

    def device(self) -> Any:
        """Return the device of the trainer, or None if it is gone."""
        return getattr(self._trainer(), "device", None)

    def is_set_up(self, trainer: Any) -> None:
        """Set up checkpoints and layout, listen to the backward pass, and watch card and host."""
        self._checkpoints.begin()
        self._session.inference.close()  # the training needs the memory
        self._layout.begin(trainer)
        memory_errors.recognise_in_backward(trainer, says_out_of_memory)
        if ranks.is_main_rank():
            keep_given(self.folder, self._session, fresh=not trainer.start_epoch)
        if not self._watches:
            return
        interval, warn = (
            self._session.settings.preset.report.interval_s,
            partial(say, "telemetry.trouble", warning=True),
        )
        try:
            sampler = watch(trainer.device, self.folder, fresh=not trainer.start_epoch, interval_s=interval, say=warn)
        except Exception as error:  # a training is worth more than its picture
            warn(f"no telemetry: {type(error).__name__}: {error}")
        else:
            self._held.callback(sampler.stop)

    def epoch_starts(self, trainer: Any) -> None:
        """Begin to measure how long the epoch waits for data; warn if the one before gave NaN and is run again."""
        self._graphs.epoch_starts(trainer)
        if self._asked_batch is None:
            self._asked_batch = trainer.batch_size  # Ultralytics makes it smaller where it does not fit
        if trainers.nan_recoveries(trainer):
            # Ultralytics carries on from last.pt, which can hide a kernel that computes wrongly.
            say("epoch.nan", f"epoch {trainer.epoch + 1} gave NaN and is run again. {about_nan(trainer)}", warning=True)
        self.meter.begin(trainer.epoch + 1)
        self._steps.epoch_starts()

    def batch_starts(self, trainer: Any) -> None:
        """Attribute convolutions to layers in the first batch, and time some: layers, or the host's launches."""
        sigterm.check()
        if not self._reported:
            self._name_layers(trainer.model)
        timed = self._steps.batch_starts()
        if not timed or self._session.report is None:
            return
        watch = partial(step_places.step_watched, trainer) if step_places.can_watch_steps(trainer) else None
        if timed == LAYERS and not self._graphs.are_replayed and not self._aside:
            # A hook would make a compiled model compile anew.
            model = None if models.is_compiled(trainer.model) else models.plain_model(trainer.model)
            self._steps.begin(self._session.report, model, trainer.device, watch)
        elif timed == LAUNCH and watch is not None:
            self._steps.begin_launch(trainer.device, watch)

    def batch_ends(self, trainer: Any) -> None:
        """Say what was patched and measure it, after the first batch."""
        self._steps.batch_ends()
        if self._steps.is_last_cold:
            self.meter.set_up(self._steps.batch)
        if not self._reported and self._session.report is not None:
            self._naming.close()
            self._session.tune()
            if self._layout.decide(trainer):
                self._session.restart_reports()  # the next batch has everything in the other layout
                return
            self._reported = True
            self.meter.set_up(self._steps.batch)
            self._graphs.begin(trainer)
            say("layers.first_batch", f"{self._session.summary()} (each of them in {FACTS_FILE})")
        # What is compiled would be compiled anew.
        if (
            self._reported
            and not self._aside
            and self._steps.layers_are_known
            and not models.is_compiled(trainer.model)
        ):
            self._aside = self._session.step_aside()

    def epoch_trained(self, trainer: Any) -> None:
        """Say how long the epoch waited for data; name layers that only run in validation, in the first epoch."""
        self._summary = self.meter.end_training()
        if self._summary.seconds:
            say("epoch.loading", f"{self._summary}{self._new_verdict(self._summary)}")
        self._say_broken()
        if not self._validated and getattr(trainer, "ema", None) is not None:
            self._name_layers(trainer.ema.ema)

    def _new_verdict(self, summary: EpochSummary) -> str:
        """Return the verdict of an epoch as the end of its line; nothing where the last one was the same."""
        if summary.verdict in ("", self._said_verdict):
            return ""
        self._said_verdict = summary.verdict
        return f". {summary.verdict}"

    def epoch_validated(self, trainer: Any) -> None:
        """Write the epoch's loading next to the results, and stop to attribute layers."""
        first, self._validated = not self._validated, True
        self._naming.close()
        if first:
            self._write_facts(trainer)  # a run that is killed later has them too
        if self._summary is not None and ranks.is_main_rank():
            self.meter.write(self.folder, self._summary)
        self._summary = None  # the final evaluation comes here again
        self._say_broken()

    def _say_broken(self) -> None:
        for line in self.meter.new_broken():
            say("images.broken", line, warning=True)

    def _name_layers(self, model: Any) -> None:
        self._naming.close()
        if models.is_compiled(
            model
        ):  # a hook would have it compiled with it, and anew without; validation names layers
            return
        for report in self._session.reports():
            self._naming.enter_context(report.naming(models.plain_model(model)))

    def finished(self, trainer: Any) -> None:
        """Write what is known of the run next to `results.csv`, as data and as a page."""
        self._checkpoints.finished()
        relaunch.forget()
        if self._write_facts(trainer):
            write_run_page(trainer, self._session.settings)
            self._written = True

    def _write_facts(self, trainer: Any) -> bool:
        wanted = self._session.report is not None and ranks.is_main_rank()
        if wanted:
            facts = {
                GIVEN: given_to(self._session),
                "step": self._steps.facts(getattr(trainer, "accumulate", 1)),
                "graphs": self._graphs.said,
                "ranks": 1 if (here := ranks.place_of_rank()) is None else here.world,
                "batch": {"asked": self._asked_batch, "used": getattr(trainer, "batch_size", None)},
            }
            write_facts(trainer, self._session, self.meter, self._began, facts)
        return wanted

    def say_stopped(self, stop: BaseException, *, newest: bool) -> None:
        """Say which checkpoint is whole and how to go on, once, and leave the page of what there is.

        Args:
            stop: What has come: Ctrl-C, SIGTERM or SIGHUP.
            newest: It is the newest training of its run; of the others only unfinished ones say something.
        """
        if self._stopped or (self._written and not newest):
            return
        self._stopped = True
        how = f"stopped by {stop if isinstance(stop, sigterm.Terminated) else 'Ctrl-C'}"
        say("run.stopped", self._checkpoints.stopped(how), warning=True)
        self.leave_page()

    def leave_page(self) -> None:
        """Write what is known of a run that does not come to its end, if it has come to its first batch."""
        trainer = self._trainer()
        if trainer is None or not self._reported or self._written:
            return
        with sigterm.put_off():
            try:
                wanted = self._write_facts(trainer)
            except Exception as error:  # of less weight than what has ended the run
                say("report.failed", f"no report was written: {type(error).__name__}: {error}", warning=True)
            else:
                if wanted:
                    write_run_page(trainer, self._session.settings, pictures=False)

    def no_room(self, error: OSError) -> CheckpointError:
        """Return the error that says what is whole, and how to go on, when a file of the run does not fit the disk."""
        return self._checkpoints.no_room(error)

    def lost_rank(self, error: BaseException) -> LostRankError:
        """Return the error that says what is whole, and how to go on, when another rank has gone."""
        return self._checkpoints.lost_rank(error)

    def close(self) -> None:
        """Let go of the trainer; safe to call twice."""
        trainer = self._trainer()
        if trainer is not None:
            self._session.trainings.pop(trainer, None)
        self._naming.close()
        self._steps.abandon()
        self._layout.close()
        self._graphs.close()
        self._held.close()


def about_nan(trainer: Any) -> str:
    """Return what to do about an epoch that gave NaN."""
    advice = "try amp=False, and " if getattr(trainer, "amp", False) else ""
    return f"If it happens again: {advice}`yolo-rocm doctor` tests whether the kernels of this card compute right"
