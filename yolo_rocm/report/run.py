"""A run as plain data, and what it says in sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from ..conv.names import PASSES
from ..telemetry.bottleneck import ADVICE, Bottleneck, Room, StepLaunch, judge
from ..telemetry.classes import CLASSES, CONVOLUTION
from .columns import CLOCK, RunTable
from .files import mapping, number, rows_of

_NOTHING: Final = RunTable([], {})
# Looks at the machine that make a mean.
_ENOUGH: Final = 3
# A sampled step that is longer than steps are by more than this factor is not like the others.
_LONGER: Final = 1.1
# Where the host is ahead, the GPU is busy for most of the time until it is through with a step.
_MOST: Final = 0.5


@dataclass(frozen=True)
class RunData:
    """One run.

    Attributes:
        folder: Where it is.
        facts: `rocm.json`.
        arguments: `args.yaml` of Ultralytics.
        loading: `rocm_loader.csv`, by epoch.
        telemetry: `rocm_telemetry.csv`, by minutes.
        results: `results.csv`, by epoch.
        remarks: What is missing, half-written or odd.
        mark: `A` or `B` where it is one of two.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    loading: RunTable = _NOTHING
    telemetry: RunTable = _NOTHING
    results: RunTable = _NOTHING
    remarks: tuple[str, ...] = ()
    mark: str = ""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name or str(self.folder)

    @cached_property
    def wait_share(self) -> float | None:
        """Part of all steps that waited for data, once they were set up; None where it was not measured."""
        running = sum(end - start for start, end in self._steady)
        return sum(self.loading.known("wait_s")) / running if running > 0 else None

    @cached_property
    def images_per_s(self) -> float | None:
        """Images trained on in a second, over all epochs, once steps were set up."""
        seconds = sum(self.loading.known("seconds")) - sum(self.loading.known("setup_s"))
        return sum(self.loading.known("images")) / seconds if seconds > 0 else None

    @cached_property
    def epoch_rates(self) -> list[float | None]:
        """Images per second, by epoch."""
        return [
            images / (seconds - setup) if images and seconds is not None and seconds > setup else None
            for images, seconds, setup in zip(
                self._column("images"), self._column("seconds"), self._zeros("setup_s"), strict=True
            )
        ]

    def _column(self, name: str) -> list[float | None]:
        return self.loading.values.get(name) or [None] * len(self.loading.x)

    def _zeros(self, name: str) -> list[float]:
        return [value or 0.0 for value in self._column(name)]

    @cached_property
    def _steady(self) -> list[tuple[float, float]]:
        """From when to when the steps of each epoch were like all others, by the clock of the telemetry.

        That is after workers have started, kernels have been compiled and algorithms measured. What is said about
        steps is said about these: numbers over other spans of time would contradict each other.
        """
        columns = (self._zeros("began"), self._column("seconds"), self._zeros("start_s"), self._zeros("setup_s"))
        return [
            (began + max(start, setup), began + seconds)
            for began, seconds, start, setup in zip(*columns, strict=True)
            if seconds is not None and seconds > max(start, setup)
        ]

    @cached_property
    def total_s(self) -> float | None:
        """Seconds of all epochs with their validation, as Ultralytics counts them."""
        return max(self.results.known("time"), default=None)

    @cached_property
    def epoch_s(self) -> float | None:
        """Median seconds of an epoch's training."""
        seconds = self.loading.known("seconds")
        return median(seconds) if seconds else None

    @cached_property
    def busy(self) -> float | None:
        """Mean part of the time the GPU was busy while its steps were like all others; None where too few looks tell.

        None, too, where it is less than half of what a step certainly computes: the driver's number is wrong then.
        """
        known = self._in_steps("busy_percent")
        busy = mean(known) / 100 if len(known) >= _ENOUGH else None
        launch, step_ms = self.launch, self._steady_step_ms
        if busy is None or launch is None or step_ms is None or launch.waits:
            return busy
        return busy if busy * step_ms >= _MOST * launch.device_ms else None

    @cached_property
    def host(self) -> float | None:
        """Mean part of the machine's processors in use, by every program."""
        known = self.telemetry.known("host_cpu_percent")
        return mean(known) / 100 if known else None

    def _in_steps(self, column: str) -> list[float]:
        """Return the values of a column of the telemetry at the times of `_steady`."""
        looks = zip(self.telemetry.values.get(CLOCK, []), self.telemetry.values.get(column, []), strict=False)
        spans = iter(sorted(self._steady))
        began, ended = next(spans, (0.0, 0.0))
        inside = []
        for when, value in sorted((when, value) for when, value in looks if when is not None and value is not None):
            while when > ended and (span := next(spans, None)) is not None:
                began, ended = span
            if began <= when <= ended:
                inside.append(value)
        return inside

    @cached_property
    def memory_share(self) -> float | None:
        """Largest part of the GPU's memory in use."""
        columns = (self.telemetry.values.get(f"vram_{which}_mb", ()) for which in ("used", "total"))
        pairs = zip(*columns, strict=False)
        return max((used / total for used, total in pairs if used is not None and total), default=None)

    @cached_property
    def verdict(self) -> Bottleneck:
        """What it was bound by."""
        whole, batch = sum(self.classes_ms.values()), mapping(self.facts.get("batch"))
        return judge(
            self.wait_share,
            self.compute,
            str(mapping(self.facts.get("loading")).get("advice") or ADVICE),
            Room(self.memory_share, number(batch.get("asked")), number(batch.get("used"))),
            self.busy,
            self.host,
            self.launch,
            self.classes_ms.get(CONVOLUTION, 0.0) / whole if whole else None,
        )

    @cached_property
    def compute(self) -> str:
        """What it ran on: `GPU` or `CPU`."""
        return "CPU" if mapping(self.facts.get("loading")).get("compute") == "CPU" else "GPU"

    @cached_property
    def layers(self) -> list[dict[str, Any]]:
        """The convolutions, with `total_ms` of those that were timed."""
        rows = []
        for row in rows_of(mapping(self.facts.get("convolutions")).get("layers")):
            times = {which: number(mapping(row.get("times_ms")).get(which)) for which in PASSES}
            known = [value for value in times.values() if value is not None]
            rows.append({**row, "times_ms": times, "total_ms": sum(known) if known else None})
        return rows

    @cached_property
    def step_ms(self) -> float | None:
        """Milliseconds of one sampled step."""
        return number(mapping(self.facts.get("step")).get("step_ms"))

    @cached_property
    def classes_ms(self) -> dict[str, float]:
        """Milliseconds of one sampled step by class of operator, the longest first; empty where not measured."""
        told = mapping(mapping(self.facts.get("step")).get("classes_ms"))
        known = {kind: value for kind in CLASSES if (value := number(told.get(kind))) is not None and value > 0}
        return dict(sorted(known.items(), key=lambda item: -item[1]))

    @cached_property
    def _steady_step_ms(self) -> float | None:
        """Mean milliseconds of a step, without waiting for its data, over all that are like the others."""
        seconds = sum(end - start for start, end in self._steady) - sum(self.loading.known("wait_s"))
        batches = sum(self.loading.known("batches"))
        return 1e3 * seconds / batches if seconds > 0 and batches > 0 else None

    @cached_property
    def launch(self) -> StepLaunch | None:
        """How steps were launched; None where none was sampled, or where steps are shorter than those were."""
        step, step_ms = mapping(self.facts.get("step")), self._steady_step_ms
        host_ms, device_ms = number(step.get("host_ms")), number(step.get("device_ms"))
        if host_ms is None or not device_ms or (step_ms is not None and device_ms > _LONGER * step_ms):
            return None
        after_ms = None if step_ms is None else max(0.0, step_ms - device_ms)
        return StepLaunch(host_ms, device_ms, after_ms, self._may_have_graphs)

    @property
    def _may_have_graphs(self) -> bool:
        """Whether nobody has tried device graphs, and nothing stands against it."""
        compiled, several = self.arguments.get("compile"), "," in str(self.arguments.get("device"))
        engine = mapping(mapping(mapping(self.facts.get("settings")).get("values")).get("conv.engine")).get("value")
        return not (self.facts.get("graphs") or compiled or several or engine == "vendor")

    @cached_property
    def by_algorithm(self) -> dict[str, float]:
        """Milliseconds of a step by algorithm, the slowest first; empty where no layer was timed."""
        spent: Counter[str] = Counter()
        for row in self.layers:
            for which in PASSES:
                if isinstance(row.get(which), str) and row["times_ms"][which]:
                    spent[row[which]] += row["times_ms"][which]
        return dict(spent.most_common())

    @cached_property
    def metric(self) -> str | None:
        """Name of the column of the results that sums up how well the model does; None without validation."""
        names = [name for name in self.results.values if name.startswith("metrics/")]
        return next((name for name in names if name.startswith("metrics/mAP50-95")), next(iter(names), None))

    def best(self, column: str) -> float | None:
        """Return the largest value of a column of the results."""
        return max(self.results.known(column), default=None)
