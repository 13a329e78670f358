"""`yolo-rocm bench overhead`: what looking at a training costs it, by epochs of one training with and without.

Two trainings, one with and one without, differ by more than looking costs: by the machine's other work, by where memory
came to lie. Here each round has one epoch of every kind, in changing order, and only the differences within a round
count. Processor time stands beside the clock's: neighbours cannot take it away. What the sampling thread costs is
smaller than what is left of such noise; it looks ten times as often here, and a tenth of the difference is its cost.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest import mock

import numpy as np

from .._version import __version__
from ..data.wait_meter import Meter
from ..session.session import Session
from ..telemetry.sampler import Sampler
from ..telemetry.steps import SampledSteps, sampled_steps
from ..telemetry.watch import watch
from .threads import cpu_threads

# What an epoch is trained with: nothing, the sampling thread and the timeline, or the layers of every step timed.
OFF, WATCHED, TIMED = "off", "watched", "layers timed"
KINDS: Final = (OFF, WATCHED, TIMED)
TIMES_AS_OFTEN: Final = 10
INTERVAL_S: Final = 1.0  # of a real training
_SETTLE_S: Final = 0.2
# Epochs of a training for which costs are added up.
LENGTHS: Final = (10, 100, 300)
_RESAMPLES: Final = 10_000


@dataclass(frozen=True)
class Epoch:
    """One epoch: its round, its kind, and what it took."""

    round: int
    kind: str
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Share:
    """A difference to epochs without, as a part of them: the median over rounds, and where it lies in 95 of 100."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.2%} ({self.low:+.2%} to {self.high:+.2%})"


@dataclass
class Overhead:
    """What was measured.

    Attributes:
        epochs: Every epoch after the first, which warms up.
        steps: Steps of an epoch.
        look_ms: Processor time of one look of the sampling thread, on average, as it counts itself.
        timeline_s: Processor seconds that an epoch spends on its timeline.
        once_s: Processor seconds that a training pays once: the thread's start, its facts, twice, and its page.
        folder: Of the training.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: int = 0
    look_ms: float = 0.0
    timeline_s: float = 0.0
    once_s: float = 0.0
    folder: Path = Path()

    def step_s(self, clock: str = "wall_s") -> float:
        """Return the median seconds of a step without anything on."""
        return float(median(getattr(epoch, clock) for epoch in self.epochs if epoch.kind == OFF)) / self.steps

    def share(self, kind: str, clock: str) -> Share:
        """Return by how much a kind of epochs takes longer than those without, by the clock or in processor time."""
        rounds: dict[int, dict[str, float]] = {}
        for epoch in self.epochs:
            rounds.setdefault(epoch.round, {})[epoch.kind] = getattr(epoch, clock)
        found = [times[kind] / times[OFF] - 1 for times in rounds.values() if len(times) == len(KINDS)]
        return _share(np.array(found) / (TIMES_AS_OFTEN if kind == WATCHED else 1))

    def accounted(self) -> float:
        """Return what thread and timeline cost by their own count, as a part of the processor time."""
        epoch_s = self.steps * self.step_s("cpu_s")
        return self.look_ms / 1e3 / INTERVAL_S * self.step_s() / self.step_s("cpu_s") + self.timeline_s / epoch_s

    def whole(self, epochs: int) -> Share:
        """Return the cost of everything in a training of so many of these epochs, as a part of its processor time.

        The ends of the intervals are added up too, which makes the one of the sum wider than it need be.
        """
        steps = epochs * self.steps
        timed = sampled_steps(epochs, self.steps) / steps
        counted = self.once_s / (steps * self.step_s("cpu_s")) + self.timeline_s / (self.steps * self.step_s("cpu_s"))
        watched, layers = (vars(self.share(kind, "cpu_s")) for kind in (WATCHED, TIMED))
        return Share(**{name: watched[name] + timed * layers[name] + counted for name in watched})

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "rounds": len({epoch.round for epoch in self.epochs}),
            "steps_per_epoch": self.steps,
            "step_s": self.step_s(),
            "shares": {kind: {c: vars(self.share(kind, c)) for c in ("cpu_s", "wall_s")} for kind in KINDS[1:]},
            "look_ms": self.look_ms,
            "timeline_s": self.timeline_s,
            "accounted": self.accounted(),
            "once_s": self.once_s,
            "whole_cpu": {str(epochs): vars(self.whole(epochs)) for epochs in LENGTHS},
        }


def _share(differences: np.ndarray[Any, Any]) -> Share:
    """Return the median with the interval that drawing rounds again and again gives it."""
    drawn = np.random.default_rng(0).choice(differences, (_RESAMPLES, len(differences)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Share(float(np.median(differences)), float(low), float(high))


def order_of(number: int) -> tuple[str, ...]:
    """Return the kinds of a round in its order; over six rounds each comes equally often after each."""
    turned = KINDS[number % 3 :] + KINDS[: number % 3]
    return turned if number // 3 % 2 == 0 else turned[::-1]


class _Alternating:
    """Callbacks that switch what is on from epoch to epoch, and read the clocks."""

    def __init__(self, session: Session, result: Overhead, rounds: int, progress: Callable[[int, int], None]) -> None:
        self._session, self._result, self._progress = session, result, progress
        self._plan = [(number, kind) for number in range(rounds) for kind in order_of(number)]
        self._on = ExitStack()
        self._steps = SampledSteps()
        self._began: tuple[float, float] | None = None
        self._current: tuple[int, str] | None = None
        self._looks: list[Sampler] = []
        self._starts: list[float] = []
        self._timeline_s = 0.0

    @property
    def epochs(self) -> int:
        """One to warm up, those of the rounds, and one that is not measured, whose beginning ends the last."""
        return len(self._plan) + 2

    def on_train_epoch_start(self, trainer: Any) -> None:
        self._end()
        done = trainer.epoch - 1
        if 0 <= done <= len(self._plan):
            self._progress(done, len(self._plan))
        self._current = self._plan[done] if 0 <= done < len(self._plan) else (-1, OFF)
        if self._current[1] == WATCHED:
            self._watch(trainer)
        for name in ("observe", "write"):
            instead = self._counted(getattr(Meter, name)) if self._current[1] == WATCHED else _nothing
            self._on.enter_context(mock.patch.object(Meter, name, instead))
        time.sleep(_SETTLE_S)  # in every kind of epoch: what follows a pause is not what follows a step
        self._began = time.perf_counter(), time.process_time()

    def _watch(self, trainer: Any) -> None:
        """Start the sampling thread, which opens its sources and looks for the first time while `_SETTLE_S` passes."""
        before = time.process_time()
        sampler = watch(trainer.device, Path(trainer.save_dir), fresh=False, interval_s=INTERVAL_S / TIMES_AS_OFTEN)
        self._looks.append(sampler)
        self._on.callback(sampler.stop)
        time.sleep(_SETTLE_S)
        self._starts.append(time.process_time() - before)

    def _counted(self, method: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            before = time.thread_time()
            method(*args)
            self._timeline_s += time.thread_time() - before

        return run

    def on_train_batch_start(self, trainer: Any) -> None:
        if self._current is not None and self._current[1] == TIMED and self._session.report is not None:
            self._steps.begin(self._session.report, trainer.model, trainer.device)

    def on_train_batch_end(self, trainer: Any) -> None:
        self._steps.batch_ends()

    def _end(self) -> None:
        """Take what the epoch took, its end included: there the timeline is written."""
        if self._began is None or self._current is None:
            return
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        self._on.close()
        if self._current[0] >= 0:
            self._result.epochs.append(Epoch(*self._current, wall, cpu))

    def close(self) -> None:
        """Switch everything off, also after an error."""
        self._on.close()
        self._steps.abandon()
        looks = sum(sampler.looks for sampler in self._looks)
        self._result.timeline_s = self._timeline_s / max(1, len(self._starts))
        self._result.once_s += median(self._starts or [0.0])
        self._result.look_ms = 1e3 * sum(s.cost_s * s.looks for s in self._looks) / max(1, looks)


def bench_overhead(
    data: Path,
    folder: Path,
    progress: Callable[[int, int], None],
    *,
    model: str = "yolov8n.yaml",
    preset: str = "auto",
    imgsz: int = 160,
    batch: int = 8,
    rounds: int = 20,
    threads: int = 1,
) -> Overhead:
    """Train once, with everything on in one epoch, and off in the next.

    Args:
        data: A detection data set; its size is that of an epoch.
        folder: Where the training goes.
        progress: Called with (done, all) between epochs.
        model: Weights or model YAML.
        preset: Preset to train under.
        imgsz: Size of the images.
        batch: Size of the batches.
        rounds: Rounds of one epoch of each kind.
        threads: Threads of torch on the CPU. With one, none burns time waiting for another, so that processor time is
            that of the work; it also makes the share of the sampling thread the largest there is.
    """
    with _quiet(), cpu_threads(threads):
        from ultralytics import YOLO

        from ..api import Registration

        session = Session(preset, {"report": {"telemetry": False, "html": False}})
        yolo, result = YOLO(model), Overhead(folder=folder)
        registration = Registration(yolo, session)
        alternating = _Alternating(session, result, rounds, progress)
        for event in ("on_train_epoch_start", "on_train_batch_start", "on_train_batch_end"):
            yolo.add_callback(event, getattr(alternating, event))
        yolo.add_callback("on_train_start", lambda trainer: setattr(result, "steps", len(trainer.train_loader)))
        try:
            yolo.train(
                data=str(data), epochs=alternating.epochs, imgsz=imgsz, batch=batch, patience=0, mosaic=0.0,
                close_mosaic=0, val=False, save=False, plots=False, verbose=False, seed=0,
                project=str(folder.resolve()), name="overhead", exist_ok=True,
            )  # fmt: skip
        finally:
            alternating.close()
            registration.remove()
        result.folder = Path(yolo.trainer.save_dir)
        result.once_s += _once(session, result.folder)
    return result


def _nothing(*_: Any) -> None:
    """Stand in for what is off."""


def _once(session: Session, folder: Path) -> float:
    """Return the processor time of what is written once: facts after the first epoch and at the end, and the page."""
    from ..report.page import write_page
    from ..session.artifacts import surroundings

    began = time.process_time()
    for _ in range(2):
        facts = surroundings(session.machine, session.settings)
        if session.report is not None:
            facts["convolutions"] = session.report.as_dict()
        json.dumps(facts, indent=2, default=str)
    write_page(folder)
    return time.process_time() - began


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ultralytics from writing to the terminal, where it has not been imported yet."""
    with mock.patch.dict(os.environ, {"YOLO_VERBOSE": "false"}):
        yield


def write_csv(path: Path, result: Overhead, command: str) -> None:
    """Write every epoch with what it was measured on."""
    import torch

    stamp = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "yolo_rocm": __version__,
        "date": datetime.date.today().isoformat(),
        "command": command,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*vars(result.epochs[0]), *stamp])
        writer.writeheader()
        writer.writerows({**vars(epoch), **stamp} for epoch in result.epochs)
