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
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import torch

from yolo_rocm.conv.kernels import calls
from yolo_rocm.conv.kernels.calls import Dot, Epilogue, Strides, strides
from yolo_rocm.conv.kernels.tiles import FLAT, INFERENCE_SIZES, ROW_SIZES, SIZES, block, inference_tile, tiles
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.activations import IDENTITY, SILU
from yolo_rocm.engines.triton.available import FMA, MFMA, amd_family
from yolo_rocm.engines.triton.buffers import broken_on, without_broken_buffers
from yolo_rocm.engines.triton.call import Call
from yolo_rocm.engines.triton.launch import kernel_of
from yolo_rocm.norm.kernels import calls as norm_calls

TARGETS: Final = ("gfx1010", "gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx90a", "gfx942")
DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TYPE_NAMES: Final = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64",
    torch.uint8: "*u8",
}  # fmt: skip
# People run code for the one on cards that are the other, through `HSA_OVERRIDE_GFX_VERSION`.
OVERRIDES: Final = {"gfx1030": "gfx1010"}
# What multiplies: a kernel that has none of these is not what it was meant to be.
_MULTIPLIERS: Final = ("v_mfma", "v_wmma", "v_dot2", "v_dual_fmac", "v_fmac", "v_fma", "v_pk_fma")

_forking = threading.Lock()  # a child that has another one's end of a pipe keeps it open


@dataclass(frozen=True)
class Kernel:
    """A call to compile: which kernel, for which tile, dtype and layout.

    Attributes:
        name: As in the table.
        tile: Likewise.
        dtype: Likewise.
        layout: Likewise.
        call: What is compiled.
        types: Of its tensors.
        problem: The layer that the call is for: a convolution, or a normalisation (`tools/norm_kernels.py`).
        weight: Strides of the layer's weight, for the kernels that read or write it.
        splits: Partial sums that are written, or added.
        bias: Whether one is added.
        activation: What is computed of the result, in the kernel's epilogue.
    """

    name: str
    tile: str
    dtype: str
    layout: str
    call: Call
    types: tuple[torch.dtype, ...]
    problem: Any
    weight: Strides = (0, 0, 0, 0)
    splits: int = 0
    bias: bool = False
    activation: str = IDENTITY


class Layer(NamedTuple):
    """A 3 x 3 convolution."""

    channels: int
    out_channels: int
    groups: int
    stride: int
    batch: int
    size: tuple[int, int]


class Layers(NamedTuple):
    """Layers that the kernels are compiled for."""

    plain: Layer
    strided: Layer
    image: Layer
    depthwise: Layer


# Those of the table: as large as in a network.
USUAL: Final = Layers(
    Layer(64, 64, 1, 1, 8, (80, 80)),
    Layer(64, 64, 1, 2, 8, (80, 80)),
    Layer(3, 16, 1, 2, 8, (80, 80)),
    Layer(64, 64, 64, 1, 8, (80, 80)),
)


@dataclass(frozen=True)
class Built:
    """What a compiled kernel needs, and what it did where it was run; `error` where it could not be compiled or run.

    Attributes:
        target: Such as `gfx1100`.
        kernel: Its name.
        tile: Sizes.
        dtype: Data type of the tensors.
        layout: Their layout.
        registers: Vector registers of a lane.
        spills: Vector registers that did not fit, and go through memory.
        scalar_spills: Scalar registers that did not fit, and go through lanes of vector registers.
        occupancy: Waves that fit on a SIMD unit.
        lds_bytes: Shared memory.
        multiplies_by: The instructions that multiply.
        also_legal_on: The target whose cards may run this code too.
        error: Why there is nothing else.
        relative_error: Against fp64 in emulation (`tools/emulate_kernels.py`): the error nearest to its bound.
        allowed_error: What it may be at most.
        instructions: Executed by the workgroups that were run of a usual layer, counted per wave.
        fma_share: Of them, multiply-adds among those of the vector unit.
        lds_per_fma: Of them, LDS instructions for each multiply-add.
        computed_us: Shortest time of the layer, computed and not measured (`tools/kernel_bounds.py`).
        computed_limit: What sets it: `vector`, `matrix`, `lds` or `memory`.
        computed_for: The card.
    """

    target: str
    kernel: str
    tile: str
    dtype: str
    layout: str
    registers: int = 0
    spills: int = 0
    scalar_spills: int = 0
    occupancy: int = 0
    lds_bytes: int = 0
    multiplies_by: str = ""
    also_legal_on: str = ""
    error: str = ""
    relative_error: float | None = None
    allowed_error: float | None = None
    instructions: int | None = None
    fma_share: float | None = None
    lds_per_fma: float | None = None
    computed_us: float | None = None
    computed_limit: str = ""
    computed_for: str = ""


def curated(
    target: str, dtype: str, channels_last: bool, layers: Layers = USUAL, processors: int = 32, bias: bool = False
) -> Iterator[Kernel]:
    """Yield every kernel with every tile that a target is given.

    Args:
        target: Such as `gfx1100`.
        dtype: A key of `DTYPES`.
        channels_last: Layout of the tensors.
        layers: What the kernels are for.
        processors: Multiprocessors over which a sum over pixels is split.
        bias: Whether forward passes add one.
    """
    family = amd_family(target)
    if family is None:
        raise ValueError(f"no family of tiles for {target}")
    kind, half = DTYPES[dtype], dtype != "fp32"
    known, dot = tiles(family, half), Dot(upcast=family == FMA)
    layout = "nhwc" if channels_last else "nchw"
    plain, strided, image, deep = (_problem(layer, kind, channels_last) for layer in layers)

    def by(problem: ConvProblem) -> tuple[Strides, Strides, Strides, Strides]:
        shapes = (problem.input_shape, problem.output_shape, problem.weight_shape)
        x, y, _ = (strides(shape, channels_last) for shape in shapes)
        o, c, _, width = problem.weight_shape
        return x, y, (1, o, width * c * o, c * o), strides(problem.weight_shape, True)

    def kernel(name: str, tile: object, problem: ConvProblem, call: Call, weight: Strides) -> Kernel:
        added = bias and "grad_input" not in name
        return Kernel(name, str(tile), dtype, layout, call, (kind,) * 4, problem, weight, bias=added)

    def partial(name: str, tile: object, problem: ConvProblem, described: tuple[Call, int]) -> Kernel:
        call, splits = described
        return Kernel(name, str(tile), dtype, layout, call, (kind, kind, torch.float32), problem, splits=splits)

    x, y, out_channels_last, packed = by(plain)
    for size in SIZES:
        tile = known.gather[size]
        weight = packed if half else out_channels_last
        yield kernel("forward", tile, plain, calls.forward(plain, x, weight, y, bias, tile, dot), weight)
        sx, sy, _, sw = by(strided)
        yield kernel("grad_input", tile, strided, calls.grad_input(strided, sy, sw, sx, tile, dot), sw)
        tile = known.weight[size]
        yield partial("grad_weight", tile, plain, calls.grad_weight(plain, y, x, tile, dot, processors, rows=False))
    for size in ROW_SIZES:
        tile = known.rows[size]
        described = calls.grad_weight(plain, y, x, tile, dot, processors, rows=True)
        yield partial("grad_weight_rows", tile, plain, described)
    ix, iy, _, iw = by(image)
    yield kernel("forward_flat", known.flat, image, calls.forward_flat(image, ix, iw, iy, bias, known.flat, dot), iw)
    for side in _DEPTHWISE:
        deeper = replace(deep, weight_shape=(*deep.weight_shape[:2], side, side), padding=(side // 2,) * 2)
        dx, dy, _, dw = by(deeper)
        each, named = block(family, channels_last, half, side * side), f"depthwise {side}x{side}"
        yield kernel(named, each, deeper, calls.depthwise(deeper, dx, dw, dy, bias, each, back=False), dw)
        back = calls.depthwise(deeper, dy, dw, dx, False, each, back=True)
        yield kernel(f"{named} grad_input", each, deeper, back, dw)
        yield partial(f"{named} grad_weight", each, deeper, calls.depthwise_weight(deeper, dy, dx, each, processors))
    if channels_last:  # the same for every layout
        total = calls.sum_partials(plain, _PARTIALS, packed)
        yield Kernel("sum_partials", "32x64", dtype, layout, total, (torch.float32, kind), plain, packed, _PARTIALS)
        yield Kernel("transpose", "32x64", dtype, layout, calls.transpose(plain.input_shape), (kind, kind), plain)
    if layers is USUAL:
        from tools.norm_kernels import curated_norms  # which imports this

        yield from curated_norms(target, dtype, channels_last)


def curated_inference(
    target: str,
    dtype: str,
    channels_last: bool,
    layers: Layers = USUAL,
    processors: int = 32,
    bias: bool = True,
    activation: str = SILU,
) -> Iterator[Kernel]:
    """Yield the forward kernels with an activation in their epilogue, with every tile that a target is given.

    Args:
        target: Such as `gfx1100`.
        dtype: A key of `DTYPES`.
        channels_last: Layout of the tensors.
        layers: What the kernels are for.
        processors: Of no effect, as in `curated`.
        bias: Whether one is added.
        activation: What is computed of the result.
    """
    family = amd_family(target)
    if family is None:
        raise ValueError(f"no family of tiles for {target}")
    kind, half = DTYPES[dtype], dtype != "fp32"
    known, dot, epilogue = tiles(family, half), Dot(upcast=family == FMA), Epilogue(activation)
    layout = "nhwc" if channels_last else "nchw"
    plain, _, image, deep = (_problem(layer, kind, channels_last) for layer in layers)

    def kernel(name: str, tile: object, problem: ConvProblem, call: Call, weight: Strides) -> Kernel:
        named = f"{name} {activation}"
        return Kernel(named, str(tile), dtype, layout, call, (kind,) * 4, problem, weight, 0, bias, activation)

    def by(problem: ConvProblem) -> tuple[Strides, Strides, Strides]:
        x, y = (strides(shape, channels_last) for shape in (problem.input_shape, problem.output_shape))
        o, c, _, width = problem.weight_shape
        return x, y, strides(problem.weight_shape, True) if half else (1, o, width * c * o, c * o)

    x, y, weight = by(plain)
    own = (tile for size in INFERENCE_SIZES if (tile := inference_tile(family, half, size)) is not None)
    for tile in (*known.gather.values(), *own):
        call = calls.forward(plain, x, weight, y, bias, tile, dot, epilogue)
        yield kernel("forward", tile, plain, call, weight)
    ix, iy, iw = by(image)
    flat = inference_tile(family, half, FLAT) or known.flat
    yield kernel("forward_flat", flat, image, calls.forward_flat(image, ix, iw, iy, bias, flat, dot, epilogue), iw)
    dx, dy = (strides(shape, channels_last) for shape in (deep.input_shape, deep.output_shape))
    dw = strides(deep.weight_shape, True)
    each = block(family, channels_last, half)
    yield kernel("depthwise 3x3", each, deep, calls.depthwise(deep, dx, dw, dy, bias, each, False, epilogue), dw)


def assembly(kernel: Kernel, target: str) -> tuple[str, int]:
    """Compile one kernel for a target in this process; return its assembly and the bytes of shared memory it takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = kernel_of(kernel.call)
    signature, constants, attributes = specialised(function, kernel, target)
    with without_broken_buffers(target):
        compiled = triton.compile(
            ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),
            target=GPUTarget("hip", target, 64 if amd_family(target) == MFMA else 32),
            options={"num_warps": kernel.call.warps, "num_stages": kernel.call.stages},
        )
    return str(compiled.asm["amdgcn"]), int(compiled.metadata.shared)


Answer = Callable[[Kernel, str], dict[str, Any]]


def build(kernels: Sequence[tuple[Kernel, str]], answer: Answer | None = None) -> list[Built]:
    """Compile kernels for their targets and return what each needs; in a child process, a new one after an abort.

    Args:
        kernels: Kernels and targets.
        answer: What the child finds out about each: fields of `Built`. By default it compiles.
    """
    built: list[Built] = []
    while len(built) < len(kernels):
        answers, exit_code = _answers_of_a_child(kernels[len(built) :], answer or compiled)
        if not answers:
            answers = [{"error": f"the process died with exit code {exit_code}"}]
        for (kernel, target), found in zip(kernels[len(built) :], answers, strict=False):
            built.append(Built(target, kernel.name, kernel.tile, kernel.dtype, kernel.layout, **found))
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
    """Compile a kernel in this process and return what it needs, as fields of `Built`."""
    return needs(*assembly(kernel, target), target)


def needs(text: str, shared: int, target: str) -> dict[str, Any]:
    """Return what the assembly says, as fields of `Built`."""
    return {
        "registers": _number(r"\.vgpr_count:\s+(\d+)", text),
        "spills": _number(r"\.vgpr_spill_count:\s+(\d+)", text),
        "scalar_spills": _number(r"\.sgpr_spill_count:\s+(\d+)", text),
        "occupancy": _number(r"; Occupancy:\s+(\d+)", text),
        "lds_bytes": shared,
        "multiplies_by": multiplier(text),
        "also_legal_on": _legal_on(text, target),
    }


def build_all(
    kernels: Sequence[tuple[Kernel, str]], workers: int | None = None, answer: Answer | None = None
) -> list[Built]:
    """Compile many, a few at once; see `build`."""
    _load_compiler()
    # Copying this process with the compiler in it takes a quarter of what a kernel does: each child compiles many.
    count = workers or os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        parts = list(pool.map(lambda some: build(some, answer), (kernels[first::count] for first in range(count))))
    return [parts[index % count][index // count] for index in range(len(kernels))]


def assembles_for(text: str, written_for: str, target: str) -> str | None:
    """Say why assembly written for one target is not legal on another, None where it is."""
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    try:
        made = amd.assemble_amdgcn(text.replace(written_for, target), target, "")
    except Exception as error:  # whatever the assembler raises is the answer
        return str(error)
    # It prints what is wrong and returns nothing.
    return None if made else f"the assembler refuses it for {target}"


def _legal_on(text: str, target: str) -> str:
    other = OVERRIDES.get(target)
    return "" if other is None or assembles_for(text, target, other) is not None else other


def _load_compiler() -> None:
    """Load what every compilation needs, before the first fork: a child that has to do it takes twice as long."""
    import triton.compiler.code_generator
    import triton.runtime.cache

    # It reads all of Triton, and is remembered.
    getattr(triton.runtime.cache, "triton_key", lambda: None)()
    for name in (calls.IMPLICIT_GEMM, calls.GRAD_WEIGHT, calls.DEPTHWISE, norm_calls.STATISTICS, norm_calls.ACTIVATION):
        importlib.import_module(name)


def multiplier(text: str) -> str:
    """Name the instructions a kernel multiplies by, most frequent first."""
    found = Counter(
        next(kind for kind in _MULTIPLIERS if name.startswith(kind))
        for name in re.findall(r"^\s+(v_\w+)", text, re.MULTILINE)
        if name.startswith(_MULTIPLIERS)
    )
    return " ".join(name for name, _ in found.most_common())


def specialised(function: Any, kernel: Kernel, target: str) -> tuple[dict[str, str], dict[str, Any], dict[Any, Any]]:
    """Return signature, constants and attributes as Triton's own launch finds them for these arguments."""
    names = function.arg_names
    constants: dict[str, Any] = dict(kernel.call.constants)
    signature: dict[str, str] = {}
    attributes: dict[Any, Any] = {}
    values = dict(zip(names[len(kernel.types) :], kernel.call.numbers, strict=False))
    plain = {name for name, parameter in zip(names, function.params, strict=True) if parameter.do_not_specialize}
    for index, name in enumerate(names):
        if index < len(kernel.types):
            signature[name] = _TYPE_NAMES[kernel.types[index]]
            attributes[(index,)] = [["tt.divisibility", 16]]
            if not broken_on(target):
                # A tensor below 2 GiB is read through a buffer descriptor with offsets of 32 bits.
                attributes[(index,)].append(["tt.pointer_range", 32])
        elif name in constants:
            signature[name] = "constexpr"
        elif isinstance(values[name], float):
            signature[name] = "fp32"
        elif values[name] == 1 and name not in plain:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if values[name] % 16 == 0 and name not in plain:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


_DEPTHWISE: Final = (3, 5, 7)
_PARTIALS: Final = 64


def _problem(layer: Layer, dtype: torch.dtype, channels_last: bool) -> ConvProblem:
    channels, out_channels, groups, stride, batch, size = layer
    shape, weight = (batch, channels, *size), (out_channels, channels // groups, 3, 3)
    return ConvProblem(
        shape, weight, (stride,) * 2, (1, 1), (1, 1), (0, 0), groups, False, dtype, "cuda:0", channels_last
    )


def _number(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text)[:1])


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
    wanted = [
        (kernel, target)
        for target in given.targets
        for dtype in given.dtypes
        for layout in given.layouts
        for kernel in (curated_inference if given.inference else curated)(target, dtype, layout == "nhwc")
    ]
    rows = build_all(wanted, given.workers, answer)
    made_by = {"triton": version("triton"), "date": date.today().isoformat()}
    writer = csv.DictWriter(sys.stdout, [*(field.name for field in fields(Built)), *made_by], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(row), **made_by} for row in rows)
    return int(any(row.error or row.spills for row in rows))


if __name__ == "__main__":
    sys.exit(main())
