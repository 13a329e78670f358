"""A session: one preset, and what it changes in this process while it is active. Undone with the last user."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.names import single_engines
from ..hardware import detect
from ..preset import variables
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..preset.step import OFF, graph_of
from ..ultralytics_hooks import (
    anchors,
    checkpoints,
    distributed,
    loaders,
    memory_errors,
    optimizers,
    ranks,
    versions,
)
from ..ultralytics_hooks.fused_losses import fused_losses
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.network_calls import graphed_networks
from ..utils.log_lines import log_lines
from ..utils.off_switch import enabled
from .announcement import opening_lines
from .convolutions import Convolutions
from .failures import says_out_of_memory
from .inference import Inference
from .loading import loader_policy
from .normalisations import Normalisations
from .run_command import RunCommand, run_command

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from ..conv.report import ConvReport
    from ..data.policy import LoaderPolicy
    from ..norm.report import NormReport


class Session:
    """A resolved preset. Nothing is changed until `active` is entered.

    Attributes:
        source: The preset's name, file or dictionary.
        rocm: Sections over it.
        settings: Final values with their origins.
        device: Ultralytics' `device` argument of the run.
        workers: Its `workers`, where the user gave them.
        convolutions: What computes the convolutions.
        normalisations: What computes BatchNorm.
        inference: What computes blocks and networks where nothing is trained.
        trainings: The `TrainingRun` of each training that is going on, by trainer.
        take_over: Called with each trainer that a rank of a distributed training has made; whoever listens to
            Ultralytics' events sets it.
    """

    trainings: weakref.WeakKeyDictionary[Any, Any]
    take_over: Callable[[Any], None]

    def __init__(
        self, preset: str | Path | Mapping[str, Any] | None, rocm: Mapping[str, Any] | None, **arguments: Any
    ) -> None:
        self.source, self.rocm = preset, rocm
        self.machine = detect()
        self.settings: Settings = resolve(preset, rocm, arguments, machine=self.machine)
        self.device = arguments.get("device")
        self._start_inactive()

    def _start_inactive(self) -> None:
        self.workers: int | None = None
        self.convolutions = Convolutions(self.settings, self.machine)
        self.normalisations = Normalisations(self.settings, self.convolutions)
        self.inference = Inference(self.settings, self.convolutions, lambda: bool(self.trainings))
        self.trainings = weakref.WeakKeyDictionary()
        self.take_over = lambda trainer: None
        self._lock = threading.RLock()
        self._users: list[object] = []
        self._switches = ExitStack()
        self.streaming = ExitStack()  # what a stream holds between two items
        self._announced = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: getattr(self, name) for name in ("source", "rocm", "machine", "settings", "device")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start inactive."""
        self.__dict__.update(state)
        self._start_inactive()

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were computed by; None before the first."""
        return self.convolutions.report

    def reports(self) -> list[ConvReport | NormReport]:
        """Return what the newest run was computed by: its convolutions, and its BatchNorm; nothing before the first."""
        found = self.convolutions.report, self.normalisations.report
        return [report for report in found if report is not None]

    def summary(self) -> str:
        """Say in one line how many layers each engine computes; BatchNorm only where it is not left to torch."""
        convolutions, *others = self.reports()
        return "; ".join(report.summary() for report in (convolutions, *(each for each in others if each.served)))

    def begin(self, arguments: Mapping[str, Any]) -> None:
        """Take over what the user has given a run: device, workers, and the size of images, which decides the batch."""
        self.device, self.workers = arguments.get("device"), arguments.get("workers")
        self.settings = self.settings.for_images(arguments.get("imgsz"))

    def replace_preset(
        self, preset: Any, rocm: Mapping[str, Any] | None, arguments: Mapping[str, Any], note: str
    ) -> None:
        """Have another preset from now on, with a line that says why; the session is not active."""
        settings = resolve(preset, rocm, arguments, machine=self.machine)
        self.inference.close()
        self.source, self.rocm, take_over = preset, rocm, self.take_over
        self.settings = replace(settings, notes=(*settings.notes, note))
        self._start_inactive()
        self.take_over = take_over

    def renew(self) -> None:
        """Start new reports for the next run; what has been planned stays planned."""
        self.convolutions.renew()
        self.normalisations.renew()
        self.inference.renew()

    def tune(self) -> None:
        """Measure the algorithms for everything computed so far."""
        self.convolutions.tune()
        self.normalisations.tune()

    def step_aside(self) -> bool:
        """Leave convolutions to torch from now on where the preset leaves them to the vendor library; return whether.

        The report knows them by then, and a seam that decides nothing costs the host time in each of them.
        """
        if self.convolutions.are_the_vendors:
            self.convolutions.step_aside()
        return self.convolutions.are_the_vendors

    @property
    def loader_policy(self) -> LoaderPolicy:
        """What the preset and the run's arguments say about loaders."""
        return loader_policy(self.settings, self.workers, self.trainings)

    @property
    def command(self) -> RunCommand:
        """The run as the command line has it, for whoever wants to go on with it."""
        launched = None if distributed.runs_launched_file() else ranks.place_of_rank()
        return run_command(self.source, self.rocm, self.device, self.workers, launched)

    def variables(self) -> list[variables.Decision]:
        """Return what becomes of each environment variable; nothing is changed."""
        return variables.plan(self.settings.preset, self.machine, self.device) if enabled() else []

    @contextmanager
    def environment(self) -> Iterator[list[str]]:
        """Set the preset's environment variables that apply here, where that is still in time.

        Yields:
            One line for each variable that came too late, or that the user has set to something else.

        Raises:
            StackError: A variable came too late without which the card cannot train.
        """
        decisions = self.variables()
        on_gpu = str(self.device or "").lower() not in ("cpu", "mps")
        with variables.applied(decisions, system=self.machine.system, needs_gpu=on_gpu) as late:
            yield [*late, *(decision.said for decision in decisions if decision.said)]

    def set_early(self) -> ExitStack:
        """Set the variables that must be there before HIP starts, until the returned stack is closed.

        Between registering an object and training it anything may start HIP. What comes too late already is told, or
        ends the run, when the run begins: only then it is known whether it is for the GPU.
        """
        held = ExitStack()
        held.enter_context(variables.applied(variables.early(self.variables()), needs_gpu=False))
        return held

    @contextmanager
    def apart(self) -> Iterator[Callable[[], None]]:
        """Let copies of a model compute as the session has it, out of its reports.

        Yields:
            A function that measures the algorithms for what has been computed meanwhile.
        """
        with self.convolutions.apart() as tune_convolutions, self.normalisations.apart() as tune_normalisations:

            def tune() -> None:
                tune_convolutions()
                tune_normalisations()

            yield tune

    def restart_reports(self) -> None:
        """Forget what was reported so far: the model computes other shapes or layouts from now on."""
        self.convolutions.restart_report()
        self.normalisations.restart_report()

    @property
    def is_active(self) -> bool:
        """Whether the preset is applied to this process now."""
        return bool(self._users)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply the preset to this process: environment, vendor library, hooks, loaders, operators, device graphs.

        Nested use counts. Of several sessions that are active at the same time the newest decides.
        """
        user = object()
        try:
            with self._lock:
                if not self._users and enabled():
                    with ExitStack() as switches:
                        self._switch_on(switches)
                        self._switches = switches.pop_all()
                self._users.append(user)
            yield
        finally:
            with self._lock:
                if user in self._users:
                    self._users.remove(user)
                if not self._users:
                    self._switches.pop_all().close()

    def _switch_on(self, switches: ExitStack) -> None:
        # The environment comes first: importing torch may be the moment at which it is read.
        late = switches.enter_context(self.environment())
        switches.enter_context(log_lines(say))
        versions.require()
        if not self._announced:
            self._announced = True
            for line in late:
                say("environment.late", line, warning=True)
            for line in (*opening_lines(self.settings, self.machine, self.device), *self.convolutions.lines):
                say("run.opening", line)
        for scope in (
            self.convolutions.vendor_library(),
            checkpoints.whole_runs(),
            memory_errors.memory_errors_recognised(says_out_of_memory),
            anchors.anchors_once(),
            optimizers.fused_optimizers(),
            fused_losses() if "triton" in single_engines(self.settings.preset.conv.engine) else nullcontext(),
            distributed.ranks_join(lambda trainer: self.take_over(trainer), self.settings.preset.ranks.timeout_s),
            loaders.loaders_follow(self.loader_policy),
            self.convolutions.patched(),
            self.normalisations.patched(),
            self.inference.patched(),
            nullcontext() if graph_of(self.settings.preset) == OFF else graphed_networks(),
        ):
            switches.enter_context(scope)
