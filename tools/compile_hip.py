"""Compile the kernels of engine hip for AMD GPUs that are not there, and print what each needs as CSV.

    python tools/compile_hip.py > docs/compiled_hip.csv
    python tools/compile_hip.py --hiprtc /path/to/libamdhip64.so.5 gfx1010 gfx1030

Every algorithm, data type, layout and pass for a layer of 64 channels (8 x 80 x 80, 3 x 3), by clang, or by the hiprtc
inside a HIP runtime, which needs no card to compile. `waves` are those of 32 lanes that the registers of a SIMD of RDNA
hold. `tools/emulate_hip.py` executes them.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import emulate_hip
from tools.emulate_hip import FORBIDDEN, Compiled, Layer
from yolo_rocm.conv.hip import algorithms, base, depthwise, gemm
from yolo_rocm.conv.hip.base import HipAlgorithm
from yolo_rocm.conv.hip.calls import HipCall
from yolo_rocm.conv.hip.launching import program_of
from yolo_rocm.conv.kernels.calls import PLAIN, Epilogue, strides
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.hip.rtc import Rtc
from yolo_rocm.engines.hip.target import Target

TARGETS: Final = ("gfx1010", "gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942")
DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COLUMNS: Final = (
    "target", "compiler", "algorithm", "kernel", "pass", "activation", "dtype", "layout", "registers", "spilled",
    "waves", "lds_bytes", "forbidden", "date",
)  # fmt: skip
USUAL: Final = Layer((8, 64, 80, 80), (64, 64, 3, 3))
_DEPTHWISE: Final = replace(USUAL, weight=(64, 1, 3, 3), groups=64)
_IMAGE: Final = replace(USUAL, shape=(8, 3, 160, 160), weight=(16, 3, 3, 3), stride=2)
_PROCESSORS: Final = 36  # of an RX 5600 XT: how many splits grad-weight has
Compile = Callable[[str, tuple[tuple[str, "int | str"], ...], str], Compiled]


def layer_of(algorithm: HipAlgorithm) -> Layer:
    """Return the layer that an algorithm is compiled for."""
    return {"hip_depthwise": _DEPTHWISE, "hip_few_channels": _IMAGE}.get(algorithm.name, USUAL)


def call_of(algorithm: HipAlgorithm, problem: ConvProblem, which: str, epilogue: Epilogue = PLAIN) -> HipCall:
    """Return the launch of a pass's kernel."""
    shapes = (problem.input_shape, problem.output_shape, problem.weight_shape)
    x, y, w = (strides(shape, problem.channels_last) for shape in shapes)
    if which == "grad_weight":
        return algorithm.weight_steps(problem, y, x)[0]
    back = which == "grad_input"
    return algorithm.gather_steps(problem, back, *((y, w, x) if back else (x, w, y)), epilogue).kernel


@cache
def by_hiprtc(library: str, source: str, defines: tuple[tuple[str, int | str], ...], target: str) -> Compiled:
    """Compile a kernel by hiprtc as a training does, and read the object back.

    Raises:
        RtcError: It does not compile.
        subprocess.CalledProcessError: LLVM cannot read the object.
    """
    options = Target("hip", target).options()
    code, _ = _rtc(library).compile(program_of(source, defines).text(), source, options)
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(code)
        file.flush()
        text = _llvm("llvm-objdump", "-d", "--no-show-raw-insn", f"--mcpu={target}", file.name)
        return emulate_hip.read_needs(text, _llvm("llvm-readelf", "--notes", file.name))


@cache
def _rtc(library: str) -> Rtc:
    return Rtc(library, "hip")


def _llvm(tool: str, *words: str) -> str:
    found = next((path for name in (f"{tool}-19", tool) if (path := shutil.which(name))), tool)
    return subprocess.run([found, *words], capture_output=True, text=True, check=True, timeout=60).stdout


def rows(target: str, compile_: Compile, compiler: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each algorithm, data type, layout and pass, and one with SiLU for each forward pass."""
    patched = mock.patch.multiple
    with (
        patched(base, device_reason=lambda device: None),
        patched(gemm, processors=lambda device: _PROCESSORS),
        patched(depthwise, processors=lambda device: _PROCESSORS),
    ):
        for algorithm in (each for each in algorithms() if isinstance(each, HipAlgorithm)):
            for name, dtype in DTYPES.items():
                for last in (False, True):
                    problem = replace(layer_of(algorithm).problem(last), dtype=dtype)
                    if algorithm.not_supported_reasons(problem):
                        continue
                    for which, epilogue in (*((each, PLAIN) for each in PASSES), ("forward", Epilogue("silu"))):
                        call = call_of(algorithm, problem, which, epilogue)
                        made = compile_(call.source, call.defines, target)
                        found = (
                            algorithm.name,
                            call.source,
                            which,
                            epilogue.activation,
                            name,
                            "nhwc" if last else "nchw",
                        )
                        needs = (made.registers, made.spilled, made.waves, made.lds)
                        forbidden = " ".join(sorted(set(FORBIDDEN.findall(made.text)))) if target == "gfx1030" else ""
                        values = (target, compiler, *found, *needs, forbidden, date.today().isoformat())
                        yield dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Write the table to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--hiprtc", metavar="LIBRARY", help="compile by the hiprtc in this library, not by clang")
    parser.add_argument("--no-header", action="store_true")
    options = parser.parse_args()
    if options.hiprtc:
        compile_: Compile = partial(by_hiprtc, options.hiprtc)
        compiler = f"hiprtc {_rtc(options.hiprtc).version()}"
    else:
        compile_ = emulate_hip.compiled
        said = subprocess.run([emulate_hip.clang() or "clang", "--version"], capture_output=True, text=True, check=True)
        compiler = "clang " + re.findall(r"version (\S+)", said.stdout)[0]
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if not options.no_header:
        writer.writeheader()
    for target in options.targets:
        for row in rows(target, compile_, compiler):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
