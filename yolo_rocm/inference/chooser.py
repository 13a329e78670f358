"""Which way predicts a model: remembered, or measured now and then remembered."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final

from ..errors import YoloRocmError
from ..session.session import Session
from ..ultralytics_hooks import predicting
from ..ultralytics_hooks.log import progress_bar, say
from .choices import Choices, in_words, key_of
from .exported import exported
from .survey import fastest, survey
from .ways import AUTO, TORCH, Way, candidates, refusal

_IMAGES: Final = 8  # that engines are compared on
_SECONDS: Final = 3.0  # that calls of each are timed for


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
class Asked:
    """What a call asks of an engine.

    Attributes:
        imgsz: Image size.
        batch: Images a call.
        device: Ultralytics' `device`; None for any.
    """

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

    def choose(self, weights: Path, task: str, source: Any, asked: Asked) -> Choice:
        """Return what predicts weights; measured the first time.

        Raises:
            ConfigError: The source holds nothing to compare engines on.
            EngineError: The engine was asked for by name, and cannot predict this, or not as torch does.
        """
        key = self._key(weights, asked)
        choice = self._remembered(key, weights, asked) or self._measured(key, weights, task, source, asked)
        say("predict.chosen", f"predicting with {choice.engine}: {choice.why}")
        return choice

    def forget(self, weights: Path, asked: Asked) -> None:
        """Forget a choice that has failed."""
        Choices().forget(self._key(weights, asked))

    def made(self, weights: Path, way: Way, asked: Asked) -> Path | None:
        """Return the model exported for a way, made from these weights now or before; None where none is needed.

        Raises:
            ExportError: It cannot be exported.
        """
        if not way.format:
            return None
        return exported(weights, way.format, way.export_arguments(asked.imgsz)).file

    def _key(self, weights: Path, asked: Asked) -> str:
        preset = self._session.settings.preset
        facts = {"engine": self.engine, "device": asked.device, "imgsz": asked.imgsz, "batch": asked.batch}
        return key_of(self._session.machine, weights, preset.name, {**facts, "engines": list(preset.predict.engines)})

    def _remembered(self, key: str, weights: Path, asked: Asked) -> Choice | None:
        known = Choices().get(key)
        if known is None:
            return None
        way, words = known
        try:
            return Choice(way, self.made(weights, way, asked), f"{way.name}, {words}, measured before")
        except YoloRocmError:
            return None

    def _measured(self, key: str, weights: Path, task: str, source: Any, asked: Asked) -> Choice:
        """Measure every way that may be taken, and remember the fastest that agrees."""
        images = predicting.first_images(source, _IMAGES) or predicting.first_images(
            predicting.sample_images(), _IMAGES
        )
        preset, machine = self._session.settings.preset, self._session.machine
        found = candidates(machine, self.engine, preset.predict.engines, asked.device)
        if not found:
            return self._none(f"nothing computes on device={asked.device}")
        say(
            "predict.measures",
            f"measuring once what predicts {weights.name} fastest: {', '.join(way.name for way in found)}",
        )
        try:
            with progress_bar("measuring engines") as show:
                rows = survey(
                    weights,
                    task,
                    images,
                    found,
                    imgsz=asked.imgsz,
                    batch=asked.batch,
                    seconds=_SECONDS,
                    preset=self._session.source,
                    rocm=self._session.rocm,
                    progress=show,
                )
        except (YoloRocmError, OSError) as error:
            return self._none(f"engines cannot be compared: {error}")
        left_out = []
        for row in rows:
            if row.error or not row.agrees:
                share = row.agreement.share if row.agreement is not None else 0.0
                same = "no object to compare by" if isnan(share) else f"{share:.3f} of the objects are the same"
                left_out.append(f"{row.way.name} is left out: {row.error or same}")
        best = fastest(rows, found)
        if best is None and self.engine != AUTO:
            raise refusal(self.engine, "; ".join(left_out))
        for line in left_out:
            say("predict.left_out", line)
        if best is None:
            return self._none("no engine was found to agree with torch on these images")
        words = in_words(best, rows[0])
        Choices().put(key, best.way, words)
        return Choice(best.way, self.made(weights, best.way, asked), f"{best.way.name}, {words}")

    def _none(self, why: str) -> Choice:
        """Return the choice of torch, or refuse an engine that was asked for by name."""
        if self.engine != AUTO:
            raise refusal(self.engine, why.rstrip("."))
        return Choice(None, None, why)
