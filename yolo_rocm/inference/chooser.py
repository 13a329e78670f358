"""Which way predicts a model: remembered for the model, devices and software, or measured now."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..diagnosis.vulkan import vulkan_devices
from ..errors import EngineError, YoloRocmError
from ..session.session import Session
from ..ultralytics_hooks import predicting
from ..ultralytics_hooks.log import progress_bar, say
from ..utils.atomic import write_file
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.paths import cache_folder
from .exported import digest, exported
from .measure import fastest, survey
from .ways import TORCH, Way, candidates

_IMAGES: Final = 8  # that engines are compared on
_SECONDS: Final = 3.0  # that calls of each are timed for
_LOCK_S: Final = 10.0
_PACKAGES: Final = ("ncnn", "onnxruntime", "openvino", "torchvision")


@dataclass(frozen=True)
class Choice:
    """What predicts.

    Attributes:
        way: Engine, device and data type; None where Ultralytics and the preset decide about torch.
        file: The exported model; None for the object as it is.
        why: How it was chosen, in words.
    """

    way: Way | None
    file: Path | None
    why: str

    @property
    def engine(self) -> str:
        """The engine's name."""
        return TORCH if self.way is None else self.way.engine


@dataclass(frozen=True)
class PredictRequest:
    """What a call asks of an engine: image size, images a call, and Ultralytics' `device`, None for any."""

    imgsz: Any
    batch: int = 1
    device: Any = None


class Chooser:
    """Chooses for one session what predicts.

    Attributes:
        engine: What the user asks for.
    """

    def __init__(self, session: Session, engine: str) -> None:
        self.engine = engine
        self._session = session

    def choose(self, weights: Path, task: str, source: Any, request: PredictRequest) -> Choice:
        """Return what predicts weights; measured the first time.

        Raises:
            YoloRocmError: No engine can be used, or the source holds nothing to compare engines on.
        """
        key = self._key(weights, request)
        entry = _read().get(key)
        if not isinstance(entry, dict):
            entry = self._measured(weights, task, source, request)
            _remember(key, entry)
            why = entry["words"]
        else:
            why = f"{entry['words']}, measured before"
        way = Way(**entry["way"])
        file = exported(weights, way.format, way.export_arguments(request.imgsz)) if way.format else None
        choice = Choice(way, file, f"{way.name}, {why}")
        say("predict.chosen", f"predicting with {choice.engine}: {choice.why}")
        return choice

    def forget(self, weights: Path, request: PredictRequest) -> None:
        """Forget a choice that has failed."""
        _remember(self._key(weights, request), None)

    def _key(self, weights: Path, request: PredictRequest) -> str:
        """Return what a choice depends on; another file of the same content is the same model."""
        preset, machine = self._session.settings.preset, self._session.machine
        facts = {
            "weights": digest(weights),
            "engine": self.engine,
            **asdict(request),
            "preset": preset.name,
            "engines": list(preset.predict.engines),
            "gpus": [str(gpu) for gpu in machine.gpus],
            "vulkan": [device.name for device in vulkan_devices()] if machine.packages.version("ncnn") else [],
            "cores": machine.cores,
            "torch": machine.torch,
            "ultralytics": machine.ultralytics,
            **{name: machine.packages.version(name) for name in _PACKAGES},
            "yolo_rocm": __version__,
        }
        return json.dumps(facts, sort_keys=True, default=str)

    def _measured(self, weights: Path, task: str, source: Any, request: PredictRequest) -> dict[str, Any]:
        """Measure every way that may be taken, and return the fastest that agrees."""
        images = predicting.first_images(source, _IMAGES)
        if not images:  # a camera
            images = predicting.first_images(predicting.sample_images(), _IMAGES)
        session = self._session
        ways = candidates(session.machine, self.engine, session.settings.preset.predict.engines, request.device)
        if not ways:
            raise EngineError(f"nothing computes on device={request.device}")
        names = ", ".join(way.name for way in ways)
        say("predict.measures", f"measuring once what predicts {weights.name} fastest: {names}")
        given = {"imgsz": request.imgsz, "batch": request.batch, "preset": session.source, "rocm": session.rocm}
        try:
            with progress_bar("measuring engines") as show:
                rows = survey(weights, task, images, ways, seconds=_SECONDS, progress=show, **given)
        except (YoloRocmError, OSError) as error:
            raise EngineError(f"engines cannot be compared: {error}") from error
        left_out = []
        for row in rows:
            if not row.agrees:
                same = "no object to compare by" if isnan(row.agreement) else f"{row.agreement:.3f} of objects the same"
                left_out.append(f"{row.way.name} is left out: {row.error or same}")
                say("predict.left_out", left_out[-1])
        best = fastest(rows, ways)
        if best is None:
            raise EngineError("; ".join(["no engine agrees with torch on these images", *left_out]))
        words = (
            f"{best.median_ms:.1f} ms a call, torch on the CPU {rows[0].median_ms:.1f} ms; {best.agreement:.3f} of "
            f"{best.objects} objects the same"
        )
        return {"way": asdict(best.way), "words": words}


def _file() -> Path:
    return cache_folder() / "predict.json"


def _read() -> dict[str, Any]:
    """Return what was chosen before; a file that makes no sense is none."""
    try:
        entries = read_json(_file())
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _remember(key: str, entry: dict[str, Any] | None) -> None:
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        with locked(f"{_file()}.lock", _LOCK_S):
            entries = {name: each for name, each in {**_read(), key: entry}.items() if each is not None}
            write_file(_file(), json.dumps(entries, indent=1, sort_keys=True))
    except OSError as error:
        say("predict.not_kept", f"the chosen engine cannot be kept in {_file()} ({error}): the next run measures again")
