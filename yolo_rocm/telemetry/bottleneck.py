"""What held a training up: the data, the memory of the GPU, the computation or the host.

One judgement for all who ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# Below this share of the time, waiting for data is not what a training is held up by.
BOUND: Final = 0.1
# A smaller part of a step cannot be noticed.
_NOTICED: Final = 0.05
# On a CPU, loading and computing share the processors: a wait vanishes only where this part of them has nothing to do.
IDLE: Final = 0.5
# torch keeps what it once reserved, so a card at this level has no room for a larger batch.
FULL: Final = 0.92
# Busy for less of the time than this, a GPU has room for more work in each step.
FILLED: Final = 0.8
# Processors in use to this share make whoever asks for one wait.
CROWDED: Final = 0.85
# If the host takes this part, or more, of the time until the GPU is through with a step to launch it, the GPU waits for
# the host. The same share lets `step.graph: auto` try device graphs.
SETS_THE_PACE: Final = 0.7

NOT_DATA: Final = "not data-bound"
CACHE: Final = "cache=ram (cache=disk where memory is short)"
ADVICE: Final = f"more workers, {CACHE}"
FASTER_READING: Final = "faster storage, or more processor cores"

Kind = Literal["compute", "data", "memory", "host", "unknown"]


@dataclass(frozen=True)
class Bottleneck:
    """The judgement.

    Attributes:
        kind: What training was bound by.
        name: The same in a word, e.g. `data-bound`.
        why: By how much, as the middle of a sentence.
        change: What to change, as the end of a sentence; empty where there is nothing to gain by a setting.
    """

    kind: Kind
    name: str
    why: str
    change: str

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        return f"{self.name[:1].upper()}{self.name[1:]}: {self.why}{f'; {self.change}' if self.change else ''}."

    @property
    def short(self) -> str:
        """In a few words, for the line of an epoch: it knows the wait for data, and not what else set the pace."""
        return {"data": f"{self.name}: {self.change}", "unknown": ""}.get(self.kind, NOT_DATA)


@dataclass(frozen=True)
class StepLaunch:
    """A step as it was launched, from sampled ones.

    Attributes:
        host_ms: Milliseconds the host takes to launch it.
        device_ms: Milliseconds until the GPU is through with it.
        after_ms: Milliseconds from then until the next step begins, without the wait for its data; from whole epochs.
        graphs: Whether device graphs could still be tried for it.
    """

    host_ms: float
    device_ms: float
    after_ms: float | None = None
    graphs: bool = False

    @property
    def waits(self) -> bool:
        """Whether the GPU waits for the host."""
        return self.host_ms >= SETS_THE_PACE * self.device_ms


@dataclass(frozen=True)
class Room:
    """What the memory of the GPU has room for.

    Attributes:
        share: Largest part of it in use, from 0 to 1.
        asked: Batch the training was to have; None where it is not known.
        used: Batch it had.
    """

    share: float | None = None
    asked: float | None = None
    used: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether no larger batch fits: memory is in use, or a larger batch was tried."""
        return self._is_smaller or (self.share is not None and self.share >= FULL)

    @property
    def _is_smaller(self) -> bool:
        return self.asked is not None and self.used is not None and self.used < self.asked

    @property
    def words(self) -> str:
        """What has shown that it is full."""
        tried = f"a batch of {self.asked:.0f} did not fit and one of {self.used:.0f} did" if self._is_smaller else ""
        in_use = "" if self.share is None else f"{self.share:.0%} of the GPU's memory was in use"
        return ", ".join(filter(None, (tried, in_use)))


_UNKNOWN_ROOM: Final = Room()


def judge(
    wait_share: float | None,
    compute: str = "GPU",
    advice: str = ADVICE,
    room: Room = _UNKNOWN_ROOM,
    busy: float | None = None,
    host: float | None = None,
    launch: StepLaunch | None = None,
    convolutions: float | None = None,
) -> Bottleneck:
    """Say what a training was bound by.

    Args:
        wait_share: Part of the time that training waited for data, from 0 to 1; None where nobody measured.
        compute: What it ran on: `GPU` or `CPU`.
        advice: What to try where data is the bottleneck.
        room: What the GPU's memory has room for.
        busy: Part of the time that the GPU was busy, from 0 to 1.
        host: Part of the machine's processor time that was in use, by every program, from 0 to 1.
        launch: How a step was launched; None where that was not measured.
        convolutions: Part of a step that is convolutions, from 0 to 1; None where the rest of it was not measured.
    """
    if wait_share is None:
        why = "no epoch has told how long it waited for data"
        return Bottleneck("unknown", "not measured", why, "train at least one epoch")
    filled = compute == "GPU" and busy is not None and busy >= FILLED
    if wait_share >= BOUND and compute == "CPU" and (host is None or host > 1 - IDLE):
        return _by_the_same_processors(wait_share, host)
    if wait_share >= BOUND:
        if host is not None and host >= CROWDED:  # another worker would find no processor
            advice = ", ".join(tip for tip in advice.split(", ") if "workers" not in tip) or FASTER_READING
        at_most = f", so training could be up to {1 / (1 - wait_share):.2f} times as fast" if wait_share < 1 else ""
        why = f"the {compute} waited {wait_share:.1%} of the time for data{at_most}"
        return Bottleneck("data", "data-bound", why, f"try {advice}")
    used = "" if busy is None else f", and the {compute} was busy {busy:.0%} of the time"
    waited = f"only {wait_share:.1%} of the time was spent waiting for data{used}"
    if compute == "CPU":
        if host is not None and host >= CROWDED:
            waited += f", and the processors were {host:.0%} busy, with this run or other programs"
        return Bottleneck("compute", "CPU-bound", waited, "a GPU, a smaller model or a smaller imgsz would be faster")
    if room.is_full and not filled:
        why = f"{room.words}{used}, so there is no room for a larger batch"
        change = "try amp=True, a smaller imgsz, or a lower rocm.conv.memory_mb, and then a larger batch"
        return Bottleneck("memory", "memory-bound", why, change)
    if not filled and (busy is not None or (launch is not None and launch.waits)):
        return _host_bound(wait_share, room, busy, launch)
    if busy is None and launch is None:
        change = "more workers would not help; whether the GPU or the host set the pace was not measured"
        return Bottleneck("compute", NOT_DATA, waited, change)
    if busy is None and launch is not None:
        waited += f", and the host launches in {launch.host_ms:.1f} ms what the GPU takes {launch.device_ms:.1f} ms for"
    part = "" if convolutions is None else f", {convolutions:.0%} of a step,"
    change = f"more workers would not help; a faster engine for the convolutions below{part} would"
    return Bottleneck("compute", "GPU-bound", waited, change)


def _by_the_same_processors(wait_share: float, host: float | None) -> Bottleneck:
    """Judge a training on a CPU that waited for data, where more workers may only take time from the computation."""
    waited = f"{wait_share:.1%} of the time was spent waiting for data, which the same processors load"
    if host is None:
        why = f"{waited}; how much of them was in use was not measured"
        return Bottleneck("unknown", "not judged", why, "train with rocm.report.telemetry=true to know")
    why = f"{waited}, and {host:.0%} of them was in use"
    return Bottleneck("compute", "CPU-bound", why, "a GPU, a smaller model or a smaller imgsz would be faster")


def _host_bound(wait_share: float, room: Room, busy: float | None, launch: StepLaunch | None) -> Bottleneck:
    """Say how the host held a training up whose GPU was not filled."""
    why, change = [], "a larger batch"
    if room.share is not None:
        change += f" ({room.share:.0%} of the memory is in use)"
    if busy is not None:
        why.append(f"the GPU was busy only {busy:.0%} of the time though it waited {wait_share:.1%} for data")
    if launch is None:
        why.append("the host, which launches the work of each step, set the pace")
    else:
        why.append(
            f"the host needs {launch.host_ms:.1f} ms to launch a step, and the GPU is through with it after "
            f"{launch.device_ms:.1f} ms"
        )
        if launch.waits and launch.graphs:
            change = f"device graphs (rocm.step.graph=auto) or {change}"
        if not launch.waits and (launch.after_ms or 0.0) >= _NOTICED * launch.device_ms:
            why.append(
                f"{launch.after_ms:.1f} ms more pass until the next one begins, with callbacks, loggers and the "
                "progress bar"
            )
            change = f"to leave out what runs after each step, or {change}"
    change = f"try {change}; faster convolutions or more workers would not help"
    return Bottleneck("host", "host-bound", ": ".join(why), change)
