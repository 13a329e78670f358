"""How long training waits for data: a share and a verdict for each epoch."""

from __future__ import annotations

import csv
import time
from collections import Counter
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..data.broken_files import BrokenFiles
from .bottleneck import ADVICE, judge

if TYPE_CHECKING:  # a report is made of the files alone, also where there is no torch
    from ..data.reader import Trace

EPOCHS_FILE: Final = "rocm_loader.csv"


@dataclass(frozen=True)
class EpochSummary:
    """What one epoch's data cost; its row in the table.

    Attributes:
        epoch: Its number, from 1.
        batches: Batches of training, without those of `setup_s`.
        images: Samples in them.
        seconds: From the first request to the end of the last step.
        start_s: Of that, the wait for the first batch: workers starting.
        wait_s: The other waits, without those of `setup_s`.
        wait_share: Part of the epoch spent waiting, once workers had started and steps were set up.
        verdict: What that means, in a few words.
        load_s: Seconds the workers spent reading files.
        augment_s: Seconds they spent augmenting images.
        collate_s: Seconds they spent making batches.
        broken: Samples that could not be read.
        began: When the first batch was asked for, by the clock of the telemetry.
        setup_s: Seconds from then until steps are like all others: kernels were compiled and algorithms measured. 0 in
            epochs without.
    """

    epoch: int
    batches: int
    images: int
    seconds: float
    start_s: float
    wait_s: float
    wait_share: float
    verdict: str
    load_s: float
    augment_s: float
    collate_s: float
    broken: int
    began: float
    setup_s: float

    def __str__(self) -> str:
        """All but the verdict, in a line."""
        start = f", {self.start_s:.1f} s until the first batch" if self.start_s > 0.5 else ""
        start += f", {self.setup_s:.1f} s until steps were set up" if self.setup_s - self.start_s > 0.5 else ""
        running = self.seconds - self.setup_s
        if running <= 0:
            return f"epoch {self.epoch}: all of its {self.seconds:.1f} s set up its steps"
        return f"epoch {self.epoch}: waited {self.wait_share:.1%} for data{start}, {self.images / running:.0f} images/s"


EPOCH_COLUMNS: Final = tuple(column.name for column in fields(EpochSummary))


@dataclass
class Meter:
    """Collects the traces of batches. One for each training.

    Attributes:
        compute: `GPU` or `CPU`.
        advice: What to try where data is the bottleneck; may name the workers and caches of this training.
    """

    compute: str = "GPU"
    advice: str = ADVICE
    _epoch: int = 0
    _rows: list[tuple[str, Trace, float, float]] = field(default_factory=list)
    _set_up: list[tuple[int, float]] = field(default_factory=list)  # batches of the epoch by then, and the time
    _broken: BrokenFiles = field(default_factory=BrokenFiles)

    def observe(self, kind: str, trace: Trace, asked: float, got: float) -> None:
        """Take one batch: its trace, when it was asked for and when it came."""
        self._rows.append((kind, trace, asked, got))

    def begin(self, epoch: int) -> None:
        """Begin an epoch, numbered from 1."""
        self._epoch, self._rows, self._set_up = epoch, [], []

    def set_up(self, batches: int) -> None:
        """Leave out so many first batches of the epoch, whose steps are over: they compiled and measured.

        Called again, it leaves out more of them, unless the epoch has no others.
        """
        self._set_up.append((batches, time.monotonic()))

    def end_training(self) -> EpochSummary:
        """Sum up the training part of the epoch."""
        began = self._rows[0][2] if self._rows else 0.0
        seconds = time.monotonic() - began if self._rows else 0.0
        traces = [trace for kind, trace, _, _ in self._rows if kind == "train"]
        waits = [got - asked for kind, _, asked, got in self._rows if kind == "train"]
        whole = (len(traces), began + seconds) if self._set_up else (0, began)
        skipped, until = next((last for last in reversed(self._set_up) if last[0] < len(traces)), whole)
        counted, setup_s = traces[skipped:], until - began
        start_s, wait_s = sum(waits[:1]), sum(waits[max(1, skipped) :])
        running = seconds - max(start_s, setup_s)
        share = wait_s / running if running > 0 else 0.0
        spent = sum((Counter(trace.stages) for trace in traces), Counter[str]())
        return EpochSummary(
            epoch=self._epoch,
            batches=len(counted),
            images=sum(trace.samples for trace in counted),
            seconds=seconds,
            start_s=start_s,
            wait_s=wait_s,
            wait_share=share,
            verdict=judge(share, self.compute, self.advice).short,
            load_s=spent["load"],
            augment_s=spent["augment"],
            collate_s=spent["collate"],
            broken=sum(len(trace.broken) for trace in traces),
            began=began,
            setup_s=setup_s,
        )

    def new_broken(self) -> list[str]:
        """Return a line for each file that could not be read and has not been named yet, and a count of the rest."""
        return self._broken.take(trace for _, trace, _, _ in self._rows)

    @property
    def broken(self) -> dict[str, int]:
        """Files that could not be read, and how often they were asked for."""
        return dict(self._broken.counts)

    def write(self, folder: Path, summary: EpochSummary) -> None:
        """Append the epoch to the file next to the results."""
        path = folder / EPOCHS_FILE
        fresh = summary.epoch == 1 or not path.exists()
        row = [f"{value:.4f}" if isinstance(value, float) else value for value in astuple(summary)]
        with path.open("w" if fresh else "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([EPOCH_COLUMNS, row] if fresh else [row])
