"""Convolutions as Triton compiles them for AMD targets, small enough to be run many times."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import NamedTuple

import torch

from tools.emulator import Program
from tools.exactness import allowed_error
from tools.running import Ran, Task, run
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.measure import relative_error

from ..child import python

CHANNELS, OUT_CHANNELS, SIZE, TAPS = 12, 10, (4, 7), (2, 3)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}

COMPILE = """
import json, sys
import torch
from dataclasses import replace
from tools.kernel_assembly import assembly, specialised
from tools.kernel import DTYPES, Kernel
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton.tiles import Tile, block
from yolo_rocm.engines.triton.available import FMA, amd_family
from yolo_rocm.engines.triton.launch import kernel_of
from tests.tools.emulator.compiled import problem
built = []
for target, dtype, tile, layout, groups, module in json.loads(sys.argv[1]):
    layer = problem(dtype, layout, groups)
    x, y = (calls.strides(shape, layout == "nhwc") for shape in (layer.input_shape, layer.output_shape))
    w = calls.strides(layer.weight_shape, True)
    family = amd_family(target)
    if groups == 1:
        tile = Tile(*tile)
        call = calls.gather_gemm(layer, x, w, y, False, tile, calls.Dot(upcast=family == FMA), back=False)
    else:
        tile = block(family, layout == "nhwc", dtype != "fp32", 6)
        call = calls.depthwise(layer, x, w, y, False, tile, back=False)
    call = replace(call, module=module or call.module)
    kernel = Kernel("forward", str(tile), dtype, layout, call, (DTYPES[dtype],) * 4, layer, w)
    text, shared = assembly(kernel, target)
    function = kernel_of(call)
    signature, _, _ = specialised(function, kernel, target)
    pairs = zip(function.arg_names[4:], call.numbers)
    numbers = [number for name, number in pairs if signature[name] != "constexpr"]
    built.append((dtype, layout, groups, text, shared, call.grid, call.warps, numbers))
json.dump(built, open(sys.argv[2], "w"))
"""


class Wanted(NamedTuple):
    """What to compile.

    Attributes:
        target: For which GPU.
        dtype: `fp32` or `fp16`.
        tile: Pixels, channels, step of the reduction, waves, stages; a depthwise one has its own.
        layout: `nhwc` or `nchw`.
        groups: Of the convolution: 1, or as many as channels.
        module: Where the kernel is, if it is not the real one.
    """

    target: str
    dtype: str
    tile: tuple[int, int, int, int, int]
    layout: str = "nhwc"
    groups: int = 1
    module: str = ""


@dataclass(frozen=True)
class Compiled:
    """The assembly of a forward pass, and what a launch of it needs."""

    dtype: str
    layout: str
    groups: int
    text: str
    shared: int
    grid: tuple[int, int, int]
    warps: int
    numbers: tuple[int, ...]

    def run(self, text: str | None = None, preloaded: bool = False) -> Ran:
        """Run the kernel, or this text in its place."""
        program = Program.parse(text or self.text)
        x, weight, exact = tensors(self.dtype, self.layout, self.groups)
        by = strides(tuple(exact.shape), self.layout == "nhwc")
        output = torch.empty_strided(exact.shape, by, dtype=DTYPES[self.dtype])
        # The kernel was compiled without a bias.
        task = Task([x, weight, weight, output], (3,), lambda got, known: [])
        threads = self.warps * program.wave_size
        return run(program, task, self.numbers, self.grid, threads, self.shared, preloaded=preloaded)

    def error(self, text: str | None = None) -> float:
        """Run the kernel, or this text in its place; return its error against fp64, infinite where one is missing."""
        ran = self.run(text)
        exact = tensors(self.dtype, self.layout, self.groups)[2]
        return relative_error(ran.values[0], exact) if ran.known[0].all() else inf

    @property
    def allowed(self) -> float:
        """The error that the tests on cards allow."""
        return allowed_error(problem(self.dtype, self.layout, self.groups), "forward")


def problem(dtype: str, layout: str, groups: int = 1) -> ConvProblem:
    """Return the convolution: odd sizes, channels that end inside a tile, two workgroups."""
    shape = (1, CHANNELS, *SIZE)
    weight = (OUT_CHANNELS if groups == 1 else CHANNELS, CHANNELS // groups, *TAPS)
    last = layout == "nhwc"
    return ConvProblem(shape, weight, (1, 1), (1, 1), (1, 1), (0, 0), groups, False, DTYPES[dtype], "cuda:0", last)


@lru_cache
def tensors(dtype: str, layout: str, groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return input, weight, and the result in fp64."""
    generator, layer = torch.Generator().manual_seed(0), problem(dtype, layout, groups)
    x, weight = (
        torch.randn(shape, generator=generator).to(DTYPES[dtype]) for shape in (layer.input_shape, layer.weight_shape)
    )
    exact = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1, groups=groups)
    if layout == "nhwc":
        x = x.contiguous(memory_format=torch.channels_last)
    return x, weight.contiguous(memory_format=torch.channels_last), exact


def compile_all(folder: Path, wanted: list[Wanted]) -> list[Compiled]:
    """Compile forward passes; modules of their own are looked for in the folder."""
    result = folder / "compiled.json"
    done = python(folder, COMPILE, json.dumps(wanted), str(result))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(result.read_text(encoding="utf-8"))
    return [
        Compiled(dtype, layout, groups, text, shared, (x, y, z), warps, tuple(numbers))
        for dtype, layout, groups, text, shared, (x, y, z), warps, numbers in rows
    ]
