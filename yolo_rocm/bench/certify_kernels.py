"""`python -m yolo_rocm.bench.certify_kernels --device cuda NAMES`: every algorithm against fp64, on small odd problems.

It answers as the doctor's probing process does, one probe for each algorithm, data type and layout, so that a kernel
that faults or hangs takes nobody with it. The fp64 results come from torch's own convolution on the CPU: nothing under
test has a part in them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final

import torch

from ..conv.algorithms import ALGORITHMS, BY_NAME, Algorithm
from ..conv.exactness import allowed_error, in_doubles, native_passes, plain_sum_error
from ..conv.names import PASSES
from ..conv.plan import CONVOLUTION, Operands
from ..conv.problem import ConvProblem
from ..diagnosis.probe_child import NotSupportedError, answer_all, answers_only
from ..diagnosis.probes import DTYPES, LAYOUTS, TORCH_NAMES, DeviceProbe
from ..engines.backend_flags import vendor_off
from ..engines.measure import as_in_the_seam, relative_error
from ..engines.names import SINGLE
from ..engines.qualification import ROUNDINGS
from ..engines.triton.launch import prepare_all
from .certify_probes import KIND, KernelProbe

# Kernels that are compiled exist in several tiles, all of which are: they get the fewest problems.
_MOST_COMPILERS: Final = 16
# A native kernel is gone by where its error is at most this many plain sums'; torch's on a CPU reach 1.1 of one.
_SUMS: Final = 2.0
_FOR_TILES: Final = ("3x3", "3x3-stride2", "1x1", "groups", "many-channels")
_FOR_KERNELS: Final = {**dict.fromkeys(("gemm", "rows", "transpose"), _FOR_TILES), "flat": ("image", "groups")}


@dataclass(frozen=True)
class _Shape:
    """A small convolution whose sizes are multiples of nothing that a kernel's tiles are made of."""

    channels: int
    out: int
    size: tuple[int, int] = (13, 11)
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    transposed: bool = False

    def problem(self, dtype: torch.dtype, device: str, channels_last: bool) -> ConvProblem:
        """Return it as a problem of two samples."""
        sides = (self.out, self.channels) if not self.transposed else (self.channels, self.out)
        weight = (sides[0], sides[1] // self.groups, self.kernel, self.kernel)
        stride, padding, dilation = ((each, each) for each in (self.stride, self.padding, self.dilation))
        return ConvProblem(
            (2, self.channels, *self.size),
            weight,
            stride,
            padding,
            dilation,
            (0, 0),
            self.groups,
            self.transposed,
            dtype,
            device,
            channels_last,
        )


PROBLEMS: Final = {
    "3x3": _Shape(19, 37),
    "3x3-stride2": _Shape(24, 40, stride=2),
    "3x3-wide": _Shape(65, 67, (9, 11)),  # as many channels as the large tiles of Winograd need
    "many-channels": _Shape(131, 137, (5, 3)),  # more than one block of the largest tiles, in every direction
    "1x1": _Shape(33, 21, (9, 7), 1, padding=0),
    "groups": _Shape(24, 36, groups=3, dilation=2, padding=2),
    "image": _Shape(3, 20, (17, 15), stride=2),
    "depthwise": _Shape(23, 23, groups=23),
    "depthwise-5x5": _Shape(24, 24, kernel=5, stride=2, padding=2, groups=24),
    "transposed": _Shape(20, 12, (7, 5), 2, 2, 0, transposed=True),
    "transposed-3x3": _Shape(10, 14, (7, 5), 3, 2, transposed=True),
}


def kernel_probes(quick: bool = False) -> tuple[KernelProbe, ...]:
    """Return the probes of every algorithm; the vendor library last, it is the one that brings cards down.

    Args:
        quick: fp32 alone.
    """
    engines = [*sorted({a.engine for a in ALGORITHMS} - {*SINGLE}), "gemm", "aten", "triton", "hip", "vendor"]
    return tuple(
        KernelProbe(KIND, engine, dtype, layout, algorithm.name)
        for engine in engines
        for dtype in (DTYPES[:1] if quick else DTYPES)
        for layout in LAYOUTS
        for algorithm in ALGORITHMS
        if algorithm.engine == engine
    )


def problems_of(algorithm: Algorithm, dtype: str, layout: str, device: str) -> dict[str, ConvProblem]:
    """Return the problems that an algorithm is tried on, by name.

    Raises:
        NotSupportedError: It supports none of them here; with its own reason.
    """
    wanted, reasons = _FOR_KERNELS.get(algorithm.kernel or "", tuple(PROBLEMS)), []
    found: dict[str, ConvProblem] = {}
    for name, shape in PROBLEMS.items():
        if name not in wanted:
            continue
        problem = shape.problem(getattr(torch, TORCH_NAMES[dtype]), device, layout == "nhwc")
        why = algorithm.not_supported_reasons(problem)
        if why:
            reasons.append(why)
        else:
            found[name] = problem
    if not found:
        raise NotSupportedError(min(reasons, key=len)[-1])  # of the problem that fits best
    return found


def check_algorithm(algorithm: Algorithm, problems: dict[str, ConvProblem]) -> tuple[float, dict[str, Any]]:
    """Run every pass of every problem, and return the largest share of the allowed error with what it was found in.

    An algorithm that pays speed with digits is used only where it is measured to be exact enough; here it has to stay
    within what a working kernel errs at most.
    """
    worst: tuple[float, dict[str, Any]] = (-1.0, {})
    for name, problem in problems.items():
        on_cpu, exact, native = _reference(problem)
        operands = Operands(*(tensor.to(problem.device) for tensor in on_cpu))  # anew: a sick kernel writes anywhere
        roundings = ROUNDINGS * torch.finfo(problem.dtype).eps
        for which in PASSES:
            with as_in_the_seam():
                result = CONVOLUTION.run(algorithm, problem, which, operands)
            error = relative_error(result.cpu(), exact[which])
            allowed = allowed_error(problem, which, native.get(which, 0.0)) if algorithm.exact else roundings
            share = error / allowed
            if not share <= worst[0]:  # a NaN is worse than anything
                worst = share, {"problem": name, "pass": which, "error": error, "allowed": allowed}
            if share != share:
                return worst
    return worst[0], {**worst[1], "problems": len(problems), "results": len(problems) * len(PASSES)}


@lru_cache(maxsize=64)
def _reference(problem: ConvProblem) -> tuple[Operands, dict[str, torch.Tensor], dict[str, float]]:
    """Return tensors, the exact passes, and the errors of torch's own kernels without vendor library, all on the CPU.

    Nothing of it touches the device: a native kernel that brings it down there must not count against one of ours. One
    that fails on the CPU, or errs by more than a working one can, is nothing to go by: it is left out, and the plain
    sum alone says what is allowed.
    """
    operands = Operands.of(replace(problem, device="cpu"))
    exact = native_passes(problem, in_doubles(operands))
    native: dict[str, float] = {}
    try:
        with vendor_off("cpu"), as_in_the_seam():
            found = native_passes(problem, operands)
        errors = {which: relative_error(found[which], exact[which]) for which in PASSES}
        native = {w: error for w, error in errors.items() if error <= _SUMS * plain_sum_error(problem, w)}
    except RuntimeError:  # no such kernel in this torch
        pass
    return operands, exact, native


def _ask(waiting: list[DeviceProbe], probe: DeviceProbe, device: torch.device) -> tuple[float, dict[str, Any]]:
    name = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
    problems = problems_of(BY_NAME[probe.shape], probe.dtype, probe.layout, name)
    # All tiles of a data type and layout are compiled at once; after a death one by one, so that the culprit is known.
    fresh = waiting[0].name == kernel_probes()[0].name
    group = [each for each in waiting if (each.group, each.layout) == (probe.group, probe.layout)]
    _compile(group if fresh else [probe], name)
    return check_algorithm(BY_NAME[probe.shape], problems)


def _compile(probes: list[DeviceProbe], device: str) -> None:
    """Compile what the probes launch, in several threads; what is compiled already costs nothing."""

    def jobs() -> Iterator[Any]:
        for probe in probes:
            algorithm = BY_NAME[probe.shape]
            try:
                problems = problems_of(algorithm, probe.dtype, probe.layout, device)
            except NotSupportedError:
                continue
            for problem in problems.values():
                yield from (partial(algorithm.prepare, problem, which) for which in PASSES)

    if any(BY_NAME[probe.shape].tested_by().kernel is not None for probe in probes):
        prepare_all(list(jobs()), min(_MOST_COMPILERS, os.cpu_count() or 1), lambda: False)


def main(arguments: list[str] | None = None) -> None:
    """Answer the probes named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("names", help="names of probes, separated by commas")
    given = parser.parse_args(arguments)
    wanted = set(given.names.split(","))
    with answers_only() as answers:
        os.environ.pop("YOLO_ROCM", None)  # the engines are tried even where they are switched off
        probes: list[DeviceProbe] = [probe for probe in kernel_probes() if probe.name in wanted]
        answer_all(probes, given.device, answers, partial(_ask, probes))


if __name__ == "__main__":
    main()
