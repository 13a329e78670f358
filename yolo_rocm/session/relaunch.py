"""A training that is started again, by its launcher or by the queue of a cluster: it goes on from its own `last.pt`.

torchrun starts the same command again after a rank or a machine has failed. Which training that was, a note on each
machine says, kept under the launcher's process. A job that a queue starts anew has other launchers: `resume=auto` finds
its training by `project` and `name`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..ultralytics_hooks import distributed, models, resuming
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.ranks import place_of_rank, ranks_asked
from ..utils import process_group
from ..utils.atomic import write_file
from ..utils.paths import cache_folder
from .artifacts import FACTS_FILE

AUTO: Final = "auto"
_LAUNCHER: Final = "TORCHELASTIC_RUN_ID"  # set in every process that torchrun starts
_SAME_PROCESS_S: Final = 60.0  # clocks are set while a training runs
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
    say(
        "resume.continues",
        f"goes on from {last}, which holds epoch {resuming.epochs_in(yolo)}, with the arguments it began with",
    )
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
    if here is None:
        return _found(folder, device)
    process_group.join(here, process_group.local_device(device, here), timeout_s)
    # A machine that has taken another one's place has no note.
    noted = next((each for each in process_group.gathered(folder) if each is not None), None)
    found: tuple[Path | None, int | None] = process_group.from_first(_found(noted, device) if here.rank == 0 else None)
    return found


def _found(folder: Path | None, device: Any) -> tuple[Path | None, int | None]:
    if folder is None or not (folder / "weights" / "last.pt").is_file():
        return None, None
    return folder / "weights" / "last.pt", _batch(folder, ranks_asked(device))


def _batch(folder: Path, ranks: int) -> int | None:
    """Return the batch that gives each rank as many images as before; None where as many ranks train as before."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # an older run, or one without its first epoch
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        before, used = int(facts["ranks"]), int(facts["batch"]["used"])
        if before != ranks:
            batch = max(1, used // before) * ranks
            say(
                "resume.ranks",
                f"{ranks} ranks train in place of {before}: batch={batch} in place of {used}, as many for each",
            )
            return batch
    return None


def _note() -> Path | None:
    """Return where the launcher of this process keeps its note on this machine; None without a launcher."""
    if not os.environ.get(_LAUNCHER):
        return None
    return cache_folder() / "launches" / f"{platform.node()}-{os.getppid()}.json"


def _launcher_began() -> float:
    import psutil  # Ultralytics requires it

    return float(psutil.Process(os.getppid()).create_time())


def _noted_folder() -> Path | None:
    note = _note()
    with suppress(OSError, ValueError, KeyError):  # there is none, or it is not whole
        noted = json.loads(note.read_text(encoding="utf-8")) if note is not None else {}
        # Another launcher may have had the same number before.
        if abs(noted["launcher_began"] - _launcher_began()) < _SAME_PROCESS_S:
            return Path(noted["folder"])
    return None


def write_note(folder: Path) -> None:
    """Leave a note of a training that begins, for its next start by the same launcher."""
    note = _note_to_write()
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_file(note, json.dumps({"launcher_began": _launcher_began(), "folder": str(folder.resolve())}))


def remove_note() -> None:
    """Take the note away: the training is complete."""
    note = _note_to_write()
    if note is not None:
        note.unlink(missing_ok=True)


def _note_to_write() -> Path | None:
    here = process_group.place()  # a launcher of one process counts too, though Ultralytics then trains alone
    return _note() if here is not None and here.local_rank == 0 and not distributed.runs_launched_file() else None
