"""One mode of a model other than training, under a preset: what the command line's sub-commands run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import ultralytics_hooks as hooks
from .run import run, run_method
from .session import Session

if TYPE_CHECKING:
    from ..conv.report import ConvReport
    from ..preset.schema import Settings

MODES: Final = ("val", "predict", "track", "export", "benchmark")
_STREAMS: Final = ("predict", "track")


@dataclass(frozen=True)
class ModeOutcome:
    """What a finished mode leaves behind.

    Attributes:
        result: What Ultralytics returned: metrics of `val`, the file of `export`, the table of `benchmark`, and how
            many images were predicted.
        report: What the convolutions were computed by.
        settings: Final values of the preset.
    """

    result: Any
    report: ConvReport | None
    settings: Settings


def run_mode(
    mode: str,
    /,
    model: Any = None,
    preset: str | Path | Mapping[str, Any] = "auto",
    rocm: Mapping[str, Any] | None = None,
    task: str | None = None,
    **arguments: Any,
) -> ModeOutcome:
    """Run a mode of a model under a preset.

    Args:
        mode: One of `MODES`.
        model: Weights, an exported model or a model YAML.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset for this run.
        task: Where the model's file does not tell it.
        **arguments: Ultralytics' arguments for the mode. As `yolo` does, `predict` and `track` save by default.

    Raises:
        YoloRocmError: A preset, an argument, the model or the data is wrong; nothing has run.
    """
    arguments.pop("mode", None)  # a file made for another mode has it
    session = Session(preset, rocm, **arguments)
    with session.environment():
        hooks.require()
        hooks.check_mode(mode, model, arguments)
        if mode in _STREAMS:
            # A video of any length: one result at a time is in memory, not all of them.
            arguments = {"save": True, **arguments, "stream": True}
        with run(session, arguments):  # a model YAML is run once while it is built, to find its strides
            yolo = hooks.load_model(model, task)
            result = run_method(session, yolo, mode, getattr(yolo, mode), (), arguments)
            if mode in _STREAMS:
                last = deque(enumerate(result, start=1), maxlen=1)
                result = last[0][0] if last else 0
    return ModeOutcome(result, session.report, session.settings)
