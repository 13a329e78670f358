"""What listens to one training: layers get names, device graphs are recorded, steps timed, waits for data summed up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..preset.step import graph_of
from ..telemetry.sampler import watch
from ..telemetry.steps import LAUNCH, LAYERS, SampledSteps
from ..telemetry.wait_meter import EpochSummary, Meter
from ..ultralytics_hooks import models, network_calls, ranks, step_places, trainers
from ..ultralytics_hooks.log import say
from ..utils.switch import Switch
from .current_run import OngoingRun
from .loading import what_to_try

if TYPE_CHECKING:
    from ..graphs.network import NetworkGraphs
    from .session import Session


class Listener:
    """Hears of every event of one training, in the order of Ultralytics; does nothing at most of them."""

    def set_up(self, trainer: Any) -> None:
        """The trainer has its model, optimizer and loaders."""

    def epoch_starts(self, trainer: Any) -> None:
        """An epoch begins, or begins again."""

    def batch_starts(self, trainer: Any) -> None:
        """A batch is on its device."""

    def batch_ends(self, trainer: Any) -> None:
        """A step is over."""

    def epoch_trained(self, trainer: Any) -> None:
        """The epoch's batches are over; validation follows."""

    def epoch_validated(self, trainer: Any) -> None:
        """The epoch is over; the final evaluation comes here again."""

    def close(self) -> None:
        """The trainer is let go; safe to call twice."""


class LayerNames(Listener):
    """Attributes what is computed to layers by name: in the first batch, and in the first validation.

    Args:
        session: Whose reports get the names.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._naming = ExitStack()

    def name(self, model: Any) -> None:
        """Name the layers of a model from now on."""
        self.close()
        if models.is_compiled(model):  # a hook would be compiled with it, and it anew without; validation names layers
            return
        for report in self._session.reports():
            self._naming.enter_context(report.naming(models.plain_model(model)))

    def epoch_trained(self, trainer: Any) -> None:
        """Name layers that only run in validation, in the first epoch."""
        if trainer.epoch == trainer.start_epoch and getattr(trainer, "ema", None) is not None:
            self.name(trainer.ema.ema)

    def epoch_validated(self, trainer: Any) -> None:
        """Stop to name layers."""
        self.close()

    def close(self) -> None:
        """Stop to name layers."""
        self._naming.close()


class Graphs(Listener):
    """The device graphs of one training: which model is recorded, from when on, and when its graphs are let go.

    Attributes:
        said: What was decided, in words.
    """

    def __init__(self, session: Session) -> None:
        self._mode = graph_of(session.settings.preset)
        self._graphs: NetworkGraphs | None = None
        self._batch = 0
        self.said: list[str] = []

    def begin(self, trainer: Any) -> None:
        """Record the model from now on, where that is wanted and possible: its layers and layout are decided."""
        from ..graphs.network import NetworkGraphs
        from ..graphs.recorder import why_not

        if self._mode == Switch.OFF:
            return
        reason = why_not(trainer.device) or network_calls.why_not_graphed(trainer)
        if reason:
            if self._mode != Switch.AUTO:
                self._say(f"device graph off: {reason}")
            return
        self._batch = trainer.batch_size
        self._graphs = NetworkGraphs(models.plain_model(trainer.model), self._mode, self._say)

    @property
    def are_replayed(self) -> bool:
        """Whether something is recorded: a step in which modules are watched would be another than the others."""
        return self._graphs is not None and self._graphs.recorded > 0

    def epoch_starts(self, trainer: Any) -> None:
        """Let go of graphs of a batch that did not fit: Ultralytics begins the epoch again with a smaller one."""
        if self._graphs is not None and trainer.batch_size != self._batch:
            self._batch = trainer.batch_size
            self._graphs.forget()

    def close(self) -> None:
        """Record nothing more and let go of all memory; safe to call twice."""
        if self._graphs is not None:
            self._graphs.close()
            self._graphs = None

    def _say(self, line: str) -> None:
        self.said.append(line)
        say("graph.choice", line)


class StepTimes(Listener):
    """Times some steps: their layers and classes of operators, or the host's launches.

    Args:
        session: Whose report gets the times.
        are_replayed: Tells whether steps are replayed: one in which modules are watched would be another.
        wanted: False times nothing.
    """

    def __init__(self, session: Session, are_replayed: Callable[[], bool], wanted: bool) -> None:
        self._session, self._are_replayed = session, are_replayed
        self.steps = SampledSteps(wanted)

    def epoch_starts(self, trainer: Any) -> None:
        """Count an epoch."""
        self.steps.epoch_starts()

    def batch_starts(self, trainer: Any) -> None:
        """Begin to time the step, if it is one of those."""
        timed, report = self.steps.batch_starts(), self._session.report
        if not timed or report is None:
            return
        watched = partial(step_places.step_watched, trainer) if step_places.can_watch_steps(trainer) else None
        if timed == LAYERS and not self._are_replayed() and not self._session.convolutions.is_bypassed:
            # A hook would make a compiled model compile anew.
            model = None if models.is_compiled(trainer.model) else models.plain_model(trainer.model)
            self.steps.begin(report, model, trainer.device, watched)
        elif timed == LAUNCH and watched is not None:
            self.steps.begin_launch(trainer.device, watched)

    def batch_ends(self, trainer: Any) -> None:
        """End the step that is timed."""
        self.steps.batch_ends()

    def close(self) -> None:
        """Stop timing."""
        self.steps.abandon()


class DataWaits(Listener):
    """Says of each epoch how long it waited for data and which images are broken, and writes it down.

    Args:
        folder: The run's folder.
        trainer: Its trainer.

    Attributes:
        meter: Gets the traces of batches from the loaders.
    """

    def __init__(self, folder: Path, trainer: Any) -> None:
        compute, workers, batch, cached = trainers.loading_facts(trainer)
        self.meter = Meter(compute, what_to_try(workers, batch, cached))
        self._folder = folder
        self._summary: EpochSummary | None = None
        self._newest_verdict = ""

    def epoch_starts(self, trainer: Any) -> None:
        """Begin to measure."""
        self.meter.begin(trainer.epoch + 1)

    def epoch_trained(self, trainer: Any) -> None:
        """Log the epoch, and its verdict where that is another one than before."""
        self._summary = summary = self.meter.end_training()
        if summary.seconds:
            is_news = summary.verdict not in ("", self._newest_verdict)
            self._newest_verdict = summary.verdict or self._newest_verdict
            say("epoch.loading", f"{summary}. {summary.verdict}" if is_news else str(summary))
        self._name_broken()

    def epoch_validated(self, trainer: Any) -> None:
        """Write the epoch's row."""
        if self._summary is not None and ranks.is_main_rank():
            self.meter.write(self._folder, self._summary)
        self._summary = None  # the final evaluation has none
        self._name_broken()

    def _name_broken(self) -> None:
        for line in self.meter.new_broken():
            say("images.broken", line, warning=True)


class Telemetry(Listener):
    """Watches card and host while the training goes on, where the preset has it so.

    Args:
        folder: The run's folder.
        run: The run.
    """

    def __init__(self, folder: Path, run: OngoingRun) -> None:
        self._folder, self._report = folder, run.settings.preset.report
        self.is_on = self._report.telemetry and ranks.is_main_rank()
        self._held = ExitStack()

    def set_up(self, trainer: Any) -> None:
        """Begin."""
        if not self.is_on:
            return
        fresh, every = not trainer.start_epoch, self._report.interval_s
        warn = partial(say, "telemetry.trouble", warning=True)
        try:
            sampler = watch(trainer.device, self._folder, fresh=fresh, interval_s=every, log=warn)
        except Exception as error:  # a training is worth more than its picture
            warn(f"no telemetry: {type(error).__name__}: {error}")
        else:
            self._held.callback(sampler.stop)

    def close(self) -> None:
        """End."""
        self._held.close()
