"""Run the kernels of engine hip for AMD GPUs that are not there: compile each, execute its assembly, print CSV.

    python tools/emulate_hip.py gfx1010 gfx1030 > docs/executed_hip.csv
    python tools/emulate_hip.py --hiprtc /path/to/libamdhip64.so.5 --no-header gfx1010 >> docs/executed_hip.csv

For each algorithm, layout and pass in fp32 a row: registers and waves, the relative error against fp64 with what is
allowed, the share of multiply-adds among vector instructions, and the shortest time of the kernel on a card of the
target, computed from what it executed and from published rates (`tools/kernel_bounds.py`), not measured. Of small
layers with odd sizes, for edges and masks, every workgroup runs. Of a layer of 64 channels (8 x 80 x 80, 3 x 3), cut
for the 36 compute units of an RX 5600 XT, the first does, for shares and times: in grad-weight that of the first split.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch.nn.grad import conv2d_weight

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.emulator import Memory, Program, launch
from tools.exactness import allowed_error, in_doubles, native_passes
from tools.hip_compilers import Compiled, Defines, by_clang, by_hiprtc, clang_name, hiprtc_name
from tools.kernel_bounds import CARDS, bound
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.hip import base, depthwise, gemm
from yolo_rocm.conv.hip.base import HipAlgorithm
from yolo_rocm.conv.hip.calls import HipCall, sum_partials
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.names import Pass

PROCESSORS: Final = 36  # of an RX 5600 XT: how many splits grad-weight has
COLUMNS: Final = (
    "target", "compiler", "algorithm", "pass", "layout", "registers", "waves", "relative_error", "allowed_error",
    "fma_share", "computed_us", "computed_limit", "computed_for", "date",
)  # fmt: skip
_MULTIPLY_ADDS: Final = ("v_fma", "v_fmac", "v_pk_fma", "v_mad_mix")
Compile = Callable[[str, Defines], Compiled]  # for one target


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
USUAL: Final = Layer((8, 64, 80, 80), (64, 64, 3, 3))
_DEPTHWISE: Final = replace(USUAL, weight=(64, 1, 3, 3), groups=64)
_IMAGE: Final = replace(USUAL, shape=(8, 3, 160, 160), weight=(16, 3, 3, 3), stride=2)


def layer_of(algorithm: HipAlgorithm) -> Layer:
    """Return the layer, as networks have it, that an algorithm is for."""
    return {"hip_depthwise": _DEPTHWISE, "hip_few_channels": _IMAGE}.get(algorithm.name, USUAL)


class Ran(NamedTuple):
    """What a run of a pass showed.

    Attributes:
        call: The launch of its kernel.
        error: Against fp64, relative; infinite where elements were not written.
        counts: Instructions of the kernel.
        groups: Workgroups of it that were run.
    """

    call: HipCall
    error: float
    counts: Counter[str]
    groups: int


def execute(
    call: HipCall,
    compile_: Compile,
    inputs: Sequence[torch.Tensor],
    shape: Sequence[int],
    groups: Sequence[tuple[int, int, int]] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, Counter[str]]:
    """Run a kernel; return the memory of its result, flat, which of its elements were written, and instructions.

    Args:
        call: The launch.
        compile_: Compiles it.
        inputs: Its tensors but the last, dense in memory; they may not be written.
        shape: Of the last, which it writes, in fp32.
        groups: The workgroups to run; all by default.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    program = Program.parse(compile_(call.source, call.defines).text)
    memory = Memory()
    given = [memory.add(f"input {n}", _raw(tensor), constant=True) for n, tensor in enumerate(inputs)]
    result = memory.add("result", int(np.prod(shape)) * 4)
    counts = launch(program, memory, [*given, result, *call.numbers], call.grid, call.threads, 0, groups)
    values = torch.from_numpy(memory.contents(result, np.int32)).view(torch.float32)
    return values, torch.from_numpy(memory.written(result, np.int32)), counts


@lru_cache(maxsize=2)
def _exact(problem: ConvProblem) -> tuple[Operands, dict[str, torch.Tensor]]:
    operands = Operands.of(problem)
    return operands, native_passes(problem, in_doubles(operands))


def run_pass(algorithm: HipAlgorithm, problem: ConvProblem, which: Pass, compile_: Compile, first: bool = False) -> Ran:
    """Run a pass in the emulator, with `first` the first workgroup of it: what that has written is compared."""
    if which == "grad_weight":
        return (_first_split if first else _grad_weight)(algorithm, problem, compile_)
    operands, passes = _exact(problem)
    exact, back = passes[which], which == Pass.GRAD_INPUT
    x, y, w = _strides(problem)
    src, out = (y, x) if back else (x, y)
    steps = algorithm.gather_steps(problem, back, src, w, out)
    weight = operands.weight
    if steps.other is not None:
        weight = execute(steps.other, compile_, (weight,), (steps.between,))[0]
    inputs = (operands.grad if back else operands.x, weight, torch.zeros(exact.shape[1]))
    groups = [(0, y, z) for y in range(steps.kernel.grid[1]) for z in range(steps.kernel.grid[2])] if first else None
    flat, written, counts = execute(steps.kernel, compile_, inputs, exact.shape, groups)
    got, known = (torch.as_strided(one, exact.shape, out) for one in (flat, written))
    return Ran(
        steps.kernel, _error(got, exact, known, first), counts, len(groups or ()) or math.prod(steps.kernel.grid)
    )


def _grad_weight(algorithm: HipAlgorithm, problem: ConvProblem, compile_: Compile) -> Ran:
    operands, passes = _exact(problem)
    x, y, w = _strides(problem)
    call, splits = algorithm.weight_steps(problem, y, x)
    parts, _, counts = execute(call, compile_, (operands.grad, operands.x), (splits, *problem.weight_shape))
    flat, written, _ = execute(sum_partials(problem, splits, w), compile_, (parts,), problem.weight_shape)
    got, known = (torch.as_strided(one, problem.weight_shape, w) for one in (flat, written))
    return Ran(call, _error(got, passes[Pass.GRAD_WEIGHT], known), counts, math.prod(call.grid))


def _first_split(algorithm: HipAlgorithm, problem: ConvProblem, compile_: Compile) -> Ran:
    """Run a workgroup of the first split, whose pixels come first in the batch; depthwise, of all splits.

    The gradient of all other pixels is zero in what it is compared with.
    """
    operands, passes = _exact(problem)
    x, y, _ = _strides(problem)
    call, splits = algorithm.weight_steps(problem, y, x)
    exact, kept = passes[Pass.GRAD_WEIGHT], slice(None)
    groups = [(0, y, z) for y in range(call.grid[1]) for z in range(call.grid[2])]
    if call.source == "weight_gemm":
        grad = operands.grad.detach().permute(0, 2, 3, 1).flatten(0, 2).clone()
        pixels = call.numbers[1]
        grad[pixels:] = 0
        size = problem.output_size
        samples = -(-pixels // math.prod(size))
        shape = (problem.batch, *size, problem.out_channels)
        given = grad.view(shape).permute(0, 3, 1, 2)[:samples].double()
        exact = conv2d_weight(  # type: ignore[no-untyped-call]
            operands.x.detach()[:samples].double(), problem.weight_shape, given, problem.stride, problem.padding,
            groups=problem.groups,
        )  # fmt: skip
        kept, groups = slice(1), [each for each in groups if each[2] == 0]
    parts, written, counts = execute(
        call, compile_, (operands.grad, operands.x), (splits, *problem.weight_shape), groups
    )
    shape = (splits, problem.weight_shape[0], *problem.kernel, -1)
    got, known = parts.view(shape)[kept].sum(0), written.view(shape)[kept].all(0)
    return Ran(call, _error(got, exact.permute(0, 2, 3, 1), known, True), counts, len(groups))


def _error(got: torch.Tensor, exact: torch.Tensor, known: torch.Tensor, some: bool = False) -> float:
    whole = bool(known.any() if some else known.all())
    return relative_error(got[known], exact[known]) if whole else float("inf")


def _strides(problem: ConvProblem) -> tuple[Any, ...]:
    shapes = (problem.input_shape, problem.output_shape, problem.weight_shape)
    return tuple(strides(shape, problem.channels_last) for shape in shapes)


def share_of_multiply_adds(counts: Counter[str]) -> float:
    """Return which part of the vector instructions multiplies and adds floats."""
    vector = {name: number for name, number in counts.items() if name.startswith("v_")}
    useful = sum(number for name, number in vector.items() if name.startswith(_MULTIPLY_ADDS))
    return useful / max(1, sum(vector.values()))


@contextmanager
def cut_for_a_card() -> Iterator[None]:
    """Describe launches as for an RX 5600 XT, which is not there."""
    patched = mock.patch.multiple
    with (
        patched(base, device_reason=lambda device: None),
        patched(gemm, processors=lambda device: PROCESSORS),
        patched(depthwise, processors=lambda device: PROCESSORS),
    ):
        yield


def every() -> list[HipAlgorithm]:
    """Return all algorithms that describe launches."""
    return [each for each in ALGORITHMS if isinstance(each, HipAlgorithm)]


def rows(target: str, compile_: Compile, compiler: str, only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield what was compiled and run for a target, a row for each algorithm (or those in `only`), layout and pass."""
    with cut_for_a_card():
        for last in (False, True):
            for algorithm in (each for each in every() if not only or each.name in only):
                for which in PASSES:
                    row = {"target": target, "compiler": compiler, "algorithm": algorithm.name, "pass": which}
                    yield row | {"layout": "nhwc" if last else "nchw"} | _row(algorithm, last, which, target, compile_)


def _row(algorithm: HipAlgorithm, last: bool, which: Pass, target: str, compile_: Compile) -> dict[str, Any]:
    usual = layer_of(algorithm).problem(last)
    odd = (layer.problem(last) for layer in ODD if (layer.groups > 1) == (algorithm.name == "hip_depthwise"))
    served = [problem for problem in odd if not algorithm.not_supported_reasons(problem)][:2]
    errors = [
        (run_pass(algorithm, problem, which, compile_).error, allowed_error(problem, which)) for problem in served
    ]
    ran = run_pass(algorithm, usual, which, compile_, first=True)
    errors.append((ran.error, allowed_error(usual, which)))
    error, allowed = max(errors, key=lambda pair: pair[0] / pair[1])
    made = compile_(ran.call.source, ran.call.defines)
    size = [math.prod(shape) for shape in (usual.input_shape, usual.output_shape, usual.weight_shape)]
    if which == "grad_weight":
        size[2] *= ran.call.grid[2]  # partial sums
    shortest = bound(target, ran.counts, 32, math.prod(ran.call.grid) / ran.groups, 4 * sum(size))
    return {
        "registers": made.registers,
        "waves": made.waves(target, ran.call.threads),
        "relative_error": f"{error:.2g}",
        "allowed_error": f"{allowed:.2g}",
        "fma_share": round(share_of_multiply_adds(ran.counts), 3),
        "computed_us": f"{shortest.microseconds:.4g}" if shortest else "",
        "computed_limit": shortest.limit if shortest else "",
        "computed_for": CARDS[target].name if shortest else "",
        "date": date.today().isoformat(),
    }


def _raw(tensor: torch.Tensor) -> Any:
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.int32).numpy()


def main() -> None:
    """Write the table to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--hiprtc", metavar="LIBRARY", help="compile by the hiprtc in this library, not by clang")
    parser.add_argument("--only", metavar="ALGORITHM", nargs="+", default=(), help="such as hip_64x64; all by default")
    parser.add_argument("--no-header", action="store_true")
    options = parser.parse_args()
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if not options.no_header:
        writer.writeheader()
    compiler = hiprtc_name(options.hiprtc) if options.hiprtc else clang_name()
    compile_ = partial(by_hiprtc, options.hiprtc) if options.hiprtc else by_clang
    for target in options.targets:
        for row in rows(target, partial(compile_, target=target), compiler, options.only):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
