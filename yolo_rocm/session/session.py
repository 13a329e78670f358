"""A session: a preset resolved for this machine, and the operators that compute by it. Each of its runs is a `Run`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.names import VENDOR, single_engines
from ..hardware import Machine, detect
from ..preset import variables
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..preset.step import graph_of
from ..ultralytics_hooks import anchors, checkpoints, distributed, memory_errors, optimizers, probes
from ..ultralytics_hooks.fused_losses import fused_losses
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.network_calls import graphed_networks
from ..utils.log_lines import log_lines
from ..utils.off_switch import enabled
from ..utils.switch import Switch
from .current_run import OngoingRun
from .failures import says_out_of_memory
from .inference import Inference
from .operators import Convolutions, Normalisations

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from ..conv.report import ConvReport
    from ..norm.report import NormReport


class Session:
    """A resolved preset. Nothing is changed until `active` is entered, by a `Run`.

    Args:
        preset: The preset's name, file or dictionary.
        rocm: Sections over it.
        notes: Lines for the user about where they come from.
        **arguments: Ultralytics arguments of the call, where they are known.

    Attributes:
        source: The preset's name, file or dictionary.
        rocm: Sections over it.
        machine: What it is resolved for.
        settings: Final values with their origins.
        convolutions: What computes the convolutions.
        normalisations: What computes BatchNorm.
        inference: What computes blocks and networks where nothing is trained.
    """

    def __init__(
        self,
        preset: str | Path | Mapping[str, Any] | None,
        rocm: Mapping[str, Any] | None,
        *,
        notes: Sequence[str] = (),
        **arguments: Any,
    ) -> None:
        self.source, self.rocm = preset, rocm
        self.machine = detect()
        settings = resolve(preset, rocm, arguments, machine=self.machine)
        self.settings: Settings = replace(settings, notes=(*settings.notes, *notes))
        self._make_operators()

    def _make_operators(self) -> None:
        self.convolutions = Convolutions(self.settings, self.machine)
        self.normalisations = Normalisations(self.settings, self.convolutions)
        self.inference = Inference(self.settings, self.convolutions)
        self._lock = threading.RLock()
        self._users: list[object] = []
        self._switches = ExitStack()
        self._announced = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: getattr(self, name) for name in ("source", "rocm", "machine", "settings")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start inactive."""
        self.__dict__.update(state)
        self._make_operators()

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were computed by; None before the first."""
        return self.convolutions.report

    def reports(self) -> list[ConvReport | NormReport]:
        """Return what the newest run was computed by: its convolutions, and its BatchNorm; nothing before the first."""
        reports = self.convolutions.report, self.normalisations.report
        return [report for report in reports if report is not None]

    def summary(self) -> str:
        """Say in one line how many layers each engine computes; BatchNorm only where it is not left to torch."""
        convolutions, *others = self.reports()
        return "; ".join(report.summary() for report in (convolutions, *(each for each in others if each.served)))

    def start_reports(self) -> None:
        """Start new reports for a run that begins, unless another one is going on; what has been planned stays."""
        if not self.is_active:
            for operator in (self.convolutions, self.normalisations, self.inference):
                operator.renew()

    def restart_reports(self) -> None:
        """Forget what was reported so far: the model computes other shapes or layouts from now on."""
        self.convolutions.restart_report()
        self.normalisations.restart_report()

    def tune(self) -> None:
        """Measure the algorithms for everything computed so far."""
        self.convolutions.tune()
        self.normalisations.tune()

    @contextmanager
    def unreported(self) -> Iterator[Callable[[], object]]:
        """Let copies of a model compute as the session has it, out of its reports.

        Yields:
            A function that measures the algorithms for what has been computed meanwhile.
        """
        with self.convolutions.unreported() as tune_convolutions, self.normalisations.unreported() as tune_norms:
            yield lambda: (tune_convolutions(), tune_norms())

    @contextmanager
    def environment(self, device: Any = None) -> Iterator[list[str]]:
        """Set the preset's environment variables that apply here, where that is still in time.

        Args:
            device: Ultralytics' `device` argument of the run.

        Yields:
            One line for each variable that came too late, or that the user has set to something else.

        Raises:
            StackError: A variable came too late without which the card cannot train.
        """
        decisions = self._variables(device)
        on_gpu = str(device or "").lower() not in ("cpu", "mps")
        with variables.applied(decisions, needs_gpu=on_gpu) as late:
            yield [*late, *(decision.said for decision in decisions if decision.said)]

    def set_early(self) -> ExitStack:
        """Set the variables that must be there before HIP starts, until the returned stack is closed.

        Between registering an object and training it anything may start HIP. What comes too late already is told, or
        ends the run, when the run begins: only then it is known whether it is for the GPU.
        """
        held = ExitStack()
        held.enter_context(variables.applied(variables.early(self._variables(None)), needs_gpu=False))
        return held

    def _variables(self, device: Any) -> list[variables.Decision]:
        return variables.plan(self.settings.preset, self.machine, device) if enabled() else []

    @property
    def is_active(self) -> bool:
        """Whether the preset is applied to this process now."""
        return bool(self._users)

    @contextmanager
    def active(self, run: OngoingRun, late: Sequence[str] = ()) -> Iterator[None]:
        """Apply the preset to this process: vendor library, hooks, operators, device graphs.

        Nested use counts. Of several sessions that are active at the same time the newest decides.

        Args:
            run: The run it is for.
            late: Lines about its environment variables, for the user.
        """
        user = object()
        try:
            with self._lock:
                if not self._users:
                    with ExitStack() as switches:
                        self._switch_on(switches, run, late)
                        self._switches = switches.pop_all()
                self._users.append(user)
            yield
        finally:
            with self._lock:
                if user in self._users:
                    self._users.remove(user)
                if not self._users:
                    self._switches.pop_all().close()

    def _switch_on(self, switches: ExitStack, run: OngoingRun, late: Sequence[str]) -> None:
        preset = self.settings.preset
        switches.enter_context(log_lines(say))
        if not self._announced:
            self._announced = True
            for line in late:
                say("environment.late", line, warning=True)
            for line in (*opening_lines(self.settings, self.machine, run.device), *self.convolutions.advice.lines):
                say("run.opening", line)
        for scope in (
            self.convolutions.vendor_library(),
            checkpoints.whole_runs(),
            memory_errors.memory_errors_recognised(says_out_of_memory),
            anchors.anchors_once(),
            optimizers.fused_optimizers(),
            fused_losses() if "triton" in single_engines(preset.conv.engine) else nullcontext(),
            distributed.ranks_join(run.on_trainer_created, preset.ranks.timeout_s),
            self.convolutions.patched(),
            self.normalisations.patched(),
            self.inference.patched(),
            nullcontext() if graph_of(preset) == Switch.OFF else graphed_networks(),
        ):
            switches.enter_context(scope)


def opening_lines(settings: Settings, machine: Machine, device: Any = None) -> Iterator[str]:
    """Return the lines for the user; `rocm.json` has the rest.

    Args:
        settings: The preset.
        machine: What it runs on.
        device: Ultralytics' `device` argument.
    """
    import torch

    preset, conv = settings.preset, settings.preset.conv
    engine = "" if conv.engine == VENDOR else f", engine {conv.engine}"
    if machine.gpu is None or str(device).lower() == "cpu":
        lack = "" if machine.gpu is not None else "torch can use no GPU, " if machine.gpus else "no GPU found, "
        yield f"{lack}using the CPU (preset {preset.name}{engine})"
    else:
        yield f"{machine.gpu}: preset {preset.name}{engine}"
    yield from settings.notes
    if "cuda" in conv.devices and not torch.cuda.is_available():
        yield f"preset {preset.name} is for a GPU and torch finds none: its GPU settings are ignored"
    for feature, asked in (
        (probes.FUSED_BLOCKS, True),
        (probes.LEAN_NETWORKS, preset.step.memory == "lean"),
        (probes.DAMAGED_IMAGES, preset.loader.skip_broken),
    ):
        if asked and (why := probes.missing(feature)):
            yield f"{feature} is left off with this Ultralytics: {why[0]}"
