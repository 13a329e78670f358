"""Ultralytics' test of mixed precision, where the weights it is done with cannot be had."""

from __future__ import annotations

import inspect
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ..utils.scoped_patch import attribute
from .log import say
from .probes import AMP_CHECK, missing


def _weights_of(check: Any) -> str | None:
    """Return the file the installed version runs its test with; it changes from release to release."""
    found = re.search(r"yolo\w+\.pt", inspect.getsource(check))
    return None if found is None else found.group()


def _is_here(weights: str) -> bool:
    from ultralytics.utils import SETTINGS

    places = (Path(), Path(str(SETTINGS["weights_dir"])))
    return any((place / weights).is_file() for place in places)


def _patient(check: Any) -> Any:
    def run(model: Any) -> bool:
        from ultralytics.utils import ONLINE

        weights = _weights_of(check)
        on_gpu = next(model.parameters()).device.type not in ("cpu", "mps")
        if on_gpu and not ONLINE and weights is not None and not _is_here(weights):
            say(
                "amp.unchecked",
                f"mixed precision is taken as it is: {weights}, which Ultralytics tests it with, is not here, and "
                "there is no network. `yolo-rocm doctor` tests fp16 itself; amp=False if losses become NaN",
                warning=True,
            )
            return True
        return bool(check(model))

    return run


def amp_check_without_wait() -> AbstractContextManager[None]:
    """Skip the test of mixed precision where its weights are not here and Ultralytics has found no network."""
    if missing(AMP_CHECK):
        return nullcontext()
    return attribute("ultralytics.engine.trainer", "check_amp").on(_patient)
