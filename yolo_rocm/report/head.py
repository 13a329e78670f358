"""The head of the page for one run: what was trained on what, and the numbers that sum it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from ..telemetry.classes import OPTIMIZER
from .files import mapping, number, rows_of
from .run import RunData
from .sections import gpu_words, text
from .words import counted, duration, gigabytes, milliseconds


@dataclass(frozen=True)
class KeyNumber:
    """One number of the head of the page.

    Attributes:
        label: What it is.
        value: The number; None where it was not measured.
        form: Writes it.
        better: Which direction is: 1 up, -1 down, 0 neither.
        epochs: The same number of the epochs by which two runs are compared, where it is one of epochs.
        compared: What those are, where it is something else.
    """

    label: str
    value: float | None
    form: Callable[[float], str]
    better: int = 0
    epochs: Sequence[float] = ()
    compared: str = ""

    @property
    def shown(self) -> str:
        """The number as the page says it."""
        return "" if self.value is None else self.form(self.value)


def tiles(run: RunData) -> list[KeyNumber]:
    """Return the numbers that sum up a run; those that were not measured are left out."""
    metric, asked = run.metric or "", number(run.arguments.get("epochs"))
    name = metric.removeprefix("metrics/")
    of = f" of {asked:.0f}" if asked else ""
    learned, loading, telemetry = run.results.known(metric), run.loading, run.telemetry
    power = telemetry.known("power_w")
    rates = [rate for rate in run.epoch_rates if rate is not None]
    host_ms = None if run.launch is None else run.launch.host_ms
    known = [
        KeyNumber("images/s", run.images_per_s, "{:.1f}".format, 1, _settled(rates)),
        KeyNumber("waited for data", run.wait_share, "{:.1%}".format, -1, _settled(loading.known("wait_share"))),
        KeyNumber("training of an epoch", run.epoch_s, duration, -1, _settled(loading.known("seconds"))),
        KeyNumber("epochs", float(len(run.results.x)) or None, lambda value: f"{value:.0f}{of}"),
        KeyNumber(
            f"best {name}", run.best(metric), "{:.3f}".format, 1, learned[len(learned) // 2 :], f"{name}, later half"
        ),
        KeyNumber("GPU busy", run.busy, "{:.0%}".format),
        KeyNumber("peak GPU memory", max(telemetry.known("vram_used_mb"), default=None), gigabytes, -1),
        KeyNumber("GPU memory in use", run.memory_share, "{:.0%}".format),
        KeyNumber("hottest", max(telemetry.known("temperature_c"), default=None), "{:.0f} °C".format),
        KeyNumber("mean power", mean(power) if power else None, "{:.0f} W".format),
        KeyNumber("CPU of the host", run.host, "{:.0%}".format),
        # Of a few steps: a change of it is no proof.
        KeyNumber("sampled step, while watched", run.step_ms, milliseconds),
        KeyNumber("host, to launch a step", host_ms, milliseconds),
    ]
    return [tile for tile in known if tile.value is not None]


def _settled(values: Sequence[float]) -> Sequence[float]:
    """Return the values of epochs without the first, which starts workers and warms up, where others are left."""
    return values[1:] or values


def head_rows(run: RunData) -> list[tuple[str, str]]:
    """Return what was trained on what, and when, as far as it is known."""
    began = mapping(run.facts.get("run")).get("began")
    rows = [
        ("device", _device(run)),
        ("model", _end(run.arguments.get("model"), 1)),
        ("data", _end(run.arguments.get("data"), 2)),
        ("preset", mapping(run.facts.get("settings")).get("preset")),
        ("began", str(began).replace("T", " ") if began else None),
        ("total time", None if run.total_s is None else duration(run.total_s)),
    ]
    return [(label, text(value)) for label, value in rows if value is not None]


def _end(path: Any, parts: int) -> str | None:
    """Return the end of a path that tells one from the other; all of it is among the arguments."""
    return "/".join(str(path).replace("\\", "/").split("/")[-parts:]) if path is not None else None


def _device(run: RunData) -> str | None:
    machine = mapping(run.facts.get("machine"))
    if run.compute == "CPU":
        cores = number(machine.get("cores"))
        return f"CPU, {counted(round(cores), 'core')}" if cores else "CPU"
    gpus = [gpu_words(gpu) for gpu in rows_of(machine.get("gpus")) if not gpu.get("hidden_by")]
    return " and ".join(dict.fromkeys(gpus)) or None


def step_words(run: RunData) -> list[str]:
    """Return what is to be known about the split of a step, and how long the host takes to launch one."""
    found = []
    if run.classes_ms:
        gaps = "the GPU waits for the host" if run.compute == "GPU" else "Python runs"
        missing = "" if OPTIMIZER in run.classes_ms else " In none of the sampled steps the optimizer made its own."
        found.append(
            "Medians of sampled steps, which take longer than others because they are watched. Gaps while "
            f"{gaps} count for what follows them. An activation that is computed together with its BatchNorm counts as "
            f"normalisation. Other is copies, concatenations, sums, and what comes after the optimizer.{missing}"
        )
    launch = run.launch
    if launch is not None:
        pace = "the GPU waits for the host" if launch.waits else "the host is ahead of the GPU"
        found.append(
            f"The host needs {milliseconds(launch.host_ms)} to launch a step that nobody watches, and the GPU is "
            f"through with it after {milliseconds(launch.device_ms)}: {pace}."
        )
    return found
