"""A run as plain data, and what it says in sum."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from ..conv.names import PASSES
from ..data.bottleneck import Bottleneck, Launch, Room, judge
from ..telemetry.classes import CLASSES, CONVOLUTION
from .files import mapping, number, rows_of
from .series import CLOCK, Columns

_NOTHING: Final = Columns([], {})
# Looks at the machine that make a mean.
_ENOUGH: Final = 3


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        folder: Where it is.
        facts: `rocm.json`.
        arguments: `args.yaml` of Ultralytics.
        loading: `rocm_loader.csv`, by epoch.
        verdicts: Its column of that name.
        batches: The timeline, thinned.
        windows: From when to when epochs of the timeline trained, by the clock of the telemetry.
        telemetry: `rocm_telemetry.csv`, by minutes.
        results: `results.csv`, by epoch.
        remarks: What is missing, half-written or odd.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    loading: Columns = _NOTHING
    verdicts: tuple[str, ...] = ()
    batches: dict[str, Any] = field(default_factory=dict)
    windows: tuple[tuple[float, float], ...] = ()
    telemetry: Columns = _NOTHING
    results: Columns = _NOTHING
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name or str(self.folder)

    @cached_property
    def wait_share(self) -> float | None:
        """Part of all epochs that waited for data, once workers had started; None where it was not measured."""
        running = sum(self.loading.known("seconds")) - sum(self.loading.known("start_s"))
        return sum(self.loading.known("wait_s")) / running if running > 0 else None

    @cached_property
    def images_per_s(self) -> float | None:
        """Images trained on in a second, over all epochs."""
        seconds = sum(self.loading.known("seconds"))
        return sum(self.loading.known("images")) / seconds if seconds > 0 else None

    @cached_property
    def epoch_rates(self) -> list[float | None]:
        """Images per second, by epoch."""
        pairs = zip(self.loading.values.get("images", ()), self.loading.values.get("seconds", ()), strict=False)
        return [images / seconds if images is not None and seconds else None for images, seconds in pairs]

    @cached_property
    def total_s(self) -> float | None:
        """Seconds of all epochs with their validation, as Ultralytics counts them."""
        return max(self.results.known("time"), default=None)

    @cached_property
    def epoch_s(self) -> float | None:
        """Median seconds of an epoch's training."""
        seconds = sorted(self.loading.known("seconds"))
        return seconds[len(seconds) // 2] if seconds else None

    @cached_property
    def busy(self) -> float | None:
        """Mean part of the time the GPU was busy while it trained."""
        return self._share("busy_percent")

    @cached_property
    def host(self) -> float | None:
        """Mean part of the machine's processors in use while it trained, by every program."""
        return self._share("host_cpu_percent")

    @cached_property
    def own(self) -> float | None:
        """Mean part of the machine's processors that this training used."""
        return self._share("own_cpu_percent")

    def _share(self, column: str) -> float | None:
        """Return the mean of a column of percents in the epochs whose time is known, or in the whole run."""
        clock, values = self.telemetry.values.get(CLOCK, []), self.telemetry.values.get(column, [])
        pairs = zip(clock, values, strict=False)
        told = [(when, value) for when, value in pairs if when is not None and value is not None]
        windows = sorted(self.windows)
        starts, ends = [low for low, _ in windows], list(accumulate((high for _, high in windows), max))
        # The windows that have begun by then, and the latest end of any of them.
        begun = [bisect_right(starts, when) for when, _ in told]
        inside = [value for (when, value), count in zip(told, begun, strict=True) if count and when <= ends[count - 1]]
        known = inside if len(inside) >= _ENOUGH else [value for _, value in told]
        return sum(known) / len(known) / 100 if known else None

    @cached_property
    def memory_share(self) -> float | None:
        """Largest part of the GPU's memory in use."""
        columns = (self.telemetry.values.get(f"vram_{which}_mb", ()) for which in ("used", "total"))
        pairs = zip(*columns, strict=False)
        return max((used / total for used, total in pairs if used is not None and total), default=None)

    @cached_property
    def verdict(self) -> Bottleneck:
        """What it was bound by."""
        told = mapping(self.facts.get("loading")).get("advice")
        said = (verdict.partition(": try ")[2] for verdict in reversed(self.verdicts))
        advice = str(told or next(filter(None, said), "more workers, cache=disk"))
        whole = sum(self.classes_ms.values())
        part = self.classes_ms.get(CONVOLUTION, 0.0) / whole if whole else None
        return judge(
            self.wait_share,
            self.compute,
            advice,
            self.room,
            self.busy,
            self.host,
            self.own,
            launch=self.launch,
            convolutions=part,
        )

    @cached_property
    def compute(self) -> str:
        """What it ran on: `GPU` or `CPU`."""
        told = mapping(self.facts.get("loading")).get("compute")
        return "CPU" if "CPU" in (told, *(verdict.partition("-")[0] for verdict in self.verdicts)) else "GPU"

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
    def launch(self) -> Launch | None:
        """How a step was launched; None where that was not measured."""
        step = mapping(self.facts.get("step"))
        host_ms, device_ms = number(step.get("host_ms")), number(step.get("device_ms"))
        if host_ms is None or not device_ms:
            return None
        seconds = sum(self.loading.known("seconds")) - sum(self.loading.known("start_s"))
        batches = sum(self.loading.known("batches"))
        if seconds <= 0 or batches <= 0:
            return Launch(host_ms, device_ms, graphs=self._may_have_graphs)
        work_ms = None if self.busy is None else 1e3 * self.busy * seconds / batches
        after_ms = 1e3 * (seconds - sum(self.loading.known("wait_s"))) / batches - device_ms
        return Launch(host_ms, device_ms, work_ms, after_ms, self._may_have_graphs)

    @property
    def _may_have_graphs(self) -> bool:
        """Whether nobody has tried device graphs, and nothing stands against it."""
        compiled, several = self.arguments.get("compile"), "," in str(self.arguments.get("device"))
        vendor = self._setting("conv.engine").get("value") == "vendor"
        return not (self.facts.get("graphs") or compiled or several or vendor)

    def _setting(self, key: str) -> dict[str, Any]:
        return mapping(mapping(mapping(self.facts.get("settings")).get("values")).get(key))

    @cached_property
    def room(self) -> Room:
        """What the memory of the GPU had room for."""
        batch, memory = mapping(self.facts.get("batch")), self._setting("step.memory")
        asked, used = number(batch.get("asked")), number(batch.get("used"))
        _, _, why = str(memory.get("origin")).partition("(auto: ")
        lean = f"step.memory: lean, auto: {why.rstrip(')')}" if why and memory.get("value") == "lean" else ""
        return Room(self.memory_share, None if asked is None else int(asked), None if used is None else int(used), lean)

    @cached_property
    def convolutions_ms(self) -> float | None:
        """Milliseconds of all convolutions in one sampled step."""
        known = [row["total_ms"] for row in self.layers if row["total_ms"] is not None]
        return sum(known) if known else None

    @cached_property
    def by_algorithm(self) -> tuple[str, dict[str, float]]:
        """Milliseconds of a step by algorithm; where nothing was timed, the number of passes each of them computes."""
        timed: dict[str, float] = defaultdict(float)
        counted: Counter[str] = Counter()
        seen: set[str] = set()
        for row in self.layers:
            again = str(row.get("layer")) in seen  # at a shape of validation, which has no backward pass
            seen.add(str(row.get("layer")))
            for which in PASSES:
                if isinstance(row.get(which), str):
                    counted[row[which]] += not again
                    timed[row[which]] += row["times_ms"][which] or 0.0
        if sum(timed.values()) > 0:
            return "ms", dict(sorted(((k, v) for k, v in timed.items() if v > 0), key=lambda item: -item[1]))
        return "passes", {name: float(value) for name, value in counted.most_common() if value}

    @cached_property
    def metric(self) -> str | None:
        """Name of the column of the results that sums up how well the model does; None without validation."""
        names = [name for name in self.results.values if name.startswith("metrics/")]
        return next((name for name in names if name.startswith("metrics/mAP50-95")), next(iter(names), None))

    def best(self, column: str) -> float | None:
        """Return the largest value of a column of the results."""
        return max(self.results.known(column), default=None)
