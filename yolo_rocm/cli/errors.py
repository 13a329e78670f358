"""What ends a command: one line for an everyday mistake, the whole traceback for everything else and with --debug."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence

from ..errors import LostRankError, YoloRocmError
from ..hardware.libraries import missing_library, missing_stack

DEBUG = "--debug"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What stands before Ultralytics' words: the split of a data set, the place of a source among all, or a loud ERROR.
_BEFORE = re.compile(r"^((train|val|test): |\d+/\d+: .*?\.\.\. |ERROR )")
# How Ultralytics begins: data, models and sources that cannot be used, and values of arguments that do not exist.
_MISTAKES = re.compile(
    r"Dataset '|No images|No labels found|No valid images|Error loading data|.+ '\w+:' images not found"
    r"|\w+ dataset requires equal numbers|'No `kpt_shape` in "
    r"|Optimizer '|'imgsz=|Invalid CUDA 'device=|'\w+=.*' (is )?(an |of )?invalid|Invalid export format="
    r"|Task '.*' doesn't support 'mode="
    r"|model='.*' should be a \*\.pt |.+ is not a loadable checkpoint|.+ is not a supported SAM model"
    r"|'.*\.(pt|ya?ml)' does not exist"
    r"|Failed to (open|read images from|resolve) |Google Drive file download"
)
# A folder that may not be written, or whose place a file has.
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_NAMED = (".pt", ".yaml", ".yml")  # files that arguments name
_HINT = f"({DEBUG} shows where it happened)"


def split_debug(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether `--debug` is among the words, and the words with it in front, where it is an option of ours.

    It may be anywhere before `run`: what follows that belongs to the script.
    """
    first = next((position for position, word in enumerate(words) if not word.startswith("-")), len(words))
    ours = first if list(words[first : first + 1]) == ["run"] else len(words)
    debug = DEBUG in words[:ours]
    rest = [word for position, word in enumerate(words) if word != DEBUG or position >= ours]
    return debug, [DEBUG, *rest] if debug else rest


def everyday(error: BaseException) -> str | None:
    """Return an everyday mistake in words; None for what may be a bug, which must not be hidden."""
    if isinstance(error, YoloRocmError):
        return str(error)
    stack = missing_stack(error)
    if stack is not None:
        return str(stack)
    lacking = missing_library(error)
    if lacking is not None:
        return f"{lacking.what}. {lacking.remedy}."
    if not _raised_by("ultralytics", error) or _raised_by("yolo_rocm", error, behind="ultralytics"):
        return None  # the second: our own code, that Ultralytics has called
    for each in _chain(error):
        if isinstance(each, ConnectionError) and _one_line(each).startswith("Download failure"):
            return f"a download failed: {_one_line(each)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"Ultralytics needs the package {error.name} for this, and it is not installed. Run: pip install "
            f"{error.name}; with --dry-run it shows first whether torch would be replaced"
        )
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename:
        return (
            f"{str(error.filename)!r} cannot be used: {error.strerror}. Change its permissions, or give another folder "
            "for results: project=FOLDER"
        )
    told = _one_line(error)
    named = isinstance(error, FileNotFoundError) and str(error.filename).endswith(_NAMED)
    return told if named or _MISTAKES.match(told) else None


def end_in_one_line(error: BaseException) -> None:
    """Say an everyday mistake on stderr; anything else is raised again.

    Raises:
        BaseException: The error itself.
    """
    told = everyday(error)
    if told is None:
        raise error
    from ..utils.console import console
    from ..utils.process_group import is_first_to, place

    hint = "" if isinstance(error, YoloRocmError) or missing_stack(error) else f" {_HINT}"
    if place() is None or is_first_to("refusal"):  # all ranks of a training meet the same mistake
        console(stderr=True).print(f"error: {told}{hint}", markup=False)
    if isinstance(error, LostRankError):
        # What is left of a group without one of its members may wait for it when it is taken down.
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(1)
    sys.exit(1)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


def _raised_by(package: str, error: BaseException, behind: str = "") -> bool:
    """Return whether the error was raised in a package, or in something that it called.

    Args:
        package: Its name.
        error: The error.
        behind: A package; calls before its last one do not count.
    """
    names = (str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__))
    packages = [name.partition(".")[0] for name in names]
    last = max((place for place, name in enumerate(packages) if name == behind), default=-1)
    return package in packages[last + 1 :]


def _one_line(error: BaseException) -> str:
    """Return an error's words up to an empty line on one line, without pictures, colours and what stands before."""
    text = " ".join(_COLOUR.sub("", str(error)).strip().partition("\n\n")[0].split()).replace(" \u2014 ", ": ")
    plain = "".join(each for each in text if each.isascii() or each.isalnum())
    return _BEFORE.sub("", " ".join(plain.split()))
