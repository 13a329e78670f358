"""Checkpoints of a trainer that are never half written, and run folders that can be written before a run begins."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ..errors import CheckpointError
from ..utils.atomic import free_bytes, problem_with, write_file
from ..utils.scoped_patch import attribute
from .ranks import is_main_rank


def write_whole_checkpoints(trainer: Any, write: Callable[[Path, bytes], None]) -> None:
    """Let a trainer write `last.pt`, `best.pt` and `epochN.pt` with a function that replaces files in one step.

    `BaseTrainer.save_model` of every version calls `write_bytes` of its paths, so those are given a class of their own.
    A trainer whose own `save_model` opens the files itself is not reached.
    """
    plain: Any = type(Path())

    class WholeCheckpoint(plain):  # type: ignore[misc]
        """A path whose file is replaced in one step. `/` keeps the class; pickles and copies are ordinary paths."""

        def write_bytes(self, data: bytes) -> int:
            """Write a checkpoint; the old one stays until the new one is whole."""
            write(Path(self), data)
            return len(data)

        def __reduce__(self) -> Any:
            return Path, (str(self),)

    for name in ("wdir", "last", "best"):
        setattr(trainer, name, WholeCheckpoint(getattr(trainer, name)))


def _strips_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    def strip_optimizer(f: Any = "best.pt", s: str = "", *args: Any, **kwargs: Any) -> Any:
        path = Path(f)
        if s or not path.is_file():
            return original(f, s, *args, **kwargs)
        result: Any = None

        def strip(staged: Path) -> None:  # writes nothing where Ultralytics cannot read the checkpoint
            nonlocal result
            with _names_the_file(staged):
                result = original(f, str(staged), *args, **kwargs)

        try:
            _check_room(path)
            write_file(path, strip, durable=True)
        except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError on a full disk
            raise CheckpointError(
                f"the training is complete, but {path} could not be written without its optimizer: {error}. "
                f"It is whole as it was, with optimizer; make room, and it can be used as it is."
            ) from error
        return result

    return strip_optimizer


def _check_room(path: Path) -> None:
    """Refuse to write what may not fit: torch 1.13 aborts the process when its own file meets a full disk."""
    size, free = path.stat().st_size, free_bytes(path.parent)
    if free is not None and free < size:
        raise OSError(errno.ENOSPC, f"{size / 2**20:.1f} MiB may be needed, {free / 2**20:.1f} MiB are free")


@contextmanager
def _names_the_file(staged: Path) -> Iterator[None]:
    """Keep the passing name of a file out of what Ultralytics logs about it."""
    from ultralytics.utils import LOGGER

    def rename(record: Any) -> bool:
        record.msg = str(record.msg).replace(f" saved as {staged},", "")
        return True

    LOGGER.addFilter(rename)
    try:
        yield
    finally:
        LOGGER.removeFilter(rename)


def _checks_folder(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_save_dir(*args: Any, **kwargs: Any) -> Any:
        folder = original(*args, **kwargs)
        problem = problem_with(Path(folder)) if is_main_rank() else None
        if problem is not None:
            raise CheckpointError(
                f"the results cannot be written to {folder}: {problem.strerror or problem}"
                f"{f' ({problem.filename})' if problem.filename else ''}. "
                "Give a folder that can be written: project=FOLDER, or change its permissions."
            ) from problem
        (_made.discard if Path(folder).exists() else _made.add)(Path(folder))
        return folder

    return get_save_dir


# Run folders that were not there when a trainer of this process chose them.
_made: set[Path] = set()
# What Ultralytics and this package write before a training has any result.
_BEGINNINGS: Final = ("args.yaml", "labels*.jpg", "train_batch*.jpg", "rocm.json", "rocm_*.csv", "report.html")


def discard_run_folder(folder: Path) -> None:
    """Remove what a training without any result has put into the folder it made, and the folder if that was all.

    A folder that was there before is not touched, nor is what anybody else has put into this one.
    """
    if folder not in _made or (folder / "results.csv").exists() or any(folder.glob("weights/*")):
        return
    _made.discard(folder)
    with suppress(OSError):  # it is not empty, or somebody else was quicker
        for pattern in _BEGINNINGS:
            for file in folder.glob(pattern):
                file.unlink()
        (folder / "weights").rmdir()
        folder.rmdir()


@contextmanager
def whole_runs() -> Iterator[None]:
    """Strip finished checkpoints in one step too, and refuse a run folder that cannot be written before it is made."""
    from ultralytics.engine import trainer

    with ExitStack() as undo:
        for name, make in (("strip_optimizer", _strips_whole), ("get_save_dir", _checks_folder)):
            if hasattr(trainer, name):  # see `WHOLE_CHECKPOINTS`
                undo.enter_context(attribute(trainer.__name__, name).on(make))
        yield
