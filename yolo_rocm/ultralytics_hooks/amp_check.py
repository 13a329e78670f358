"""Ultralytics' test of mixed precision, without its wait where nothing can be downloaded."""

from __future__ import annotations

import inspect
import os
import re
import socket
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from .log import say
from .probes import AMP_CHECK, missing
from .swap import Swap

_HOST: Final = ("github.com", 443)
_PATIENCE: Final = 3.0


def _weights_of(check: Any) -> str | None:
    """Return the file the installed version runs its test with; it changes from release to release."""
    found = re.search(r"yolo\w+\.pt", inspect.getsource(check))
    return None if found is None else found.group()


def _is_here(weights: str) -> bool:
    from ultralytics.utils import SETTINGS

    places = (Path(), Path(str(SETTINGS["weights_dir"])))
    return any((place / weights).is_file() for place in places)


def _reachable() -> bool:
    """Tell whether the download could begin. Ultralytics asks a name server only, and then waits 30 s and more."""
    from ultralytics.utils import ONLINE

    if not ONLINE:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # the way leads elsewhere
    try:
        socket.create_connection(_HOST, timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def _patient(check: Any) -> Any:
    def run(model: Any) -> bool:
        weights = _weights_of(check)
        on_gpu = next(model.parameters()).device.type not in ("cpu", "mps")
        if on_gpu and weights is not None and not _is_here(weights) and not _reachable():
            say(
                f"mixed precision is taken as it is: {weights}, which Ultralytics tests it with, is neither here nor "
                "within reach. `yolo-rocm doctor` tests fp16 without it; amp=False if losses become NaN",
                warning=True,
            )
            return True
        return bool(check(model))

    return run


_check = Swap("ultralytics.engine.trainer", "check_amp", _patient)


def amp_check_without_wait() -> AbstractContextManager[None]:
    """Skip the test of mixed precision where its weights can be had neither here nor from the network."""
    return nullcontext() if missing(AMP_CHECK) else _check.on()
