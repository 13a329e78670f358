"""Run the kernels of engine hip for AMD GPUs that are not there: compile each, execute its assembly, print CSV.

    python tools/emulate_hip.py gfx1010 gfx1030 > docs/executed_hip.csv
    python tools/emulate_hip.py --hiprtc /path/to/libamdhip64.so.5 --no-header gfx1010 >> docs/executed_hip.csv

For each algorithm, layout and pass in fp32 a row: registers and waves, the relative error against fp64 with what is
allowed, and the share of multiply-adds among vector instructions. Of small layers with odd sizes, for edges and masks,
every workgroup runs. Of a layer of 64 channels (8 x 80 x 80, 3 x 3), cut for the 36 compute units of an RX 5600 XT, the
first does, for shares: in grad-weight that of the first split.
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
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import torch
from torch.nn.grad import conv2d_weight

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import hip_compilers
from tools.emulator import Program
from tools.exactness import allowed_error, in_doubles, native_passes
from tools.hip_compilers import Compiled, Defines, chosen
from tools.kernel import Group
from tools.running import Task, run, share_of_multiply_adds
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
    "fma_share", "date",
)  # fmt: skip
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
    """

    call: HipCall
    error: float
    counts: Counter[str]


def execute(
    call: HipCall,
    compile_: Compile,
    inputs: Sequence[torch.Tensor],
    output: torch.Tensor,
    groups: Sequence[Group] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, Counter[str]]:
    """Run a kernel; return its result, which of its elements were written, and instructions.

    Args:
        call: The launch.
        compile_: Compiles it.
        inputs: Its tensors but the last, dense in memory; they may not be written.
        output: Shape and strides of the last.
        groups: The workgroups to run; all by default.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    program = Program.parse(compile_(call.source, call.defines).text)
    task = Task([*inputs, output], (len(inputs),), lambda got, known: [])
    (values,), (known,), counts = run(program, task, call.numbers, call.grid, call.threads, 0, groups)
    return values, known, counts


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
        weight = execute(steps.other, compile_, (weight,), torch.empty(steps.between))[0]
    inputs = (operands.grad if back else operands.x, weight, torch.zeros(exact.shape[1]))
    groups = _first_groups(steps.kernel) if first else None
    got, known, counts = execute(steps.kernel, compile_, inputs, torch.empty_strided(exact.shape, out), groups)
    return Ran(steps.kernel, _error(got, exact, known, first), counts)


def _first_groups(call: HipCall) -> list[Group]:
    return [(0, y, z) for y in range(call.grid[1]) for z in range(call.grid[2])]


def _grad_weight(algorithm: HipAlgorithm, problem: ConvProblem, compile_: Compile) -> Ran:
    operands, passes = _exact(problem)
    x, y, w = _strides(problem)
    call, splits = algorithm.weight_steps(problem, y, x)
    parts, _, counts = execute(call, compile_, (operands.grad, operands.x), torch.empty(splits, *problem.weight_shape))
    output = torch.empty_strided(problem.weight_shape, w)
    got, known, _ = execute(sum_partials(problem, splits, w), compile_, (parts,), output)
    return Ran(call, _error(got, passes[Pass.GRAD_WEIGHT], known), counts)


def _first_split(algorithm: HipAlgorithm, problem: ConvProblem, compile_: Compile) -> Ran:
    """Run a workgroup of the first split, whose pixels come first in the batch; depthwise, of all splits.

    The gradient of all other pixels is zero in what it is compared with.
    """
    operands, passes = _exact(problem)
    x, y, _ = _strides(problem)
    call, splits = algorithm.weight_steps(problem, y, x)
    exact, kept, groups = passes[Pass.GRAD_WEIGHT], slice(None), _first_groups(call)
    if call.source == "weight_gemm":
        grad = operands.grad.detach().permute(0, 2, 3, 1).flatten(0, 2).clone()
        pixels = call.numbers[1]
        grad[pixels:] = 0
        samples = -(-pixels // math.prod(problem.output_size))
        given = grad.view(problem.batch, *problem.output_size, -1).permute(0, 3, 1, 2)[:samples].double()
        exact = conv2d_weight(  # type: ignore[no-untyped-call]
            operands.x.detach()[:samples].double(), problem.weight_shape, given, problem.stride, problem.padding,
            groups=problem.groups,
        )  # fmt: skip
        kept, groups = slice(1), [each for each in groups if each[2] == 0]
    output = torch.empty(splits, problem.weight_shape[0], *problem.kernel, problem.weight_shape[1])
    parts, written, counts = execute(call, compile_, (operands.grad, operands.x), output, groups)
    error = _error(parts[kept].sum(0), exact.permute(0, 2, 3, 1), written[kept].all(0), True)
    return Ran(call, error, counts)


def _error(got: torch.Tensor, exact: torch.Tensor, known: torch.Tensor, some: bool = False) -> float:
    whole = bool(known.any() if some else known.all())
    return relative_error(got[known], exact[known]) if whole else float("inf")


def _strides(problem: ConvProblem) -> tuple[Any, ...]:
    shapes = (problem.input_shape, problem.output_shape, problem.weight_shape)
    return tuple(strides(shape, problem.channels_last) for shape in shapes)


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


def rows(
    target: str, compile_: hip_compilers.Compile, compiler: str, only: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield what was compiled and run for a target, a row for each algorithm (or those in `only`), layout and pass."""

    def for_target(source: str, defines: Defines) -> Compiled:
        return compile_(source, defines, target)

    with cut_for_a_card():
        for last in (False, True):
            for algorithm in (each for each in every() if not only or each.name in only):
                for which in PASSES:
                    row = {"target": target, "compiler": compiler, "algorithm": algorithm.name, "pass": which}
                    yield (
                        row | {"layout": "nhwc" if last else "nchw"} | _row(algorithm, last, which, target, for_target)
                    )


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
    share = round(share_of_multiply_adds(ran.counts)[0], 3)
    figures = (made.registers, made.waves(target, ran.call.threads), f"{error:.2g}", f"{allowed:.2g}", share)
    return dict(zip(COLUMNS[5:], (*figures, date.today().isoformat()), strict=True))


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
    compile_, compiler = chosen(options.hiprtc)
    for target in options.targets:
        for row in rows(target, compile_, compiler, options.only):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
