"""A GPU that is not there: the stand-in libraries of `stand_in.c`, and a process that takes them for real ones."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.hip import libraries, program, store, workers

STREAM = 0x7700
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None or sys.platform == "win32", reason="there is no C compiler")


def built(folder: Path, name: str, *defines: str) -> Path:
    """Compile the stand-in to a library of a name."""
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = Path(__file__).with_name("stand_in.c")
        options = [f"-D{each}" for each in defines]
        subprocess.run([str(CC), "-shared", "-fPIC", "-w", *options, "-o", str(path), str(source)], check=True)
    return path


@dataclass
class StandIn:
    """What was called, and how to make it fail."""

    monkeypatch: pytest.MonkeyPatch
    log: Path
    family: str

    def calls(self) -> list[str]:
        """Return the lines since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def mode(self, words: str) -> None:
        """Make calls fail from now on, also in processes that are started from now on."""
        workers.POOL.close()
        self.monkeypatch.setenv("STAND_IN_MODE", words)


def forget() -> None:
    """Forget everything that this process has found out."""
    workers.POOL.close()
    STATE.clear()


@contextlib.contextmanager
def stand_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, libraries_at: Path, family: str = "hip"
) -> Iterator[StandIn]:
    """Pretend that torch has a GPU whose libraries are the stand-in's.

    Args:
        monkeypatch: Undoes it.
        folder: For the log and the store.
        libraries_at: A `site-packages` with a torch whose `lib` has the libraries, as `built` makes them.
        family: `hip` or `cuda`.
    """
    log = folder / "calls.log"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    monkeypatch.delenv("STAND_IN_MODE", raising=False)
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(folder / "cache"))
    monkeypatch.setattr(libraries, "torch_folder", lambda: libraries_at / "torch")
    monkeypatch.setattr(libraries, "mapped_files", list)
    # Not one that this machine may really have.
    only = {key: _only_torch(stack) for key, stack in libraries.STACKS.items()}
    monkeypatch.setattr(libraries, "STACKS", only)
    monkeypatch.setattr(torch.version, "hip", "5.2.21151" if family == "hip" else None)
    monkeypatch.setattr(torch.version, "cuda", None if family == "hip" else "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    properties = SimpleNamespace(name="AMD Radeon RX 5600 XT")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(program, "current_device", lambda: 0)
    monkeypatch.setattr(program, "current_stream", lambda number: STREAM)
    monkeypatch.setattr(program, "on", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(store.STORE, "_folder", None)
    forget()
    try:
        yield StandIn(monkeypatch, log, family)
    finally:
        forget()


def _only_torch(stack: libraries.Stack) -> libraries.Stack:
    def nameless(library: libraries.Library) -> libraries.Library:
        return libraries.Library(library.files, ("libno-such-library.so",))

    return libraries.Stack(nameless(stack.compiler), nameless(stack.driver), ("{torch}/lib",))
