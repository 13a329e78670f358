"""Runs from their beginning to their end: a training, or another mode of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..inference.exporting import export_checked, is_checked
from ..inference.predictor import predictor
from ..preset.cfg_file import TASKS, with_file
from ..session.given import merge, with_newest, with_resumed_preset
from ..session.relaunch import AUTO, start
from ..session.run import run, run_method
from ..session.session import Session
from ..ultralytics_hooks import models, resuming, versions
from ..ultralytics_hooks.arguments import check_arguments, check_data, check_mode
from ..ultralytics_hooks.log import say
from .registration import PresetSource

if TYPE_CHECKING:
    from ..conv.report import ConvReport


@dataclass(frozen=True)
class RunOutcome:
    """What a finished run leaves behind.

    Attributes:
        result: What Ultralytics returned: metrics of `train` and `val`, the file of `export`, the table of
            `benchmark`, and how many images were predicted.
        report: What the convolutions were computed by.
        folder: The folder of a training.
        inference: What blocks were computed by where nothing was trained.
    """

    result: Any
    report: ConvReport | None = None
    folder: Path | None = None
    inference: ConvReport | None = None


def train(
    model: Any = None,
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Train a model under a preset.

    Args:
        model: Weights, a model YAML, or a YOLO object; by default what the file of `cfg=` names, or the smallest
            model of the task, yolo11n.pt.
        data: Data set, as Ultralytics takes it.
        preset: A preset's name, a YAML file or a dictionary; `auto` is that of the `cfg=` file, or chosen by the card.
        rocm: Sections over the preset for this run.
        **arguments: Any training argument of Ultralytics; it wins over the preset. `cfg=` is a file of such arguments,
            which may have `preset` and `rocm` too; those of the call win over it. `resume=PATH` goes on from a
            `last.pt`; `resume="auto"` from that of the run that `project` and `name` name, and begins that run where
            there is none.

    Returns:
        Ultralytics' metrics object; None where `resume="auto"` finds the training complete.

    Raises:
        YoloRocmError: A preset, argument or data set is wrong, or an engine cannot compute the model; nothing is left
            patched and no run folder behind.
    """
    return run_training(model, data, preset, rocm, **arguments).result


def run_training(
    model: Any = None,
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    relaunched: bool = False,
    **arguments: Any,
) -> RunOutcome:
    """Train like `train`, and return the run's report and folder too.

    Args:
        model: As in `train`.
        data: As in `train`.
        preset: As in `train`.
        rocm: As in `train`.
        relaunched: This process trains once; where torchrun has started it again, it goes on from its `last.pt`.
        **arguments: As in `train`.
    """
    given = with_file(arguments)
    of_file = {name: given.pop(name, None) for name in ("preset", "model", "data", "rocm")}
    if model is not None and "task" not in arguments:
        given.pop("task", None)  # a model that was given tells its own
    resume, data = given.get("resume"), of_file["data"] if data is None else data
    # Not left to Ultralytics, which takes neither the model nor the task of the file, and would resume any run.
    model = with_newest(of_file["model"] if model is None else model, resume)
    preset = of_file["preset"] or preset if preset == AUTO else preset
    session = Session(preset, merge(of_file["rocm"], rocm), **given)
    session, given = with_resumed_preset(session, model, given)
    last = resume if resume and isinstance(resume, str | Path) and resume != AUTO else None
    task = given.get("task")
    model = model or TASKS.get(str(task), TASKS["detect"])
    # The model is built under the preset too: Ultralytics runs it once to find its strides.
    with run(session, given, trains=True):
        check_arguments(given)
        check_data(data)
        given.update({name: value for name, value in (("data", data), ("resume", last and True)) if value is not None})
        yolo = models.load_model(model, task) if last is None else resuming.unfinished(last, model)
        begin = start(yolo, given, session.settings.preset.ranks.timeout_s, relaunched=relaunched)
        if begin.complete is not None:
            say("run.complete", f"the training in {begin.complete} is complete: nothing is left to do")
            return RunOutcome(None, session.report, begin.complete)
        yolo = begin.yolo
        if begin.arguments.get("resume") is True:
            resuming.check_resumable(yolo)
        metrics = run_method(session, yolo, "train", models.own_mode(yolo, "train"), (), begin.arguments)
        return RunOutcome(metrics, session.report, Path(yolo.trainer.save_dir))


def run_mode(
    mode: str,
    /,
    model: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    task: str | None = None,
    **arguments: Any,
) -> RunOutcome:
    """Run a mode of a model other than training under a preset: what the command line's sub-commands run.

    Args:
        mode: `val`, `predict`, `track`, `export` or `benchmark`.
        model: Weights, an exported model or a model YAML.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset for this run.
        task: Where the model's file does not tell it.
        **arguments: Ultralytics' arguments for the mode. As `yolo` does, `predict` and `track` save by default; they
            also take `engine`, as `predictor` does.

    Raises:
        YoloRocmError: A preset, an argument, the model or the data is wrong; nothing has run.
    """
    arguments.pop("mode", None)  # a file made for another mode has it
    streams = mode in ("predict", "track")
    engine = arguments.pop("engine", None) if streams else None
    session = Session(preset, rocm, **arguments)
    with session.environment(arguments.get("device")):
        versions.require()
        check_mode(mode, model, arguments)
        if mode == "export" and is_checked(model, arguments):
            return RunOutcome(export_checked(model, task, **arguments))
        if engine is not None:
            source = arguments.pop("source", None)
            chosen = predictor(model, engine, preset, rocm, task, **{"save": True, **arguments})
            results = (chosen if mode == "predict" else chosen.track)(source, stream=True)
            return RunOutcome(sum(1 for _ in results), chosen.report)
        if streams:  # a video of any length: one result at a time is in memory, not all of them
            arguments = {"save": True, **arguments, "stream": True}
        with run(session, arguments):
            yolo = models.load_model(model, task)
            result = run_method(session, yolo, mode, getattr(yolo, mode), (), arguments)
            if streams:
                result = sum(1 for _ in result)
    return RunOutcome(result, session.report, inference=session.inference.report)
