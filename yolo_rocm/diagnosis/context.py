"""What the checks look at: a machine, the preset it would train with, and the environment that training would see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..engines.names import single_engines
from ..hardware import OVERRIDE, Gpu, Machine, overridden_gfx
from ..hardware.files import text
from ..install.plan import first_stack
from ..install.shell import line
from ..install.table import table
from ..preset import variables as environment
from ..preset.schema import Preset
from ..utils.switch import Switch
from .known_failures import ANY_GFX

_IMPORT_S: Final = 60
SETUP: Final = "yolo-rocm setup"
THEROCK_RELEASES: Final = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"


@dataclass(frozen=True)
class Context:
    """Everything a check may look at; nothing here starts torch.

    Attributes:
        machine: What it is.
        preset: What it would train with.
        environ: Variables a training would see: the user's, and those the preset adds.
        home: The user's home folder.
        lacks: Features that the installed Ultralytics has no place for, and why.
        opencv_error: What OpenCV said when it could not be imported; empty where it could, or nobody has tried.
    """

    machine: Machine
    preset: Preset = field(default_factory=Preset)
    environ: Mapping[str, str] = field(default_factory=dict)
    home: Path = Path("/home/user")
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    opencv_error: str = ""

    @property
    def hip(self) -> bool:
        """Whether torch is a ROCm build."""
        return self.machine.build == "hip"

    @property
    def wsl(self) -> bool:
        """Whether a ROCm build runs under WSL."""
        return self.hip and "wsl" in self.machine.overlays

    @property
    def amd(self) -> tuple[Gpu, ...]:
        """All AMD GPUs, whether torch can use them or not."""
        return tuple(gpu for gpu in self.machine.gpus if gpu.vendor == "amd")

    @property
    def gpu(self) -> Gpu | None:
        """The AMD GPU to train on, or None."""
        gpu = self.machine.gpu
        return gpu if gpu is not None and gpu.vendor == "amd" else None

    def override(self, gpu: Gpu) -> str | None:
        """Return the override in force for a GPU; one for its node wins over the general one. Linux only."""
        if self.machine.system != "linux":
            return None
        return self.environ.get(f"{OVERRIDE}_{gpu.node}") or self.environ.get(OVERRIDE)

    def target(self, gpu: Gpu) -> str | None:
        """Return the target kernels are chosen for."""
        return overridden_gfx(self.override(gpu)) or gpu.gfx

    @property
    def amp(self) -> bool:
        """Whether training would use fp16; Ultralytics' default is yes."""
        return bool(self.preset.train.get("amp", True))

    @property
    def uses_miopen(self) -> bool:
        """Whether convolutions would run with MIOpen."""
        return self.hip and self.preset.conv.vendor == Switch.ON and "vendor" in single_engines(self.preset.conv.engine)

    @property
    def has_torchvision(self) -> bool:
        """Whether torchvision is installed next to torch."""
        folder = self.machine.torch_folder
        return folder is not None and (folder.parent / "torchvision").is_dir()

    def install_command(self, gpu: Gpu | None) -> str:
        """Return the command that brings torch and torchvision for a card.

        That is pip's, unless the card's stack needs an environment of its own, which `setup` makes.
        """
        target = gpu.gfx if gpu is not None and gpu.gfx else ANY_GFX
        # Wheels are for x86-64 only: on another processor there is nothing better to name.
        stack = first_stack(self.machine, target, "x86_64") or table().stacks["multi-arch"]
        if not stack.has_one_command:
            return SETUP
        packages = (each.format(extras=f"device-{target}") for each in stack.packages)
        return line(["pip", "install", *stack.options, *packages], "linux")

    def build_tag(self, package: str) -> str | None:
        """Return the local part of a version next to torch, e.g. `rocm7.0`; None where there is none."""
        folder = self.machine.torch_folder
        source = "" if folder is None else text(folder.parent / package / "version.py")
        version = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", source)
        return version.group(1).partition("+")[2] or None if version else None


def training_environment(preset: Preset, machine: Machine) -> dict[str, str]:
    """Return the variables a training with this preset would see."""
    added = {d.name: d.value for d in environment.plan(preset, machine) if d.action == "set"}
    return {**os.environ, **added}


def import_error(package: str) -> str:
    """Return the last line of what a package says when it cannot be imported in a process of its own, else nothing."""
    command = [sys.executable, "-c", f"import {package}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_IMPORT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
