"""A training that is started again, by its launcher or by the queue of a cluster: it goes on from its own `last.pt`.

torchrun starts the same command again after a rank or a machine has failed. Which training that was, a note says in its
folder of logs: each launcher makes one of its own, which outlives the ranks. A job that a queue starts anew has other
launchers: `resume=auto` finds its training by `project` and `name`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..ultralytics_hooks import models, resuming
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.ranks import place_of_rank, ranks_asked
from ..utils import process_group
from ..utils.atomic import write_file
from .artifacts import FACTS_FILE

AUTO: Final = "auto"
_ERRORS: Final = "TORCHELASTIC_ERROR_FILE"  # in every process that torchrun starts: LOGS/attempt_N/RANK/error.json
# What may be said again of a training that goes on; everything else is in its checkpoint.
_SAID_AGAIN: Final = ("data", "device", "workers", "trainer")


@dataclass(frozen=True)
class Start:
    """How a training starts.

    Attributes:
        yolo: The YOLO object to train.
        arguments: What to train it with.
        complete: The folder of a training that has nothing left to do.
    """

    yolo: Any
    arguments: dict[str, Any]
    complete: Path | None = None


def start(yolo: Any, arguments: Mapping[str, Any], timeout_s: float, *, relaunched: bool) -> Start:
    """Return how a training starts: anew, or from the `last.pt` of an earlier start of the same training.

    Args:
        yolo: The YOLO object that a new training begins with.
        arguments: Those of the call and of its file.
        timeout_s: How long ranks wait for each other.
        relaunched: The process trains once, so that a note of its launcher is about this training.

    Raises:
        ConfigError: `resume=auto` without a name.
    """
    asked = arguments.get("resume") == AUTO
    if not asked and (not relaunched or arguments.get("resume") is not None or _note() is None):
        return Start(yolo, dict(arguments))
    folder = _named_folder(yolo, arguments) if asked else _noted_folder()
    last, batch = _agreed(folder, arguments.get("device"), timeout_s)
    if last is None:
        fresh = {name: value for name, value in arguments.items() if not (asked and name == "resume")}
        return Start(yolo, {**fresh, "exist_ok": True} if asked else fresh)
    yolo = models.load_model(last)
    if resuming.epochs_in(yolo) is None:
        return Start(yolo, dict(arguments), complete=last.parents[1])
    epoch = resuming.epochs_in(yolo)
    say("resume.continues", f"goes on from {last}, which holds epoch {epoch}, with the arguments it began with")
    again = {name: arguments[name] for name in _SAID_AGAIN if arguments.get(name) is not None}
    return Start(yolo, {**again, **({} if batch is None else {"batch": batch}), "resume": True})


def _named_folder(yolo: Any, given: Mapping[str, Any]) -> Path:
    if not given.get("name"):
        raise ConfigError(
            "resume=auto goes on from the last.pt of the run that name= names, or begins it: give a name=, and on "
            "several machines a project= folder they share."
        )
    return resuming.run_folder(yolo.task, given)


def _agreed(folder: Path | None, device: Any, timeout_s: float) -> tuple[Path | None, int | None]:
    """Return the checkpoint to go on from and the batch, where that changes; rank 0 decides for all."""
    here = place_of_rank()
    if here is not None:
        process_group.join(here, process_group.local_device(device, here), timeout_s)
        # A machine that has taken another one's place has no note.
        folder = next((each for each in process_group.gathered(folder) if each is not None), None)
    found: tuple[Path | None, int | None] = None, None
    if folder is not None and (folder / "weights" / "last.pt").is_file():
        found = folder / "weights" / "last.pt", _batch(folder, ranks_asked(device))
    return found if here is None else process_group.from_first(found)


def _batch(folder: Path, ranks: int) -> int | None:
    """Return the batch that gives each rank as many images as before; None where as many ranks train as before."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # an older run, or one without its first epoch
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        before, used = int(facts["ranks"]), int(facts["batch"]["used"])
        if before != ranks:
            batch = max(1, used // before) * ranks
            text = f"{ranks} ranks train in place of {before}: batch={batch} in place of {used}, as many for each"
            say("resume.ranks", text)
            return batch
    return None


def _note() -> Path | None:
    """Return where the launcher of this process has its training noted; None without a launcher."""
    errors = os.environ.get(_ERRORS)
    logs = Path(errors).parents[2] if errors else None
    return logs / "yolo_rocm_run" if logs is not None and logs.is_dir() else None


def _noted_folder() -> Path | None:
    note = _note()
    return Path(note.read_text(encoding="utf-8")) if note is not None and note.is_file() else None


def write_note(folder: Path) -> None:
    """Leave a note of a training that begins, for its next start by the same launcher."""
    note, here = _note(), process_group.place()
    if note is not None and here is not None and here.local_rank == 0:  # one for each machine
        write_file(note, str(folder.resolve()))


def remove_note() -> None:
    """Take the note away: the training is complete."""
    note = _note()
    if note is not None:
        note.unlink(missing_ok=True)
