"""`yolo_rocm.predictor`: predict with the fastest engine that finds what torch finds."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import ultralytics_hooks as hooks
from ..errors import ConfigError, YoloRocmError
from ..session.run import run_method
from ..session.session import Session
from .choices import Choices, in_words, key_of
from .exported import exported
from .measure import LIMIT_S
from .survey import COMPILE_LIMIT_S, fastest, survey
from .ways import AUTO, TORCH, Way, check_engine, on_device, ways

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from ..conv.report import ConvReport

_IMAGES: Final = 8  # that engines are compared on
_SECONDS: Final = 3.0  # that calls of each are timed for
_PRECISION: Final = ("half", "int8")  # chosen with the engine


@dataclass(frozen=True)
class Choice:
    """What predicts.

    Attributes:
        way: Engine, device and data type; None where Ultralytics and the preset decide about torch.
        file: The weights or the exported model; None for the object as it is.
        why: How it was chosen, in words.
    """

    way: Way | None
    file: Path | None
    why: str

    @property
    def engine(self) -> str:
        """The engine's name."""
        return TORCH if self.way is None else self.way.engine


class Predictor:
    """Predicts like a YOLO object, with the engine that was asked for or the fastest one that agrees with torch.

    Attributes:
        choice: What the newest call was computed by; None before the first.
    """

    def __init__(
        self, model: Any, engine: str, preset: Any, rocm: Mapping[str, Any] | None, task: str | None, arguments: Any
    ) -> None:
        self._engine = check_engine(engine)
        self._session = Session(preset, rocm, **arguments)
        held = self._session.set_early()
        weakref.finalize(self, held.close)
        with self._session.environment():
            hooks.require()
            self._torch = hooks.load_model(model, task)
        if task is not None and self._torch.task != task:
            raise ConfigError(f"{model} is a model for {self._torch.task}, not for {task}. Leave task= out.")
        self._weights = hooks.weights_of(self._torch)
        if self._weights is None and engine not in (AUTO, TORCH, "compile"):
            raise ConfigError(f"engine={engine} needs the weights of a model, a .pt file; got {str(model)!r}.")
        self._arguments = arguments
        self._preset, self._rocm = preset, rocm
        self._loaded: dict[Choice, Any] = {}
        self._made: dict[str, Choice] = {}
        self.choice: Choice | None = None

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of torch were computed by; None where another engine predicts."""
        return self._session.report

    def __call__(self, source: Any = None, stream: bool = False, **arguments: Any) -> Any:
        """Predict images, videos or a stream; see `YOLO.predict`.

        Returns:
            Ultralytics' results: a list, or with `stream` a generator.
        """
        return self._run("predict", source, stream, arguments)

    def track(self, source: Any = None, stream: bool = False, **arguments: Any) -> Any:
        """Track objects through a video; see `YOLO.track`."""
        return self._run("track", source, stream, arguments)

    def _run(self, mode: str, source: Any, stream: bool, arguments: dict[str, Any]) -> Any:
        given = {**self._arguments, **arguments}
        choice = self._chosen(source, given)
        try:
            return self._run_as(choice, mode, source, stream, given)
        except YoloRocmError:
            raise
        except Exception as error:
            if choice.way is None:
                raise
            hooks.say(f"{choice.way.name} has failed ({type(error).__name__}: {error}): torch predicts", warning=True)
            Choices().forget(self._key(given))
            self._made[self._key(given)] = plain = Choice(None, None, f"{choice.way.name} has failed")
            return self._run_as(plain, mode, source, stream, given)

    def _run_as(self, choice: Choice, mode: str, source: Any, stream: bool, given: dict[str, Any]) -> Any:
        if choice.way is not None:
            given = {name: value for name, value in given.items() if name not in _PRECISION}
            given = {**given, **choice.way.arguments(), "imgsz": self._size(given)}
        yolo = self._yolo(choice)
        # Networks of ncnn are made at the first image.
        fp16 = choice.way is not None and choice.way.dtype == "fp16"
        with hooks.ncnn_computes_in(fp16) if choice.engine == "ncnn" else nullcontext():
            found = run_method(self._session, yolo, mode, getattr(yolo, mode), (source,), {**given, "stream": stream})
            self.choice = choice
            return _begun(found) if stream else found

    def _yolo(self, choice: Choice) -> Any:
        if choice.file is None:
            return self._torch
        if choice not in self._loaded:
            self._loaded[choice] = hooks.load_model(choice.file, self._torch.task)
        return self._loaded[choice]

    def _size(self, given: dict[str, Any]) -> Any:
        return given.get("imgsz") or hooks.size_of(self._torch)

    def _key(self, given: dict[str, Any]) -> str:
        assert self._weights is not None
        asked = {"engine": self._engine, "device": given.get("device"), "imgsz": self._size(given)}
        settings = self._session.settings
        asked |= {"batch": given.get("batch") or 1, "engines": list(settings.preset.predict.engines)}
        return key_of(self._session.machine, self._weights, settings.preset.name, asked)

    def _chosen(self, source: Any, given: dict[str, Any]) -> Choice:
        """Return what predicts with these arguments; measured the first time."""
        if self._engine == TORCH or self._weights is None:
            why = "asked for" if self._engine == TORCH else "the model has no weights on disk to export"
            return Choice(Way("compile") if self._engine == "compile" else None, None, why)
        key = self._key(given)
        if key not in self._made:
            self._made[key] = self._remembered(key, given) or self._measured(key, source, given)
            hooks.say(f"predicting with {self._made[key].engine}: {self._made[key].why}")
        return self._made[key]

    def _remembered(self, key: str, given: dict[str, Any]) -> Choice | None:
        known = Choices().get(key)
        if known is None:
            return None
        try:
            return self._choice(known[0], given, f"{known[0].name}, {known[1]}, measured before")
        except YoloRocmError:
            return None

    def _choice(self, way: Way, given: dict[str, Any], why: str) -> Choice:
        assert self._weights is not None
        if not way.format:
            return Choice(way, None, why)
        made = exported(self._weights, way.format, way.export_arguments(self._size(given), given.get("batch") or 1))
        return Choice(way, made.file, why)

    def _measured(self, key: str, source: Any, given: dict[str, Any]) -> Choice:
        """Measure every way that may be taken, and remember the fastest that agrees."""
        assert self._weights is not None
        images = hooks.first_images(source, _IMAGES) or hooks.first_images(hooks.sample_images(), _IMAGES)
        preset, machine = self._session.settings.preset, self._session.machine
        wanted = (TORCH, *preset.predict.engines) if self._engine == AUTO else (TORCH, self._engine)
        device = given.get("device")
        found = ways(machine, wanted, device, software="vulkan" in str(device))
        if self._engine not in (AUTO, TORCH) and not any(way.engine == self._engine for way in found):
            return self._without(given)
        limit_s = COMPILE_LIMIT_S if self._engine == "migraphx" else LIMIT_S
        hooks.say(f"measuring once what predicts {self._weights.name} fastest: {', '.join(way.name for way in found)}")
        try:
            with hooks.progress_bar("measuring engines") as show:
                rows = survey(
                    self._weights,
                    self._torch.task,
                    images,
                    found,
                    imgsz=self._size(given),
                    batch=given.get("batch") or 1,
                    seconds=_SECONDS,
                    preset=self._preset,
                    rocm=self._rocm,
                    limit_s=limit_s,
                    progress=show,
                )
        except (YoloRocmError, OSError) as error:
            return Choice(None, None, f"engines cannot be compared: {error}")
        for row in rows:
            if row.error or not row.agrees:
                share = row.agreement.share if row.agreement is not None else 0.0
                hooks.say(f"{row.way.name} is left out: {row.error or f'{share:.3f} of the objects are the same'}")
        asked = [row for row in rows if self._engine in (AUTO, row.way.engine)]
        best = fastest([row for row in asked if on_device(row.way, device)])
        if best is None:
            named = "no engine" if self._engine == AUTO else self._engine
            return Choice(None, None, f"{named} was found to agree with torch on these images")
        words = in_words(best, rows[0])
        Choices().put(key, best.way, words)
        return self._choice(best.way, given, f"{best.way.name}, {words}")

    def _without(self, given: dict[str, Any]) -> Choice:
        from ..diagnosis.predict_engines import PREDICT_ENGINES

        engine, machine = PREDICT_ENGINES[self._engine], self._session.machine
        reasons = engine.reasons_against(machine) or [f"it cannot use device={given.get('device')}"]
        line = "" if engine.unfit(machine) else engine.install_line(machine.system)
        told = f"engine {self._engine} cannot be used: {'; '.join(reasons)}"
        return Choice(None, None, f"{told}{f'. To install it: {line}' if line else ''}")


def _begun(results: Iterator[Any]) -> Iterator[Any]:
    """Compute the first item of a stream, so that an engine that fails does so before anything was handed out."""
    first = list(itertools.islice(results, 1))

    def rest() -> Iterator[Any]:
        with closing(results):  # type: ignore[type-var]
            yield from first
            yield from results

    return rest()


def predictor(
    model: Any,
    engine: str = AUTO,
    preset: Any = "auto",
    rocm: Mapping[str, Any] | None = None,
    task: str | None = None,
    **arguments: Any,
) -> Predictor:
    """Return what predicts with the fastest engine that finds what torch finds.

    Before the first image every engine that is installed is measured on the first images of the source, each in a
    process of its own, and compared with torch in fp32 on the CPU. The fastest that agrees is remembered for this model
    file, these devices and this software. What it needs is exported once, beside the weights. Whatever fails falls back
    to torch, with one line in the log.

    Args:
        model: Weights, or a YOLO object.
        engine: `auto`, or one of `torch`, `compile`, `torchscript`, `ncnn`, `onnx`, `migraphx`, `openvino`.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset.
        task: The model's task, where its file does not tell.
        **arguments: Arguments of `predict` for every call, such as `imgsz`, `batch`, `conf` or `device`.

    Returns:
        A function of a source, and of further arguments; `track` of it tracks. Results are Ultralytics' own.

    Raises:
        ConfigError: There is no such engine, model or source.
    """
    return Predictor(model, engine, preset, rocm, task, arguments)
