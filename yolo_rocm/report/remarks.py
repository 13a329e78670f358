"""What is odd about a run, in words."""

from __future__ import annotations

from .files import number
from .run import RunData
from .words import counted


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
        found.append(
            f"{run.metric.removeprefix('metrics/')} is 0 after {counted(done, 'epoch')}: no prediction has matched a "
            "label yet. That is usual in the first epochs of a model that begins from random weights, and with a few "
            "dozen images. If it stays so with pretrained weights or after many epochs, look at the labels (labels.jpg "
            "and train_batch0.jpg of the run show what was read) and the losses"
        )
    if again:
        found.append("some epochs were run more than once: the last try of each is shown")
    if run.arguments.get("resume") or pauses:
        cut = f"; {counted(pauses, 'pause')} cut out of the telemetry" if pauses else ""
        found.append(f"the run was resumed or paused{cut}")
    return found
