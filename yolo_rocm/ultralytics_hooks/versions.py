"""Which Ultralytics is usable: the numbers this package knows, and the judgement of one it has never met.

No other module compares version numbers of Ultralytics. What differs between releases is asked by name (`probes`); a
number is used only where the installed Ultralytics must not be imported, as by the doctor.
"""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from ..errors import StackError
from ..hardware import detect
from ..hardware.libraries import missing_library, missing_stack
from ..utils.child_process import run_module
from ..utils.log_lines import log
from .log import say
from .probes import TRAINING, asked, missing
from .settings import leave_the_clone

OLDEST: Final = Version("8.3.0")
ANY_VARIABLE: Final = "YOLO_ROCM_ANY_ULTRALYTICS"
# What `.ci/ladder` has found; it goes with the package, so that an installed one knows what it was tried on.
TESTED_FILE: Final = Path(__file__).parent / "tested.csv"
# The first release in which Ultralytics behaves so.
SINCE: Final[Mapping[str, str]] = {
    "channels_last by itself": "8.4.137",  # ultralytics PR 26007
    "GPU chosen by its number": "8.4.61",  # before: through CUDA_VISIBLE_DEVICES
}
_IMPORT_S: Final = 60.0


def tested() -> list[dict[str, str]]:
    """Return the ladder's rows: Ultralytics, torch and Python, and what came of them."""
    with TESTED_FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@functools.cache
def newest_tested() -> Version:
    """Return the newest Ultralytics on which the ladder has passed."""
    return max((Version(row["ultralytics"]) for row in tested() if row["result"] == "pass"), default=OLDEST)


def installed() -> str:
    """Return the version of the installed Ultralytics."""
    import ultralytics

    return str(ultralytics.__version__)


def version_of(text: str | None) -> Version | None:
    """Read a version; None for one that is missing or no number, as forks may have."""
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None


def behaves(installed: str | None, behaviour: str) -> bool:
    """Return, by its number alone, whether an Ultralytics behaves as one of `SINCE`."""
    version = version_of(installed)
    return version is not None and version >= Version(SINCE[behaviour])


def lacks(installed: str | None, *, ask: bool) -> Mapping[str, Sequence[str]]:
    """Return what an installed Ultralytics has no place for, and why, without importing it here.

    Args:
        installed: Its version.
        ask: Whether it may be imported in another process where the ladder has not tried this version, or has not
            looked for all that is looked for now.
    """
    for row in tested():
        if row["ultralytics"] == installed and row["result"] == "pass" and row["asked"] == asked():
            return {feature: ("as .ci/ladder found",) for feature in row["without"].split("; ") if feature}
    version = version_of(installed)
    if not ask or installed is None or (version is not None and version < OLDEST):
        return {}
    result = run_module("yolo_rocm.ultralytics_hooks.probes", {}, _IMPORT_S)
    if result.error:
        return {TRAINING: (f"it cannot be imported: {result.error}",)}
    features: dict[str, Sequence[str]] = result.answer["missing"]
    return features


@functools.cache
def require() -> None:
    """Check that a usable Ultralytics is installed; once per process.

    A release newer than any tested one is usable if all it needs for training is found where it was.

    Raises:
        StackError: It is missing, too old, or lacks something, torch cannot use the installed NumPy, or the system has
            no library that OpenCV needs; the message has the command to run.
    """
    lacking_stack = missing_stack()
    if lacking_stack is not None:
        raise lacking_stack
    misfit = detect().packages.numpy_misfit()
    if misfit is not None:
        raise StackError(f"{misfit.what}. Run: {misfit.remedy}")
    try:
        text = installed()
    except ImportError as error:
        lacking = missing_library(error)
        if lacking is None:
            raise
        raise StackError(f"{lacking.what}. {lacking.remedy}.") from error
    version = version_of(text)
    if version is not None and version < OLDEST:
        raise StackError(f"Ultralytics {text} is too old, {OLDEST} or newer is needed: pip install -U ultralytics")
    problems = missing(TRAINING)
    lacks = f"Ultralytics {text} lacks what training needs: {'. '.join(problems)}."
    if problems and os.environ.get(ANY_VARIABLE, "").strip().lower() not in {"1", "true", "on", "yes"}:
        raise StackError(f"{lacks} {advice()} {ANY_VARIABLE}=1 goes on anyway; YOLO_ROCM=0 turns this package off.")
    leave_the_clone()
    if problems:
        log(
            "ultralytics.lacks", f"{lacks} {ANY_VARIABLE} goes on anyway."
        )  # Ultralytics' logger may be what is missing
    elif version is None or version > newest_tested():
        say(
            "ultralytics.newer",
            f"Ultralytics {text} is newer than any tested ({newest_tested()}); all that training needs is there",
        )


def advice() -> str:
    """Return the command that installs a tested version."""
    return f'Install one that was tested: pip install --no-deps "ultralytics=={newest_tested()}".'
