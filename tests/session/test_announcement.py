"""The first line of a run: card, preset and engine, short enough for a terminal."""

from __future__ import annotations

import pytest

from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session.session import opening_lines

CARD = Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT")


def first_line(preset: str, machine: Machine, engine: str | None = None, device: object = None) -> str:
    rocm = None if engine is None else {"conv": {"engine": engine}}
    return next(opening_lines(resolve(preset, rocm, machine=machine), machine, device))


@pytest.mark.parametrize(
    ("machine", "given", "line"),
    [
        (Machine(), ("cpu",), "no GPU found, using the CPU (preset cpu)"),
        (Machine(), ("cpu", "gemm"), "no GPU found, using the CPU (preset cpu, engine gemm)"),
        (Machine(gpus=(CARD,), build="cuda"), ("cpu",), "torch can use no GPU, using the CPU (preset cpu)"),
        (
            Machine(gpus=(CARD,), build="hip"),
            ("rx5600xt",),
            "AMD Radeon RX 5600 XT (gfx1010, 6 GB): preset rx5600xt, engine gemm+hip",
        ),
        (Machine(gpus=(CARD,), build="hip"), ("cpu", None, "cpu"), "using the CPU (preset cpu)"),
    ],
)
def test_it_names_what_computes(machine, given, line):
    assert first_line(given[0], machine, *given[1:]) == line
