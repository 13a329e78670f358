"""What held a training up: the data, the memory of the GPU, the computation, the host or other programs.

One judgement for all who ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# Below this share a faster loader cannot be noticed in the noise of a training step.
BOUND: Final = 0.05
# torch keeps what it once reserved, so a card at this level has no room for a larger batch.
FULL: Final = 0.92
# Busy for less of the time than this, a GPU has room for more work in each step.
FILLED: Final = 0.8
# Processors in use to this share make whoever asks for one wait.
CROWDED: Final = 0.85
# What other programs take of a crowded machine before they count: the desktop and the driver take some of any machine.
OTHERS: Final = 0.25

NOT_DATA: Final = "not data-bound"

Kind = Literal["compute", "data", "memory", "host", "busy", "unknown"]


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
        return f"{self.name}: {self.change}" if self.kind == "data" else NOT_DATA


def judge(
    wait_share: float | None,
    compute: str = "GPU",
    advice: str = "more workers, cache=disk",
    memory_share: float | None = None,
    busy: float | None = None,
    host: float | None = None,
    own: float | None = None,
) -> Bottleneck:
    """Say what a training was bound by.

    Args:
        wait_share: Part of the time that training waited for data, from 0 to 1; None where nobody measured.
        compute: What it ran on: `GPU` or `CPU`.
        advice: What to try where data is the bottleneck.
        memory_share: Largest part of the GPU's memory in use, from 0 to 1.
        busy: Part of the time that the GPU was busy, from 0 to 1.
        host: Part of the machine's processor time that was in use, by every program, from 0 to 1.
        own: Part of it that this training and its workers used.
    """
    if wait_share is None:
        why = "no epoch has told how long it waited for data"
        return Bottleneck("unknown", "not measured", why, "train at least one epoch")
    filled = compute == "GPU" and busy is not None and busy >= FILLED
    if not filled and host is not None and own is not None and host >= CROWDED and host - own >= OTHERS:
        why = (
            f"other programs used {host - own:.0%} of the processors and this training {own:.0%}, "
            f"so its times say little about its own settings ({wait_share:.1%} of the time was spent waiting for data)"
        )
        return Bottleneck("busy", "busy machine", why, "train again while nothing else runs, then judge")
    if wait_share >= BOUND:
        at_most = f", so training could be up to {1 / (1 - wait_share):.2f} times as fast" if wait_share < 1 else ""
        why = f"the {compute} waited {wait_share:.1%} of the time for data{at_most}"
        return Bottleneck("data", "data-bound", why, f"try {advice}")
    used = "" if busy is None else f", and the {compute} was busy {busy:.0%} of the time"
    waited = f"only {wait_share:.1%} of the time was spent waiting for data{used}"
    if compute == "CPU":
        if host is not None and own is None and host >= CROWDED:
            waited += f", and the processors were in use to {host:.0%}, by which programs was not measured"
        return Bottleneck("compute", "CPU-bound", waited, "a GPU, a smaller model or a smaller imgsz would be faster")
    if memory_share is not None and memory_share >= FULL and not filled:
        why = f"{memory_share:.0%} of the GPU's memory was in use{used}, so there is no room for a larger batch"
        change = "try amp=True, a smaller imgsz, or a lower rocm.conv.memory_mb, and then a larger batch"
        return Bottleneck("memory", "memory-bound", why, change)
    if busy is not None and not filled:
        room = "" if memory_share is None else f" ({memory_share:.0%} of the memory is in use)"
        why = (
            f"the GPU was busy only {busy:.0%} of the time though it waited {wait_share:.1%} for data: "
            "the host, which launches the work of each step, set the pace"
        )
        change = f"try a larger batch{room}; faster convolutions or more workers would not help"
        return Bottleneck("host", "host-bound", why, change)
    if busy is None:
        change = "more workers would not help; whether the GPU or the host set the pace was not measured"
        return Bottleneck("compute", NOT_DATA, waited, change)
    change = "more workers would not help; a faster engine for the convolutions below would"
    return Bottleneck("compute", "GPU-bound", waited, change)
