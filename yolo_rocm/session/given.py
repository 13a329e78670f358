"""What a run was given besides Ultralytics' arguments: in words, in `rocm.json`, in the environment of its children.

A checkpoint holds Ultralytics' arguments. Preset, `rocm` sections and workers are in `rocm.json`, and resuming takes
them up; the command that is printed after a stop has them too.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..preset.cfg_file import parse
from ..preset.schema import SECTIONS
from ..ultralytics_hooks import resuming
from ..utils.atomic import write_file
from ..utils.child_process import python_path
from ..utils.off_switch import enabled
from ..utils.process_group import Place
from .arguments import given_by_user
from .artifacts import FACTS_FILE
from .current_run import OngoingRun
from .relaunch import AUTO
from .session import Session

CHILD_VARIABLE: Final = "YOLO_ROCM_CHILD"
GIVEN: Final = "given"
_PROGRAM: Final = ("yolo-rocm",)


@dataclass(frozen=True)
class RunCommand:
    """A run as words of the command line.

    Attributes:
        words: What was given in addition to Ultralytics' arguments, which are in the checkpoint.
        launcher: The words before `train`.
    """

    words: tuple[str, ...] = ()
    launcher: tuple[str, ...] = _PROGRAM

    def train(self, last: Path) -> str:
        """Return the command that resumes from a checkpoint."""
        return quoted([*self.launcher, "train", f"model={last}", *self.words, "resume=true"])

    def val(self, weights: Path) -> str:
        """Return the command that evaluates weights on the data they were trained with."""
        return quoted([*_PROGRAM, "val", f"model={weights}", *self.words])


def predict_command(weights: Path, source: str) -> str:
    """Return the command that predicts with weights."""
    return quoted([*_PROGRAM, "predict", f"model={weights}", f"source={source}"])


def run_command(
    preset: Any, rocm: Mapping[str, Any] | None, device: Any, workers: int | None, launched: Place | None = None
) -> RunCommand:
    """Describe a run.

    Args:
        preset: A preset's name, file or dictionary.
        rocm: Sections over it.
        device: Ultralytics' `device` argument.
        workers: Its `workers`, where they were given.
        launched: The rank of this process, if a launcher such as torchrun has started it.
    """
    over: Mapping[str, Any] = rocm or {}
    below: Mapping[str, Any] = {}
    if isinstance(preset, Mapping):  # a dictionary has no name: it is described as sections over its base
        below, preset = preset, preset.get("base")
    sections = {key: {**(below.get(key) or {}), **(over.get(key) or {})} for key in SECTIONS}
    words = []
    if preset and preset != "auto":
        words.append(f"preset={file_or_name(preset)}")
    words += [f"rocm.{key}.{name}={_text(item)}" for key, value in sections.items() for name, item in value.items()]
    if workers is not None:
        words.append(f"workers={workers}")
    if device not in (None, ""):
        words.append(f"device={','.join(map(str, device)) if isinstance(device, list | tuple) else device}")
    return RunCommand(tuple(words), _PROGRAM if launched is None else _torchrun(launched))


def file_or_name(preset: Any) -> Any:
    """Return a preset so that it is found from any folder; a dictionary as it is."""
    if isinstance(preset, str | Path) and Path(preset).suffix in {".yaml", ".yml"}:
        return str(Path(preset).resolve())
    return preset


def _torchrun(here: Place) -> tuple[str, ...]:
    machines = here.world // here.local_world
    several = ("--nnodes", str(machines), "--node_rank", "N", "--master_addr", "HOST0") if machines > 1 else ()
    return ("torchrun", *several, "--nproc_per_node", str(here.local_world), "-m", "yolo_rocm")


def _text(value: Any) -> str:
    """Write a value so that the command line reads the same value."""
    plain = json.dumps(value, default=str, ensure_ascii=False)
    short = str(value)
    return short if isinstance(value, str) and parse([f"key={short}"])["key"] == value else plain


def quoted(words: Sequence[str]) -> str:
    """Return words as one types them in a shell of this system."""
    return shlex.join(words) if os.name == "posix" else subprocess.list2cmdline(words)


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

    def over(self, earlier: Given) -> Given:
        """Return what a run is given now over what it was given before."""
        preset = (earlier.preset or self.preset) if self.preset in (None, AUTO) else self.preset
        workers = earlier.workers if self.workers is None else self.workers
        return Given(preset, merge(earlier.rocm or None, self.rocm), workers)


def merge(below: Any, above: Mapping[str, Any] | None) -> Any:
    """Return sections over others, key by key."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return below if above is None else above
    return {**below, **{name: merge(below.get(name), section) for name, section in above.items()}}


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
    if resume is True and (isinstance(model, str | Path) or resuming.epochs_in(model) is not None):
        resume = getattr(model, "ckpt_path", model)
    if isinstance(resume, str | Path) and resume != AUTO:
        with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or another version wrote it
            facts = json.loads((Path(resume).absolute().parent.parent / FACTS_FILE).read_text(encoding="utf-8"))
            return Given(**facts[GIVEN])
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
    now = Given(session.source, session.rocm, call.get("workers"))
    given = now.over(earlier)
    if given != now:
        words = quoted(run_command(given.preset, given.rocm, None, given.workers).words)
        note = f"resumes with {words}, as {FACTS_FILE} of the run has it (what is given now wins)"
        session.inference.close()
        session = Session(given.preset, given.rocm, notes=(note,), **{**call, "workers": given.workers})
    return session, {**arguments, **({} if given.workers is None else {"workers": given.workers})}


def describe(run: OngoingRun) -> dict[str, str]:
    """Return the variables a child process needs to make the same run again."""
    path = python_path(os.environ.get("PYTHONPATH"))
    preset = {"preset": run.session.source, "rocm": run.session.rocm}
    facts = {**preset, "device": run.device, "workers": run.workers, "parent": os.getpid()}
    return {CHILD_VARIABLE: json.dumps(facts, default=str), "PYTHONPATH": path}


def described() -> tuple[Session, dict[str, Any], int | None]:
    """Return the session that a parent process has described, the arguments of its run, and the id of that process."""
    facts = json.loads(os.environ.get(CHILD_VARIABLE, "{}"))
    arguments = {name: facts.get(name) for name in ("device", "workers")}
    return Session(facts.get("preset") or "auto", facts.get("rocm")), arguments, facts.get("parent")
