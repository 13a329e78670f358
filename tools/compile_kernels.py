"""Compile the Triton kernels for AMD GPUs that are not there, and read from the assembly what each kernel needs.

Run as a program it compiles every curated tile for a list of targets and prints a table:

    python tools/compile_kernels.py gfx1010 gfx1100 gfx942

Compilations run in child processes: where LLVM cannot select an instruction it aborts, it does not raise.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.conv_kernels import USUAL, Layers, curated_convolutions, curated_inference
from tools.kernel import DTYPES, TARGETS, Kernel
from tools.kernel_assembly import assembly, needs
from tools.norm_kernels import curated_norms
from yolo_rocm.conv.triton import calls
from yolo_rocm.norm.triton import calls as norm_calls

_forking = threading.Lock()  # a child that has another one's end of a pipe keeps it open


# What is found out about a kernel, and `error` where it could not be compiled or run: vector registers of a lane,
# vector registers that went through memory and scalar ones that went through lanes, waves that fit on a SIMD unit,
# shared memory, the instructions that multiply, the target whose cards may run this code too. Of a run in emulation
# (`tools/emulate_kernels.py`): the error nearest to its bound, the bound, instructions by the workgroups that were run
# of a usual layer, per wave, the share of multiply-adds among those of the vector unit, LDS instructions for each.
COLUMNS: Final = (
    "target", "kernel", "tile", "dtype", "layout", "registers", "spills", "scalar_spills", "occupancy", "lds_bytes",
    "multiplies_by", "also_legal_on", "error", "relative_error", "allowed_error", "instructions", "fma_share",
    "lds_per_fma",
)  # fmt: skip
Row = dict[str, Any]


def curated(
    target: str, dtype: str, channels_last: bool, layers: Layers = USUAL, processors: int = 32, bias: bool = False
) -> Iterator[Kernel]:
    """Yield every kernel of training with every tile that a target is given; those of BatchNorm for usual layers only.

    Args:
        target: Such as `gfx1100`.
        dtype: A key of `DTYPES`.
        channels_last: Layout of the tensors.
        layers: What the kernels of convolutions are for.
        processors: Multiprocessors over which a sum over pixels is split.
        bias: Whether forward passes add one.
    """
    yield from curated_convolutions(target, dtype, channels_last, layers, processors, bias)
    if layers is USUAL:
        yield from curated_norms(target, dtype, channels_last)


Answer = Callable[[Kernel, str], dict[str, Any]]


def build(kernels: Sequence[tuple[Kernel, str]], answer: Answer | None = None) -> list[Row]:
    """Compile kernels for their targets and return what each needs; in a child process, a new one after an abort.

    Args:
        kernels: Kernels and targets.
        answer: What the child finds out about each: columns. By default it compiles.
    """
    built: list[Row] = []
    while len(built) < len(kernels):
        answers, exit_code = _answers_of_a_child(kernels[len(built) :], answer or compiled)
        if not answers:
            answers = [{"error": f"the process died with exit code {exit_code}"}]
        for (kernel, target), found in zip(kernels[len(built) :], answers, strict=False):
            named = (target, kernel.name, kernel.tile, kernel.dtype, kernel.layout)
            built.append({**dict.fromkeys(COLUMNS, ""), **dict(zip(COLUMNS, named, strict=False)), **found})
    return built


def _answers_of_a_child(kernels: Sequence[tuple[Kernel, str]], answer: Answer) -> tuple[list[Any], int | None]:
    """Return a child's answers for the kernels, in order, up to the one it dies of, and its exit code."""
    context = multiprocessing.get_context("fork")
    with _forking:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_build_in_child, args=(theirs, kernels, answer))
        child.start()
        theirs.close()
    answers: list[Any] = []
    with suppress(EOFError):
        while True:
            answers.append(ours.recv())
    child.join()
    ours.close()
    return answers, child.exitcode


def _build_in_child(answers: Connection, kernels: Sequence[tuple[Kernel, str]], answer: Answer) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LLVM prints a stack before it aborts
    for kernel, target in kernels:
        try:
            answers.send(answer(kernel, target))
        except BaseException as error:  # whatever the compiler raises is the answer
            answers.send({"error": f"{type(error).__name__}: {error}"[:500]})
    answers.close()


def compiled(kernel: Kernel, target: str) -> dict[str, Any]:
    """Compile a kernel in this process and return what it needs, as columns."""
    return needs(*assembly(kernel, target), target)


def build_all(
    kernels: Sequence[tuple[Kernel, str]], workers: int | None = None, answer: Answer | None = None
) -> list[Row]:
    """Compile many, a few at once; see `build`."""
    _load_compiler()
    # Copying this process with the compiler in it takes a quarter of what a kernel does: each child compiles many.
    count = workers or os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        parts = list(pool.map(lambda some: build(some, answer), (kernels[first::count] for first in range(count))))
    return [parts[index % count][index // count] for index in range(len(kernels))]


def _load_compiler() -> None:
    """Load what every compilation needs, before the first fork: a child that has to do it takes twice as long."""
    import triton.compiler.code_generator
    import triton.runtime.cache

    # It reads all of Triton, and is remembered.
    getattr(triton.runtime.cache, "triton_key", lambda: None)()
    for name in (calls.IMPLICIT_GEMM, calls.GRAD_WEIGHT, calls.DEPTHWISE, norm_calls.STATISTICS, norm_calls.ACTIVATION):
        importlib.import_module(name)


def main(description: str | None = __doc__, answer: Answer | None = None) -> int:
    """Print the table; exit with 1 where a kernel does not compile, spills, or errs more than it may.

    Args:
        description: Of the command.
        answer: See `build`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--layouts", nargs="*", default=["nhwc", "nchw"], choices=["nhwc", "nchw"])
    parser.add_argument("--inference", action="store_true", help="kernels with an activation in their epilogue")
    parser.add_argument("--workers", type=int, help="compilations at once; as many as processors by default")
    given = parser.parse_args()
    kernels = [
        (kernel, target)
        for target in given.targets
        for dtype in given.dtypes
        for layout in given.layouts
        for kernel in (curated_inference if given.inference else curated)(target, dtype, layout == "nhwc")
    ]
    rows = build_all(kernels, given.workers, answer)
    made_by = {"triton": version("triton"), "date": date.today().isoformat()}
    writer = csv.DictWriter(sys.stdout, [*COLUMNS, *made_by], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, **made_by} for row in rows)
    return int(any(row["error"] or row["spills"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
