"""Stand-in libraries, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .stand_in import StandIn, built, stand_in

# file -> defines, as torch's wheels have them: hiprtc inside the runtime (ROCm 5.2), next to it, and NVIDIA's.
WHEELS = {
    "rocm5.2": ("hip", {"libamdhip64.so": ()}),
    "rocm6": ("hip", {"libamdhip64.so": ("ONLY_RUNTIME",), "libhiprtc.so": ("ONLY_COMPILER",)}),
    "cuda12": ("cuda", {"libcuda.so.1": ("CUDA", "ONLY_RUNTIME"), "libnvrtc.so.12": ("CUDA", "ONLY_COMPILER")}),
}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Callable[[str], Path]:
    """Return a `site-packages` with the libraries of a wheel, by its name."""
    folder = tmp_path_factory.mktemp("wheels")

    def made(name: str) -> Path:
        for file, defines in WHEELS[name][1].items():
            built(folder / name / "torch" / "lib", file, *defines)
        return folder / name

    return made


@pytest.fixture
def pretend(monkeypatch, tmp_path, wheels) -> Iterator[Callable[[str], StandIn]]:
    """Return what pretends that torch is a wheel with a GPU."""
    with ExitStack() as undo:
        yield lambda name: undo.enter_context(stand_in(monkeypatch, tmp_path, wheels(name), WHEELS[name][0]))


@pytest.fixture
def old(pretend) -> StandIn:
    """Pretend torch 1.13.1+rocm5.2 on an RX 5600 XT."""
    return pretend("rocm5.2")
