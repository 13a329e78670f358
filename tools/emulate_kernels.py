"""Run the Triton kernels for AMD GPUs that are not there: compile each, execute its assembly, compare with fp64.

Run as a program it makes the table of `tools/compile_kernels.py` with what was executed, for a list of targets:

    python tools/emulate_kernels.py gfx1010 gfx1100 gfx942

Each kernel runs at least twice. Compiled for a layer with odd sizes, all of it runs: edges and masks; grad-weight for
two more layers. Compiled for a layer as networks have it, some of its workgroups run: the code that a training would
run, and the instructions that are counted. Where a kernel has an entry for arguments that firmware has filled in
(gfx90a, gfx942), the run of the first odd layer takes it.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import compile_kernels, kernel_tasks, loss_kernels, norm_kernels
from tools.compile_kernels import curated
from tools.conv_kernels import Layer, Layers, curated_inference
from tools.emulator import Program
from tools.kernel import Kernel
from tools.kernel_assembly import assembly, needs, specialised
from tools.running import Outcome, outcome, run, share_of_multiply_adds
from yolo_rocm.engines.activations import IDENTITY
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
    of = {"norm": norm_kernels, "loss": loss_kernels}.get(kernel.name.partition(" ")[0], kernel_tasks)
    task, threads = of.task(kernel), kernel.call.warps * program.wave_size
    preloaded = preloaded and program.preloaded_entry is not None
    ran = run(program, task, numbers, (x, y, z), threads, shared, groups, preloaded)
    # Phases of a stride may be of several sizes in a whole grid, of which all is written.
    of_convolution = of is kernel_tasks and not some
    expected = task.tensors[-1].numel() if of_convolution else of.elements_written(kernel, groups)
    return outcome(kernel, task, expected, ran)


def _some_of(kernel: Kernel) -> list[tuple[int, int, int]]:
    """Return the first, the middle and the last workgroup, or one of each stride phase: phases have other taps."""
    x, y, z = kernel.call.grid
    if kernel.call.constants.get("GRAD_INPUT") and kernel.call.kernel == "gather_gemm":
        return [(x * phase // y, phase, 0) for phase in range(y)]
    return list(dict.fromkeys([(0, 0, 0), (x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1)]))


def emulated(kernel: Kernel, target: str) -> dict[str, Any]:
    """Compile and run a kernel of the table in this process; return columns of the table."""
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
    return {
        **needs(text, shared, target),
        "relative_error": float(f"{worst.error:.2g}"),
        "allowed_error": float(f"{worst.allowed:.2g}"),
        "instructions": sum(times for name, times in usual.counts.items() if name != "vopd"),
        "fma_share": round(share, 3),
        "lds_per_fma": round(lds, 3),
    }


def like(kernel: Kernel, target: str, layers: Layers) -> Kernel:
    """Return a kernel of the table, with its tile, for other layers."""
    if kernel.name.startswith("norm "):
        return kernel if layers is USUAL else norm_kernels.odd_one(kernel, target)
    # What is counted has as few splits as its small image allows, still up to ten times shorter than a layer's: shares
    # come out a little low. A bias is added where nothing is counted.
    counted = layers is USUAL
    table = curated if kernel.activation == IDENTITY else curated_inference
    every = table(target, kernel.dtype, kernel.layout == "nhwc", layers, 1 if counted else 4, bias=not counted)
    return next(each for each in every if (each.name, each.tile) == (kernel.name, kernel.tile))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(compile_kernels.main(__doc__, emulated))
