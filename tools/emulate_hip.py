"""Run the kernels of engine hip for AMD GPUs that are not there: compile each by clang, execute its assembly.

    python tools/emulate_hip.py gfx1010 gfx1030

For each algorithm, layout and pass one line: registers, spills and LDS of the kernel as clang reports them, waves that
a SIMD holds (RDNA), the relative error against fp64 with what is allowed, and the share of multiply-adds among vector
instructions. Layers with odd sizes show edges and masks; a layer of 64 channels, of which a few workgroups run, shows
the share. clang 16 or newer is needed (19 for gfx1201 and gfx942); no part of ROCm is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
import torch

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.emulator import Memory, Program, launch
from yolo_rocm.conv.exactness import allowed_error, in_doubles, native_passes
from yolo_rocm.conv.hip import algorithms, base
from yolo_rocm.conv.hip.base import HipAlgorithm
from yolo_rocm.conv.hip.calls import HipCall, sum_partials
from yolo_rocm.conv.hip.launching import program_of
from yolo_rocm.conv.kernels.calls import strides
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.measure import relative_error

CLANGS: Final = ("clang-19", "clang-18", "clang-17", "clang-16", "clang")
# What code for gfx1030 must not have, because it runs on gfx1010 under an override.
FORBIDDEN: Final = re.compile(r"\bv_(?:dot\w+|wmma\w+|mfma\w+)|\bs_(?:gl1_inv|get_waveid)\w*")
_MULTIPLY_ADDS: Final = ("v_fma", "v_fmac", "v_pk_fma", "v_mad_mix")


class Compiled(NamedTuple):
    """A kernel's assembly, and what clang says about it."""

    text: str
    registers: int
    spilled: int
    lds: int

    @property
    def waves(self) -> int:
        """Waves of 32 lanes that the registers of a SIMD of RDNA are enough for: 1024 in blocks of eight."""
        return min(16, 1024 // (-(-max(1, self.registers) // 8) * 8))


@dataclass(frozen=True)
class Layer:
    """A convolution to run."""

    shape: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    padding: int = 1
    groups: int = 1

    def problem(self, channels_last: bool) -> ConvProblem:
        """Return it as a problem."""
        stride, padding = (self.stride, self.stride), (self.padding, self.padding)
        geometry = (self.shape, self.weight, stride, padding, (1, 1), (0, 0))
        return ConvProblem(*geometry, self.groups, False, torch.float32, "cpu", channels_last)


ODD: Final = (
    Layer((2, 24, 7, 9), (20, 24, 3, 3), 2),
    Layer((2, 12, 6, 6), (20, 12, 1, 1), 1, 0),
    Layer((2, 20, 7, 5), (36, 20, 3, 3)),
    Layer((2, 3, 9, 7), (20, 3, 3, 3), 2),
    Layer((2, 20, 7, 9), (20, 1, 3, 3), 1, 1, 20),
)
USUAL: Final = Layer((2, 64, 16, 16), (64, 64, 3, 3))


def clang() -> str | None:
    """Return the compiler, None where there is none."""
    return next((found for name in CLANGS if (found := shutil.which(name))), None)


@cache
def compiled(source: str, defines: tuple[tuple[str, int | str], ...], target: str) -> Compiled:
    """Compile a kernel as hiprtc would, to assembly.

    Raises:
        subprocess.CalledProcessError: It does not compile.
    """
    command = [
        clang() or "clang", "-x", "hip", "--offload-device-only", "-nogpulib", "-nogpuinc", f"--offload-arch={target}",
        "-O3", "-std=c++17", "-ffp-contract=on", "-S", "-o", "-", "-",
    ]  # fmt: skip
    text = program_of(source, defines).text()
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True, timeout=300)

    return read_needs(done.stdout, done.stdout)


def read_needs(text: str, metadata: str) -> Compiled:
    """Return a kernel's instructions with what its metadata, as YAML, says that it needs."""

    def said(word: str) -> int:
        return int(next(iter(re.findall(rf"\.{word}:\s+(\d+)", metadata)), 0))

    spilled = said("vgpr_spill_count") + said("sgpr_spill_count") + said("private_segment_fixed_size")
    return Compiled(text, said("vgpr_count"), spilled, said("group_segment_fixed_size"))


def execute(
    call: HipCall, target: str, inputs: Sequence[torch.Tensor], shape: Sequence[int], first: bool = False
) -> tuple[torch.Tensor, torch.Tensor, Counter[str]]:
    """Run a kernel; return the memory of its result, flat, which of its elements were written, and instructions.

    Args:
        call: The launch.
        target: What it is compiled for.
        inputs: Its tensors but the last, dense in memory; they may not be written.
        shape: Of the last, which it writes, in fp32.
        first: Run the first workgroup alone, with those of all splits; all by default.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    program = Program.parse(compiled(call.source, call.defines, target).text)
    memory = Memory()
    given = [memory.add(f"input {n}", _raw(tensor), constant=True) for n, tensor in enumerate(inputs)]
    result = memory.add("result", int(np.prod(shape)) * 4)
    chosen = [(0, y, z) for y in range(call.grid[1]) for z in range(call.grid[2])] if first else None
    counts = launch(program, memory, [*given, result, *call.numbers], call.grid, call.threads, 0, chosen)
    values = torch.from_numpy(memory.contents(result, np.int32)).view(torch.float32)
    return values, torch.from_numpy(memory.written(result, np.int32)), counts


def run_pass(
    algorithm: HipAlgorithm, problem: ConvProblem, which: str, target: str, first: bool = False
) -> tuple[HipCall, float, Counter[str]]:
    """Run a pass in the emulator; return its kernel's launch, the error against fp64, and instructions of the kernel.

    With `first` the elements that were written are compared.
    """
    operands = Operands.of(problem)
    exact = native_passes(problem, in_doubles(operands))[which]
    x, y, w = (
        strides(s, problem.channels_last) for s in (problem.input_shape, problem.output_shape, problem.weight_shape)
    )
    if which == "grad_weight":
        call, splits = algorithm.weight_steps(problem, y, x)
        parts, known, counts = execute(
            call, target, (operands.grad, operands.x), (splits, *problem.weight_shape), first
        )
        if first:
            shape = (splits, problem.weight_shape[0], *problem.kernel, -1)
            whole, there = parts.view(shape).sum(0), known.view(shape).all(0)
            return call, relative_error(whole[there], exact.permute(0, 2, 3, 1)[there]), counts
        flat, written, _ = execute(sum_partials(problem, splits, w), target, (parts,), problem.weight_shape)
        by = w
    else:
        back = which == "grad_input"
        src, out = (y, x) if back else (x, y)
        steps = algorithm.gather_steps(problem, back, src, w, out)
        call, weight = steps.kernel, operands.weight
        if steps.other is not None:
            weight = execute(steps.other, target, (weight,), (steps.between,))[0]
        bias = torch.zeros(exact.shape[1])
        inputs = (operands.grad if back else operands.x, weight, bias)
        flat, written, counts = execute(call, target, inputs, exact.shape, first)
        by = out
    got, known = (torch.as_strided(one, exact.shape, by) for one in (flat, written))
    if not first and not bool(known.all()):
        return call, float("inf"), counts
    return call, relative_error(got[known], exact[known]), counts


def share_of_multiply_adds(counts: Counter[str]) -> float:
    """Return which part of the vector instructions multiplies and adds floats."""
    vector = {name: number for name, number in counts.items() if name.startswith("v_")}
    useful = sum(number for name, number in vector.items() if name.startswith(_MULTIPLY_ADDS))
    return useful / max(1, sum(vector.values()))


def rows(target: str) -> Iterator[dict[str, Any]]:
    """Yield what was compiled and run for a target, a row for each algorithm, layout and pass."""
    with mock.patch.object(base, "device_reason", return_value=None):
        for algorithm in algorithms():
            if not isinstance(algorithm, HipAlgorithm):
                continue
            for last in (False, True):
                for which in PASSES:
                    yield _row(algorithm, last, which, target)


def _row(algorithm: HipAlgorithm, last: bool, which: str, target: str) -> dict[str, Any]:
    row: dict[str, Any] = {"algorithm": algorithm.name, "layout": "nhwc" if last else "nchw", "pass": which}
    worst = 0.0
    served = [layer for layer in ODD if not algorithm.not_supported_reasons(layer.problem(last))]
    for layer in [layer for layer in served if (layer.groups > 1) == (algorithm.name == "hip_depthwise")][:2]:
        problem = layer.problem(last)
        call, error, _ = run_pass(algorithm, problem, which, target)
        worst = max(worst, error / allowed_error(problem, which))
    usual = replace(USUAL, weight=(64, 1, 3, 3), groups=64) if algorithm.name == "hip_depthwise" else USUAL
    problem = usual.problem(last)
    if not algorithm.not_supported_reasons(problem):
        call, error, counts = run_pass(algorithm, problem, which, target, first=True)
        worst = max(worst, error / allowed_error(problem, which))
        row["multiply-adds"] = round(share_of_multiply_adds(counts), 3)
    made = compiled(call.source, call.defines, target)
    row |= {"registers": made.registers, "spilled": made.spilled, "lds": made.lds, "waves": made.waves}
    row |= {"error": round(worst, 3), "forbidden": sorted(set(FORBIDDEN.findall(made.text)))}
    return row


def _raw(tensor: torch.Tensor) -> Any:
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.int32).numpy()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for row in rows(name):
            sys.stdout.write(" ".join([name, *(f"{key}={value}" for key, value in row.items())]) + "\n")
            sys.stdout.flush()
