"""The head of the page for one run: what was trained on what, and the numbers that sum it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..telemetry.bottleneck import FILLED
from ..telemetry.classes import OPTIMIZER
from .files import mapping, number, rows_of
from .run import RunData
from .sections import gpu_words, text
from .spread import later_half, settled
from .words import counted, duration, gigabytes, milliseconds, moment


@dataclass(frozen=True)
class KeyNumber:
    """One number of the head of the page.

    Attributes:
        label: What it is.
        value: The number; None where it was not measured.
        form: Writes it.
        better: Which direction is: 1 up, -1 down, 0 neither.
        epochs: The same number of the epochs by which two runs are compared, where it is one of epochs.
        kind: What that is of: a `time` or a `metric`.
        compared: What it is when it is compared, where that is something else.
    """

    label: str
    value: float | None
    form: Callable[[float], str]
    better: int = 0
    epochs: Sequence[float] = ()
    kind: Literal["", "time", "metric"] = ""
    compared: str = ""

    @property
    def shown(self) -> str:
        """The number as the page says it."""
        return "" if self.value is None else self.form(self.value)


def tiles(run: RunData) -> list[KeyNumber]:
    """Return the numbers that sum up a run; those that were not measured are left out."""
    peak = max(run.telemetry.known("vram_used_mb"), default=None)
    asked = number(run.arguments.get("epochs"))
    metric = (run.metric or "").removeprefix("metrics/")
    learned = later_half(run.results.known(run.metric or ""))
    of = f" of {asked:.0f}" if asked else ""
    loading, power = run.loading, run.telemetry.known("power_w")
    known = [
        KeyNumber(
            "images/s",
            run.images_per_s,
            "{:.1f}".format,
            1,
            settled([v for v in run.epoch_rates if v is not None]),
            "time",
        ),
        KeyNumber("waited for data", run.wait_share, "{:.1%}".format, -1, settled(loading.known("wait_share")), "time"),
        KeyNumber("training of an epoch", run.epoch_s, duration, -1, settled(loading.known("seconds")), "time"),
        KeyNumber("epochs", float(len(run.results.x)) or None, lambda value: f"{value:.0f}{of}"),
        KeyNumber(
            f"best {metric}", run.best(run.metric or ""), "{:.3f}".format, 1, learned, "metric", f"{metric}, later half"
        ),
        KeyNumber("GPU busy", run.busy, "{:.0%}".format),
        KeyNumber("peak GPU memory", peak, gigabytes, -1),
        KeyNumber("GPU memory in use", run.memory_share, "{:.0%}".format),
        KeyNumber("hottest", max(run.telemetry.known("temperature_c"), default=None), "{:.0f} °C".format),
        KeyNumber("mean power", sum(power) / len(power) if power else None, "{:.0f} W".format),
        KeyNumber("CPU of the host", run.host, "{:.0%}".format),
        # Of a few steps: a change of it is no proof.
        KeyNumber("sampled step, while watched", run.step_ms, milliseconds),
        KeyNumber("host, to launch a step", None if run.launch is None else run.launch.host_ms, milliseconds),
    ]
    return [tile for tile in known if tile.value is not None]


def head_rows(run: RunData) -> list[tuple[str, str]]:
    """Return what was trained on what, and when, as far as it is known."""
    preset = mapping(run.facts.get("settings")).get("preset")
    began = mapping(run.facts.get("run")).get("began")
    rows = [
        ("device", _device(run)),
        ("model", _end(run.arguments.get("model"), 1)),
        ("data", _end(run.arguments.get("data"), 2)),
        ("preset", preset if isinstance(preset, str) else None),
        ("began", moment(began) if isinstance(began, str) else None),
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


def rest_of_step(run: RunData) -> str | None:
    """Return what part of a sampled step the convolutions are, where no other class of operator was measured."""
    part, whole = run.convolutions_ms, run.step_ms
    if part is None or not whole or part > whole or run.classes_ms:
        return None
    idle = ""
    if run.compute == "GPU" and run.busy is not None and run.busy < FILLED:
        idle = f" Over all steps the GPU was busy {run.busy:.0%} of the time: much of the rest is such gaps."
    waits = "the GPU waits for the host" if run.compute == "GPU" else "the processor waits"
    return (
        f"Convolutions take {milliseconds(part)} of a sampled step of {milliseconds(whole)} ({part / whole:.0%}). The "
        f"other {milliseconds(whole - part)} are normalisation, activations, loss, optimiser, copies, and gaps while "
        f"{waits}; how much each of them takes was not measured.{idle}"
    )


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
