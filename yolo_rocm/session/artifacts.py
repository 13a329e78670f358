"""The files a training leaves next to `results.csv`: facts in `rocm.json`, the page, and its plots as pictures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..ultralytics_hooks import trainers, versions
from ..ultralytics_hooks.log import say
from ..utils.atomic import write_file
from .current_run import OngoingRun

if TYPE_CHECKING:
    from ..hardware import Machine
    from ..preset.schema import Settings
    from ..telemetry.wait_meter import Meter

FACTS_FILE: Final = "rocm.json"


def write_facts(trainer: Any, run: OngoingRun, meter: Meter, began: datetime, known: Mapping[str, Any]) -> None:
    """Write settings with their origins, the tables of convolutions and of BatchNorm, and the machine.

    Args:
        trainer: The trainer.
        run: The run it is of.
        meter: How long it has waited for data.
        began: When.
        known: What else the training knows, by key; of its `step` what sampled steps have shown besides their layers.
    """
    import torch

    from ..engines.hip.available import in_words_so_far
    from ..engines.triton.available import in_words

    session, settings = run.session, run.settings
    norms = session.normalisations.report
    data = {
        "stack": {
            "torch": torch.__version__,
            "ultralytics": versions.installed(),
            "triton": in_words(str(trainer.device)),
            "hip_engine": in_words_so_far(str(trainer.device)),
        },
        "settings": settings.as_dict(),
        "convolutions": session.report.as_dict(),
        "normalisations": norms.as_dict() if norms is not None else {},  # left to torch
        **known,
        "step": {**session.report.times.step(), **known.get("step", {})},
        "broken_images": meter.broken,
        "loading": {"compute": meter.compute, "advice": meter.advice},
        "run": {"classes": trainers.class_names(trainer), "began": began.isoformat(timespec="minutes")},
        **surroundings(session.machine, settings),
    }
    write_file(Path(trainer.save_dir) / FACTS_FILE, json.dumps(data, indent=2, default=str) + "\n")


def surroundings(machine: Machine, settings: Settings) -> dict[str, Any]:
    """Return the machine and what the doctor's checks find without asking the device, as plain data.

    A training is going on: a check that fails itself costs its findings, not the run.
    """
    from ..diagnosis.checks import run_checks
    from ..diagnosis.context import Context, training_environment
    from ..diagnosis.doctor import machine_facts

    try:
        context = Context(machine, settings.preset, training_environment(settings.preset, machine), Path.home())
        findings = [dataclasses.asdict(finding) for finding in run_checks(context)]
        return {"machine": machine_facts(machine), "findings": findings}
    except Exception as error:
        text = f"the doctor's findings are not in the report: {type(error).__name__}: {error}"
        say("report.no_findings", text, warning=True)
        return {}


def write_run_page(trainer: Any, settings: Settings, *, pictures: bool = True) -> None:
    """Write `report.html` next to the results, and its plots where the training makes plots.

    The training is over and its results are safe: whatever goes wrong here is one line of warning.

    Args:
        trainer: The trainer.
        settings: The preset; it may not want the page.
        pictures: Draw the plots; a run that is being stopped has no time for them.
    """
    if not settings.preset.report.html:
        return
    try:
        from ..report.page import write_page

        path, (run,) = write_page(Path(trainer.save_dir))
        say("report.written", f"{run.verdict.sentence} See {path}")
        if pictures and getattr(trainer.args, "plots", False):
            from ..report.pictures import write_pictures

            for picture in write_pictures(run, Path(trainer.save_dir)):
                trainer.on_plot(picture)
    except Exception as error:
        say("report.failed", f"the report is not complete: {type(error).__name__}: {error}", warning=True)
