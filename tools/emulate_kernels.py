"""Run the Triton kernels for AMD GPUs that are not there: compile each, execute its assembly, compare with fp64.

Run as a program it makes the table of `tools/compile_kernels.py` with what was executed, for a list of targets:

    python tools/emulate_kernels.py gfx1010 gfx1100 gfx942

Each kernel runs at least twice. Compiled for a layer with odd sizes, all of it runs: edges and masks; grad-weight for
two more layers. Compiled for a layer as networks have it, some of its workgroups run: the code that a training would
run, and the instructions that are counted. Where a kernel has an entry for arguments that firmware has filled in
(gfx90a, gfx942), the run of the first odd layer takes it.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import compile_kernels, loss_kernels, norm_kernels
from tools.compile_kernels import curated
from tools.conv_kernels import Layer, Layers, curated_inference
from tools.emulator import Program
from tools.exactness import allowed_error
from tools.kernel import Kernel
from tools.kernel_assembly import assembly, needs, specialised
from tools.kernel_bounds import CARDS, bound
from tools.kernel_runs import Output, run
from tools.kernel_tasks import elements_written, task
from tools.norm_runs import run_norm, run_task
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.activations import IDENTITY
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.names import Pass
from yolo_rocm.engines.triton.available import MFMA, amd_family
from yolo_rocm.engines.triton.launch import kernel_of

# Sizes that are multiples of nothing: half-empty tiles, edges on every side, channels that end inside a tile.
ODD: Final = Layers(
    Layer(24, 20, 1, 1, 2, (7, 15)), Layer(24, 20, 1, 2, 2, (7, 9)), Layer(3, 20, 1, 2, 2, (7, 9)),
    Layer(20, 20, 20, 1, 2, (7, 9)),
)  # fmt: skip
# More for grad-weight, whose pixels are taken in other ways there: in order where rectangles would waste too much, by
# rectangles (but for some of CDNA's tiles) across the edge of rows that are multiples of 4; and channels that fill
# tiles, which ODD's do not.
MORE: Final = tuple(Layers(Layer(64, 32, 1, 1, 1, size), *ODD[1:]) for size in ((10, 10), (15, 12)))
# What Triton specialises a kernel by is the same as for the layers of the table, so that the code is the same: strides
# are multiples of 16. The image is smaller.
USUAL: Final = Layers(
    Layer(64, 64, 1, 1, 1, (16, 80)), Layer(64, 64, 1, 2, 1, (16, 80)), Layer(3, 16, 1, 2, 1, (16, 80)),
    Layer(64, 64, 64, 1, 1, (16, 80)),
)  # fmt: skip
_MULTIPLY_ADDS: Final = ("v_fma", "v_mad_mix", "v_pk_fma", "v_dot", "v_wmma", "v_mfma")


@dataclass(frozen=True)
class Outcome:
    """What a run of a kernel showed.

    Attributes:
        error: Against fp64, relative, of all elements that were written.
        allowed: What it may be.
        wrong: Elements that are further off than roundings explain.
        counts: Instructions, per wave.
    """

    error: float
    allowed: float
    wrong: int
    counts: Counter[str]

    @property
    def share(self) -> float:
        """The error as a part of what it may be; infinite where there may be none."""
        return self.error / self.allowed if self.allowed else math.inf if self.error else 0.0

    @property
    def right(self) -> bool:
        """Whether the error is within its bound, NaN is not, and so is each element."""
        return self.error <= self.allowed and not self.wrong


def execute(kernel: Kernel, text: str, shared: int, some: bool = False, preloaded: bool = False) -> Outcome:
    """Run a kernel's assembly on random tensors and compare what it wrote with fp64.

    Args:
        kernel: What was compiled.
        text: The assembly.
        shared: Bytes of LDS that a launch gives it.
        some: Run the workgroups of `_some_of` alone.
        preloaded: Enter as firmware does that fills in arguments, where the kernel has an entry for that.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    program = Program.parse(text)
    function = kernel_of(kernel.call)
    signature, _, _ = specialised(function, kernel, program.target)
    named = zip(function.arg_names[len(kernel.types) :], kernel.call.numbers, strict=False)
    numbers = [number for name, number in named if signature[name] != "constexpr"]
    x, y, z = kernel.call.grid
    groups = _some_of(kernel) if some else list(product(range(x), range(y), range(z)))
    preloaded = preloaded and program.preloaded_entry is not None
    if norm_kernels.is_norm(kernel):
        return Outcome(*run_norm(kernel, program, numbers, shared, groups, preloaded))
    if loss_kernels.is_loss(kernel):
        of_loss, expected = loss_kernels.task(kernel), loss_kernels.elements_written(kernel, groups)
        return Outcome(*run_task(kernel, of_loss, expected, program, numbers, shared, groups, preloaded))
    given = task(kernel)
    output = Output(given.shape, given.strides, given.dtype)
    ran = run(program, given.inputs, output, numbers, (x, y, z), kernel.call.warps, shared, groups, preloaded)
    got, known = ran.values, ran.known
    expected = elements_written(kernel, groups) if some else known.numel()
    if int(known.sum()) != expected:
        raise ValueError(f"{kernel.name} wrote {int(known.sum())} elements of {expected}")
    error = relative_error(got[known], given.exact[known])
    return Outcome(error, _allowed(kernel, given.dtype), given.wrong(got, known), ran.counts)


def _some_of(kernel: Kernel) -> list[tuple[int, int, int]]:
    """Return the first, the middle and the last workgroup, or one of each stride phase: phases have other taps."""
    x, y, z = kernel.call.grid
    if kernel.call.constants.get("GRAD_INPUT") and kernel.call.kernel == "gather_gemm":
        return [(x * phase // y, phase, 0) for phase in range(y)]
    return list(dict.fromkeys([(0, 0, 0), (x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1)]))


def _allowed(kernel: Kernel, dtype: torch.dtype) -> float:
    """Return the bound of the GPU tests for fp32, in which every kernel adds, and one rounding to what it writes.

    For half precision it is tighter than that of the GPU tests, which other algorithms have to meet too.
    """
    if kernel.name == "transpose":
        return 0.0
    back = Pass.GRAD_INPUT if "grad_input" in kernel.name else Pass.FORWARD
    which = Pass.GRAD_WEIGHT if kernel.splits else back
    rounding = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    return allowed_error(replace(kernel.problem, dtype=torch.float32), which) + rounding


def share_of_multiply_adds(counts: Counter[str]) -> tuple[float, float]:
    """Return multiply-adds among the instructions of the vector unit, and LDS instructions for each of them."""
    vector = sum(times for name, times in counts.items() if name.startswith("v_"))
    multiply_adds = sum(times for name, times in counts.items() if name.startswith(_MULTIPLY_ADDS))
    lds = sum(times for name, times in counts.items() if name.startswith("ds_"))
    return multiply_adds / max(vector, 1), lds / multiply_adds if multiply_adds else 0.0


def emulated(kernel: Kernel, target: str) -> dict[str, Any]:
    """Compile and run a kernel of the table in this process; return fields of `Built`."""
    found = like(kernel, target, USUAL)
    text, shared = assembly(found, target)
    usual = execute(found, text, shared, some=True)
    outcomes = [usual]
    for layers in (ODD, *(MORE if kernel.name.startswith("grad_weight") else ())):
        other = like(kernel, target, layers)
        outcomes.append(execute(other, *assembly(other, target), preloaded=layers is ODD))
    worst = max(outcomes, key=lambda outcome: (not outcome.right, outcome.share))
    if not worst.right:
        limits = f"allowed are {worst.allowed:.3g}; {worst.wrong} elements are wrong"
        raise ValueError(f"{kernel.name} errs by {worst.error:.3g}, {limits}")
    share, lds = share_of_multiply_adds(usual.counts)
    shortest = _bound(kernel, found, target, usual.counts)
    return {
        **needs(text, shared, target),
        "relative_error": float(f"{worst.error:.2g}"),
        "allowed_error": float(f"{worst.allowed:.2g}"),
        "instructions": sum(times for name, times in usual.counts.items() if name != "vopd"),
        "fma_share": round(share, 3),
        "lds_per_fma": round(lds, 3),
        **({} if shortest is None else shortest),
    }


def _bound(kernel: Kernel, run: Kernel, target: str, counts: Counter[str]) -> dict[str, Any] | None:
    """Return what `kernel_bounds` computes for the layer of the table, from what some workgroups of another one did."""
    times = math.prod(kernel.call.grid) / len(_some_of(run))
    if kernel.splits and kernel.name != "sum_partials":
        times *= kernel.call.numbers[1] / run.call.numbers[1]  # pixels of a split
    found = bound(target, counts, 64 if amd_family(target) == MFMA else 32, times, _tensor_bytes(kernel))
    if found is None:
        return None
    card = CARDS[target].name
    return {"computed_us": float(f"{found.microseconds:.3g}"), "computed_limit": found.limit, "computed_for": card}


def _tensor_bytes(kernel: Kernel) -> int:
    """Return the bytes of the tensors that a kernel reads and writes."""
    if norm_kernels.is_norm(kernel):
        return norm_kernels.tensor_bytes(kernel)
    problem: ConvProblem = kernel.problem
    x, y, weight = (math.prod(s) for s in (problem.input_shape, problem.output_shape, problem.weight_shape))
    size = problem.dtype.itemsize
    if kernel.name == "transpose":
        return 2 * x * size
    if kernel.name == "sum_partials":
        return weight * (4 * kernel.splits + size)
    if kernel.splits:
        return (x + y) * size + 4 * kernel.splits * weight
    return (x + y + weight) * size


def like(kernel: Kernel, target: str, layers: Layers) -> Kernel:
    """Return a kernel of the table, with its tile, for other layers."""
    if norm_kernels.is_norm(kernel):
        return kernel if layers is USUAL else norm_kernels.odd_one(kernel, target)
    # What is counted has as few splits as its small image allows, still up to ten times shorter than a layer's: shares
    # come out a little low, times a little high. A bias is added where nothing is counted.
    counted = layers is USUAL
    table = curated if kernel.activation == IDENTITY else curated_inference
    every = table(target, kernel.dtype, kernel.layout == "nhwc", layers, 1 if counted else 4, bias=not counted)
    return next(each for each in every if (each.name, each.tile) == (kernel.name, kernel.tile))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(compile_kernels.main(__doc__, emulated))
