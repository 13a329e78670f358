"""What is odd about a run, in words."""

from __future__ import annotations

from typing import Final

from .files import number
from .run import RunData
from .words import counted, duration

# Telemetry goes on until the last evaluation is over. Where it has less than this part of what the epochs took, and
# more than a few looks are missing, it has ended before.
_SHORTER: Final = 0.9
_LOOKS_S: Final = 30.0


def remarks(run: RunData, again: bool, pauses: int) -> list[str]:
    """Return what is odd.

    Args:
        run: The run.
        again: Whether epochs were run more than once.
        pauses: How many were cut out of the telemetry.
    """
    found = []
    asked, done = number(run.arguments.get("epochs")), len(run.results.x)
    if asked and done < asked:
        found.append(f"{done} of {asked:.0f} epochs are there: the run was stopped, ended early, or still goes on")
    if run.arguments.get("val") is False:
        found.append("the run had no validation (val=False): metrics are those of its last epoch, or missing")
    if run.metric and run.best(run.metric) == 0:
        found.append(_no_match(run.metric.removeprefix("metrics/"), done))
    if again:
        found.append("some epochs were run more than once: the last try of each is shown")
    resumed = bool(run.arguments.get("resume") or pauses)
    if resumed:
        cut = f"; {counted(pauses, 'pause')} cut out of the telemetry" if pauses else ""
        found.append(f"the run was resumed or paused{cut}")
    telemetry = _telemetry(run, resumed)
    return [*found, telemetry] if telemetry else found


def _no_match(metric: str, epochs: int) -> str:
    return (
        f"{metric} is 0 after {counted(epochs, 'epoch')}: no prediction has matched a label yet. That is usual in the "
        "first epochs of a model that begins from random weights, and with a few dozen images. If it stays so with "
        "pretrained weights or after many epochs, look at the labels (labels.jpg and train_batch0.jpg of the run show "
        "what was read) and the losses"
    )


def _telemetry(run: RunData, resumed: bool) -> str | None:
    """Return until when there is telemetry, where that is not to the end."""
    told = run.telemetry.x
    took = run.total_s or 0.0
    if told and not resumed and 60 * told[-1] + _LOOKS_S < _SHORTER * took:
        return (
            f"telemetry ends after {duration(60 * told[-1])}, the epochs took {duration(took)}: "
            "the charts of GPU and host, and means of them, know nothing of the rest"
        )
    return None
