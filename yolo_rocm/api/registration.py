"""A preset for YOLO objects that exist: registered one by one, all of the process, or through callbacks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..inference.engine_runs import EngineRuns
from ..inference.ways import check_engine
from ..session.events import callbacks_of
from ..session.given import with_resumed_preset
from ..session.process_wide import all_follow
from ..session.run import Run, run_method
from ..session.session import Session
from ..ultralytics_hooks import models, versions

if TYPE_CHECKING:
    from ..conv.report import ConvReport
    from ..inference.chooser import Choice
    from ..norm.report import NormReport
    from ..preset.schema import Settings
    from ..ultralytics_hooks.models import ObjectMode

PresetSource = str | Path | Mapping[str, Any]


class Registration:
    """A YOLO object whose modes run under a preset, until `remove()`."""

    def __init__(self, yolo: Any, session: Session, engine: str | None = None) -> None:
        self._begin(yolo, session, engine)
        self._modes: list[ObjectMode] = models.wrap_modes(yolo, self._run)

    def _begin(self, yolo: Any, session: Session, engine: str | None) -> None:
        from ..engines.seam import keep_kernels  # imports torch, as the object has done

        self._session, self._yolo = session, weakref.ref(yolo)
        self._engine_runs = None if engine is None else EngineRuns(session, engine)
        keep_kernels(self)
        self._variables = session.set_early()

    def __repr__(self) -> str:
        yolo = self._yolo() if self._modes else None
        of = "removed" if yolo is None else f"of a {type(yolo).__name__} object"
        return f"<Registration {of}, preset {self.settings.preset.name}>"

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the YOLO object, by copy or by pickle: its copy is registered too, with a session of its own."""
        engine = None if self._engine_runs is None else self._engine_runs.engine
        return {"yolo": self._yolo(), "session": self._session, "modes": self._modes, "engine": engine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Belong to the copy."""
        self._modes = state["modes"]
        self._begin(state["yolo"], state["session"], state["engine"])

    def _run(self, yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if self._engine_runs is not None and mode in ("predict", "track"):
            return self._engine_runs.run(yolo, mode, method, args, kwargs)
        if mode == "train":
            session, kwargs = with_resumed_preset(self._session, yolo, kwargs)
            if self._engine_runs is not None:
                self._engine_runs.close()  # the training needs the memory, and brings other weights
                if session is not self._session:
                    self._engine_runs = EngineRuns(session, self._engine_runs.engine)
            self._session = session
        return run_method(self._session, yolo, mode, method, args, kwargs)

    @property
    def settings(self) -> Settings:
        """Final values of the preset with their origins."""
        return self._session.settings

    @property
    def choice(self) -> Choice | None:
        """What the newest prediction was computed by, and why; None before the first, and where no engine was given."""
        return None if self._engine_runs is None else self._engine_runs.choice

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
        from ..engines.seam import release_kernels

        release_kernels(self)
        self._variables.close()
        self._session.inference.close()
        if self._engine_runs is not None:
            self._engine_runs.close()
        for mode in self._modes:
            mode.let_go()
        self._modes = []
        yolo = self._yolo()
        if yolo is not None and registration_of(yolo) is self:
            delattr(yolo, _ATTRIBUTE)


# Kept on the object, not in a table of ours: a table would keep the object alive through its wrapped methods.
_ATTRIBUTE = "_yolo_rocm_registration"


def registration_of(yolo: Any) -> Registration | None:
    """Return the registration that an object has."""
    registration: Registration | None = vars(yolo).get(_ATTRIBUTE)
    return registration


def register(
    yolo: Any,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Registration:
    """Let an existing YOLO object train, validate, predict and tune under a preset.

    Outside those calls torch computes everything. Until `remove()` environment variables stay that must be set before
    the GPU runtime starts, and after the first call our kernels, which then hand each call on to torch's own; putting
    them in for each call would cost memory and what the process has compiled. Registering an object again replaces its
    preset; a copy of the object, also one made by pickle, is registered like the object.

    While it runs, its preset applies to the whole process, other threads included. Of several objects that run at the
    same time the newest decides for all; results are the same, whatever computes them. A stream of predictions runs
    until it ends, is closed or forgotten.

    Args:
        yolo: A `YOLO`, `RTDETR` or other Ultralytics model object.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset, e.g. `{"conv": {"engine": "gemm"}}`.
        engine: What computes `predict` and `track`: `auto`, or one of `torch`, `torchscript`, `ncnn`, `onnx`,
            `openvino`, chosen and measured as `predictor` does it; torch under the preset by
            default. What is exported are the weights in memory. What `auto` finds no engine for, and whatever fails,
            is computed by torch, with one line in the log; with an engine by name it is an `EngineError`.

    Returns:
        A handle with `remove()`, `report`, `settings` and `choice`.

    Raises:
        ConfigError: It is no YOLO object, or there is no such engine or preset.
        EngineError: The engine is not installed, or cannot be used here.
    """
    versions.require()
    models.check_model(yolo)
    session = Session(preset, rocm)
    if engine is not None:
        check_engine(engine, session.machine)
    before = registration_of(yolo)
    if before is not None:
        before.remove()
    registration = Registration(yolo, session, engine)
    setattr(yolo, _ATTRIBUTE, registration)
    return registration


def callbacks(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> dict[str, Callable[[Any], None]]:
    """Return a preset as `{event: function}` for `yolo.add_callback`.

    Training and prediction are covered. Validation on its own is not: Ultralytics runs the model before the first
    validation event, so use `register` for it.
    """
    return callbacks_of(Run(Session(preset, rocm)))


@contextmanager
def everywhere(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> Iterator[Session]:
    """Let every YOLO object of this process run under a preset while the context is open.

    Trainers, validators and predictors that are made without a YOLO object follow it too; what has a session of its
    own keeps it.
    """
    session = Session(preset, rocm)
    with session.environment():
        versions.require()
        from ..engines.seam import keep_kernels, release_kernels  # imports torch, for which the variables are set now

        keep_kernels(session)
        try:
            with all_follow(session):
                yield session
        finally:
            release_kernels(session)
