"""Compile the kernels of engine hip for AMD GPUs that are not there, and print what each needs as CSV.

    python tools/compile_hip.py > docs/compiled_hip.csv
    python tools/compile_hip.py --hiprtc /path/to/libamdhip64.so.5 --no-header gfx1010 gfx1030 >> docs/compiled_hip.csv

Every algorithm, data type, layout and pass for a layer of 64 channels (8 x 80 x 80, 3 x 3), by clang, or by the hiprtc
inside a HIP runtime, which needs no card to compile. `waves` are those of 32 lanes that a SIMD of RDNA has registers
and LDS for; empty for other targets. `tools/emulate_hip.py` executes what is compiled.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # as a program it is not found as a part of the project
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.emulate_hip import cut_for_a_card, every, layer_of
from tools.hip_compilers import Compile, chosen
from tools.kernel import DTYPES
from yolo_rocm.conv.hip.base import HipAlgorithm
from yolo_rocm.conv.hip.calls import HipCall
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.activations import IDENTITY, SILU
from yolo_rocm.engines.names import Pass

TARGETS: Final = ("gfx1010", "gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942")
COLUMNS: Final = (
    "target", "compiler", "algorithm", "kernel", "pass", "activation", "dtype", "layout", "registers", "vgpr_spills",
    "sgpr_spills", "private_bytes", "waves", "lds_bytes", "forbidden", "date",
)  # fmt: skip


def call_of(algorithm: HipAlgorithm, problem: ConvProblem, which: Pass) -> HipCall:
    """Return the launch of a pass's kernel."""
    shapes = (problem.input_shape, problem.output_shape, problem.weight_shape)
    x, y, w = (strides(shape, problem.channels_last) for shape in shapes)
    if which == "grad_weight":
        return algorithm.weight_steps(problem, y, x)[0]
    back = which == Pass.GRAD_INPUT
    return algorithm.gather_steps(problem, back, *((y, w, x) if back else (x, w, y))).kernel


def rows(target: str, compile_: Compile, compiler: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each algorithm, data type, layout and pass, and one with SiLU for each forward pass."""
    with cut_for_a_card():
        for algorithm in every():
            for name, dtype in DTYPES.items():
                for last in (False, True):
                    problem = replace(layer_of(algorithm).problem(last), dtype=dtype)
                    if algorithm.not_supported_reasons(problem):
                        continue
                    for which, activation in (*((each, IDENTITY) for each in PASSES), (Pass.FORWARD, SILU)):
                        call = call_of(algorithm, replace(problem, activation=activation), which)
                        made = compile_(call.source, call.defines, target)
                        layout = "nhwc" if last else "nchw"
                        found = (algorithm.name, call.source, which, activation, name, layout)
                        spills = (made.vgpr_spills, made.sgpr_spills, made.private_bytes)
                        needs = (made.registers, *spills, made.waves(target, call.threads), made.lds)
                        said = (" ".join(made.forbidden(target)), date.today().isoformat())
                        yield dict(zip(COLUMNS, (target, compiler, *found, *needs, *said), strict=True))


def main() -> None:
    """Write the table to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--hiprtc", metavar="LIBRARY", help="compile by the hiprtc in this library, not by clang")
    parser.add_argument("--no-header", action="store_true")
    options = parser.parse_args()
    compile_, compiler = chosen(options.hiprtc)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if not options.no_header:
        writer.writeheader()
    for target in options.targets:
        for row in rows(target, compile_, compiler):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
