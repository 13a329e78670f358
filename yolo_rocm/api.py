"""The ways in: train or run a mode, register a YOLO object or every one of the process, or take the callbacks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import ultralytics_hooks as hooks
from .inference.exporting import export_checked, is_checked
from .inference.predictor import predictor
from .session.events import Events
from .session.process_wide import all_follow
from .session.relaunch import start
from .session.run import run, run_method
from .session.session import Session

if TYPE_CHECKING:
    from .conv.fused.patch import FusedReport
    from .conv.report import ConvReport
    from .norm.report import NormReport
    from .preset.schema import Settings
    from .ultralytics_hooks import ObjectMode

PresetSource = str | Path | Mapping[str, Any]


class Registration:
    """A YOLO object whose modes run under a preset, until `remove()`."""

    def __init__(self, yolo: Any, session: Session) -> None:
        self._events = Events(session)
        self._yolo = weakref.ref(yolo)
        self._modes: list[ObjectMode] = []
        self._hold_variables(yolo)
        self._attach(yolo)

    @property
    def _session(self) -> Session:
        return self._events.session

    def _hold_variables(self, yolo: Any) -> None:
        self._variables = self._session.set_early()
        weakref.finalize(yolo, self._variables.close)

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the YOLO object, by copy or by pickle: its copy is registered too, with a session of its own."""
        return {"yolo": self._yolo(), "events": self._events, "modes": self._modes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Belong to the copy."""
        self._events, self._modes = state["events"], state["modes"]
        self._yolo = weakref.ref(state["yolo"])
        self._hold_variables(state["yolo"])

    def _attach(self, yolo: Any) -> None:
        self._add_callbacks(yolo)
        self._modes = hooks.wrap_modes(yolo, self._run)

    def _add_callbacks(self, yolo: Any) -> None:
        for event, function in self._events.callbacks().items():
            if function not in yolo.callbacks[event]:
                yolo.add_callback(event, function)

    def _run(self, yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._add_callbacks(yolo)  # reset_callbacks() and clear_callback() are meant for the user's own
        return run_method(self._session, yolo, mode, method, args, kwargs)

    def _detach(self, yolo: Any) -> None:
        for mode in self._modes:
            mode.let_go()
        self._modes = []
        for event, function in self._events.callbacks().items():
            # A new list: Ultralytics may be running through the old one, and would miss the next function.
            if function in yolo.callbacks.get(event, []):
                yolo.callbacks[event] = [other for other in yolo.callbacks[event] if other != function]

    @property
    def settings(self) -> Settings:
        """Final values of the preset with their origins."""
        return self._session.settings

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were computed by; None before the first."""
        return self._session.report

    @property
    def norm_report(self) -> NormReport | None:
        """What BatchNorm of the newest run was computed by; None before the first."""
        return self._session.normalisations.report

    def remove(self) -> None:
        """Give the YOLO object back as it was; calling it twice does no harm.

        A training or a stream of predictions that is going on ends under the preset it began with.
        """
        self._variables.close()
        self._session.inference.close()
        yolo = self._yolo()
        if yolo is not None:
            self._detach(yolo)
            if _registration_of(yolo) is self:
                delattr(yolo, _ATTRIBUTE)


# Kept on the object, not in a table of ours: a table would keep the object alive through its wrapped methods.
_ATTRIBUTE = "_yolo_rocm_registration"


def _registration_of(yolo: Any) -> Registration | None:
    registration: Registration | None = vars(yolo).get(_ATTRIBUTE)
    return registration


def register(yolo: Any, preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> Registration:
    """Let an existing YOLO object train, validate, predict and tune under a preset.

    Outside those calls the process is untouched, but for environment variables that must be set before the GPU runtime
    starts: they stay until `remove()`. Registering an object again replaces its preset; a copy of the object, also one
    made by pickle, is registered like the object.

    While it runs, its preset applies to the whole process, other threads included. Of several objects that run at the
    same time the newest decides for all; results are the same, whatever computes them. A stream of predictions runs
    until it ends, is closed or forgotten.

    Args:
        yolo: A `YOLO`, `RTDETR` or other Ultralytics model object.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset, e.g. `{"conv": {"engine": "gemm"}}`.

    Returns:
        A handle with `remove()`, `report` and `settings`.
    """
    hooks.require()
    hooks.check_model(yolo)
    session = Session(preset, rocm)
    before = _registration_of(yolo)
    if before is not None:
        before.remove()
    registration = Registration(yolo, session)
    setattr(yolo, _ATTRIBUTE, registration)
    return registration


@contextmanager
def _registered_for_one_run(yolo: Any, session: Session) -> Iterator[None]:
    """Register for one call; a registration the object already has steps aside and comes back."""
    before = _registration_of(yolo)
    if before is not None:
        before._detach(yolo)
    own = Registration(yolo, session)
    try:
        yield
    finally:
        own.remove()
        if before is not None:
            before._attach(yolo)


def callbacks(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> dict[str, Callable[[Any], None]]:
    """Return a preset as `{event: function}` for `yolo.add_callback`.

    Training and prediction are covered. Validation on its own is not: Ultralytics runs the model before the first
    validation event, so use `register` for it.
    """
    return Events(Session(preset, rocm)).callbacks()


@contextmanager
def everywhere(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> Iterator[Session]:
    """Let every YOLO object of this process run under a preset while the context is open.

    Trainers, validators and predictors that are made without a YOLO object follow it too; what has a session of its
    own keeps it.
    """
    session = Session(preset, rocm)
    with session.environment():
        hooks.require()
        with all_follow(Events(session)):
            yield session


@dataclass(frozen=True)
class RunOutcome:
    """What a finished run leaves behind.

    Attributes:
        result: What Ultralytics returned: metrics of `train` and `val`, the file of `export`, the table of
            `benchmark`, and how many images were predicted.
        report: What the convolutions were computed by.
        settings: Final values of the preset.
        folder: The folder of a training.
        inference: What blocks were computed by where nothing was trained.
    """

    result: Any
    report: ConvReport | None
    settings: Settings
    folder: Path | None = None
    inference: FusedReport | None = None


def train(
    model: Any = "yolo11n.pt",
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Train a model under a preset.

    Args:
        model: Weights, a model YAML, or a YOLO object.
        data: Data set, as Ultralytics takes it.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset for this run.
        **arguments: Any training argument of Ultralytics; it wins over the preset. `resume="auto"` goes on from the
            `last.pt` of the run that `project` and `name` name, and begins that run where there is none.

    Returns:
        Ultralytics' metrics object; None where `resume="auto"` finds the training complete.

    Raises:
        YoloRocmError: A preset, argument or data set is wrong, or an engine cannot compute the model; nothing is left
            patched and no run folder behind.
    """
    return run_training(model, data, preset, rocm, **arguments).result


def run_training(
    model: Any = "yolo11n.pt",
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    relaunched: bool = False,
    **arguments: Any,
) -> RunOutcome:
    """Train like `train`, and return the run's report, settings and folder too.

    Args:
        model: As in `train`.
        data: As in `train`.
        preset: As in `train`.
        rocm: As in `train`.
        relaunched: This process trains once; where torchrun has started it again, it goes on from its `last.pt`.
        **arguments: As in `train`.
    """
    session = Session(preset, rocm, **arguments)
    with session.environment():
        hooks.require()
        hooks.check_arguments(arguments)
        hooks.check_data(data)
        if data is not None:
            arguments["data"] = data
        # The model is built under the preset too: Ultralytics runs it once to find its strides.
        with run(session, arguments, trains=True):
            yolo = hooks.load_model(model, arguments.get("task"))
            begin = start(yolo, arguments, session.settings.preset.ranks.timeout_s, relaunched=relaunched)
            if begin.complete is not None:
                hooks.say(f"the training in {begin.complete} is complete: nothing is left to do")
                return RunOutcome(None, session.report, session.settings, begin.complete)
            yolo, arguments = begin.yolo, begin.arguments
            if arguments.get("resume") is True:
                hooks.check_resumable(yolo)
            with _registered_for_one_run(yolo, session):
                metrics = yolo.train(**arguments)
            return RunOutcome(metrics, session.report, session.settings, Path(yolo.trainer.save_dir))


def run_mode(
    mode: str,
    /,
    model: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    task: str | None = None,
    **arguments: Any,
) -> RunOutcome:
    """Run a mode of a model other than training under a preset: what the command line's sub-commands run.

    Args:
        mode: `val`, `predict`, `track`, `export` or `benchmark`.
        model: Weights, an exported model or a model YAML.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset for this run.
        task: Where the model's file does not tell it.
        **arguments: Ultralytics' arguments for the mode. As `yolo` does, `predict` and `track` save by default; they
            also take `engine`, as `predictor` does.

    Raises:
        YoloRocmError: A preset, an argument, the model or the data is wrong; nothing has run.
    """
    arguments.pop("mode", None)  # a file made for another mode has it
    engine = arguments.pop("engine", None) if mode in ("predict", "track") else None
    session = Session(preset, rocm, **arguments)
    with session.environment():
        hooks.require()
        hooks.check_mode(mode, model, arguments)
        if mode == "export" and is_checked(model, arguments):
            return RunOutcome(export_checked(model, task, **arguments), None, session.settings)
        streams = mode in ("predict", "track")
        if streams and engine is not None:
            source = arguments.pop("source", None)
            chosen = predictor(model, engine, preset, rocm, task, **{"save": True, **arguments})
            results = getattr(chosen, "__call__" if mode == "predict" else mode)(source, stream=True)
            return RunOutcome(sum(1 for _ in results), chosen.report, session.settings)
        if streams:  # a video of any length: one result at a time is in memory, not all of them
            arguments = {"save": True, **arguments, "stream": True}
        with run(session, arguments):
            yolo = hooks.load_model(model, task)
            result = run_method(session, yolo, mode, getattr(yolo, mode), (), arguments)
            if streams:
                result = sum(1 for _ in result)
    return RunOutcome(result, session.report, session.settings, inference=session.inference.report)
