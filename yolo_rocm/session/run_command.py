"""The commands that go on with a run: its checkpoint, and what it was given that a checkpoint does not hold."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..preset.cfg_file import parse
from ..preset.schema import SECTIONS
from ..utils.process_group import Place

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
