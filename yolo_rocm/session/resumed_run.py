"""What the run of a checkpoint was given besides Ultralytics' arguments: kept in `rocm.json`, taken up on resume."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError
from ..ultralytics_hooks import resuming
from ..utils.atomic import write_file
from ..utils.off_switch import enabled
from .arguments import given_by_user
from .artifacts import FACTS_FILE
from .current_run import OngoingRun
from .relaunch import AUTO
from .run_command import file_or_name, quoted, run_command

if TYPE_CHECKING:
    from .session import Session

GIVEN: Final = "given"


@dataclass(frozen=True)
class Given:
    """What a run is given in addition to Ultralytics' arguments, which are in its checkpoints.

    Attributes:
        preset: A preset's name, file or dictionary; None for `auto`.
        rocm: Sections over it.
        workers: Ultralytics' `workers`; its checkpoints have them too, but not whether anybody asked for them.
    """

    preset: Any = None
    rocm: Mapping[str, Any] | None = None
    workers: int | None = None

    def over(self, earlier: Given) -> tuple[Given, str]:
        """Return what a run is given now over what it was given before, and the words that come from before."""
        taken = Given(
            earlier.preset if self.preset in (None, AUTO) else None,
            _left_out(earlier.rocm or {}, self.rocm),
            earlier.workers if self.workers is None else None,
        )
        workers = taken.workers if self.workers is None else self.workers
        words = run_command(taken.preset, taken.rocm, None, taken.workers).words
        return Given(taken.preset or self.preset, merge(taken.rocm or None, self.rocm), workers), quoted(words)


def merge(below: Any, above: Mapping[str, Any] | None) -> Any:
    """Return sections over others, key by key."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return below if above is None else above
    return {**below, **{name: merge(below.get(name), section) for name, section in above.items()}}


def _left_out(sections: Mapping[str, Any], above: Any) -> dict[str, Any]:
    """Return the keys of sections that others do not have."""
    others = above if isinstance(above, Mapping) else {}
    kept = {
        name: {key: value for key, value in section.items() if key not in (others.get(name) or ())}
        for name, section in sections.items()
    }
    return {name: section for name, section in kept.items() if section}


def given_to(run: OngoingRun) -> dict[str, Any]:
    """Return what a run was given, for `rocm.json`."""
    source = None if run.session.source == AUTO else file_or_name(run.session.source)
    return asdict(Given(source, run.session.rocm, run.workers))


def keep_given(folder: Path, run: OngoingRun, *, fresh: bool) -> None:
    """Write what resuming needs before the first batch, so that a run that is killed has it.

    Args:
        folder: The run's folder.
        run: The run.
        fresh: The run begins; what the folder of a resumed run has already stays.
    """
    file, facts = folder / FACTS_FILE, {}
    if not fresh:
        with suppress(OSError, ValueError):
            facts = dict(json.loads(file.read_text(encoding="utf-8")))
    facts.update({GIVEN: given_to(run), "settings": run.settings.as_dict()})
    write_file(file, json.dumps(facts, indent=2, default=str) + "\n")


def given_before(model: Any, resume: Any) -> Given:
    """Return what the run of the checkpoint was given that a call resumes; nothing where it begins a training.

    Args:
        model: The call's model: a file, or a YOLO object.
        resume: Its `resume`: a checkpoint, or true for the model's own.
    """
    last = resume if isinstance(resume, str | Path) and resume != AUTO else None
    if last is None and resume is True:
        unfinished = isinstance(model, str | Path) or resuming.epochs_in(model) is not None
        last = getattr(model, "ckpt_path", model) if unfinished else None
    if isinstance(last, str | Path):
        with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or another version wrote it
            facts = json.loads((Path(last).absolute().parent.parent / FACTS_FILE).read_text(encoding="utf-8"))
            given = Given(**facts[GIVEN])
            if all(isinstance(section, dict) for section in dict(given.rocm or {}).values()):
                return given
    return Given()


def with_newest(model: Any, resume: Any) -> Any:
    """Return the model to resume where none is named: like Ultralytics, the newest `last.pt` below this folder.

    Raises:
        ConfigError: There is none.
    """
    if model is not None or resume is not True:
        return model
    found = glob.glob("**/last*.pt", recursive=True)
    if not found:
        raise ConfigError(
            f"resume: which last.pt? There is none below {Path.cwd()}. Name one: "
            "yolo-rocm train model=FOLDER/weights/last.pt resume=true"
        )
    return max(found, key=os.path.getctime)


def with_resumed_preset(session: Session, model: Any, arguments: Mapping[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Return session and arguments of a training: one that resumes has what its run was given; what is given now wins.

    Args:
        session: The session; one that is active stays.
        model: The call's model.
        arguments: The arguments of the call.
    """
    call = given_by_user(arguments)
    earlier = Given() if session.is_active or not enabled() else given_before(model, call.get("resume"))
    given, words = Given(session.source, session.rocm, call.get("workers")).over(earlier)
    if words:
        note = f"resumes with {words}, as {FACTS_FILE} of the run has it (what is given now wins)"
        session = session.replaced(given.preset, given.rocm, {**call, "workers": given.workers}, note)
    return session, {**arguments, **({} if given.workers is None else {"workers": given.workers})}
