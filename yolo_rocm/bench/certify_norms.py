"""`python -m yolo_rocm.bench.certify_norms --device cuda NAMES`: every way to compute a BatchNorm, against fp64.

One probe for each algorithm, data type and layout, answered as the doctor's probing process does. An answer covers
values, statistics, running statistics and all gradients, alone and with an activation, and that the activation computed
once more has the same bits: what `step.memory: lean` rests on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from ..diagnosis.probe_child import NotSupportedError, answer_all, answers_only
from ..diagnosis.probes import COMPILED_WAYS, DTYPES, LAYOUTS, TORCH_NAMES, DeviceProbe
from ..engines.backend_flags import vendor_off
from ..engines.measure import as_in_the_seam
from ..engines.names import NATIVE
from ..engines.qualification import check
from ..engines.triton.launch import prepare_all
from ..norm.algorithms import ALGORITHMS, BY_NAME, NormAlgorithm
from ..norm.exactness import ROUNDINGS, ROUNDINGS_OF_TORCH, allowed, errors, exact_results, results_of
from ..norm.plan import NORMALISATION, PASSES, Operands
from ..norm.problem import IDENTITY, LEAKY_RELU, RELU, SILU, NormProblem
from .certify_probes import NORM_KIND, KernelProbe

_MOST_COMPILERS: Final = 16


@dataclass(frozen=True)
class _Shape:
    """A small BatchNorm whose sizes are multiples of nothing that a kernel's tiles are made of."""

    shape: tuple[int, int, int, int]
    activation: str = SILU
    training: bool = True
    affine: bool = True
    mean: float = 0.0  # added to the input, whose spread is about 1
    grad: float = 0.0  # added to the gradient

    def problem(self, dtype: torch.dtype, device: str, channels_last: bool) -> NormProblem:
        """Return it as a problem."""
        slope = 0.1 if self.activation == LEAKY_RELU else 0.0
        return NormProblem(self.shape, dtype, device, channels_last, self.training, self.affine, self.activation, slope)

    def operands(self, problem: NormProblem) -> Operands:
        """Return its tensors, drawn on the CPU: nothing on the device has a part in them."""
        drawn = Operands.of(NORMALISATION.cast(problem, problem.dtype, "cpu"))
        return drawn._replace(x=drawn.x + self.mean, grad=drawn.grad + self.grad)


PROBLEMS: Final = {
    "silu": _Shape((2, 19, 13, 11)),
    "many-pixels": _Shape((3, 5, 65, 67)),  # whose sums several programs add up
    "many-channels": _Shape((2, 131, 5, 3)),
    "alone": _Shape((5, 24, 9, 7), IDENTITY),
    "running": _Shape((2, 21, 9, 7), IDENTITY, training=False),
    "relu": _Shape((3, 17, 9, 7), RELU),
    "leaky": _Shape((3, 17, 9, 7), LEAKY_RELU),
    "no-parameters": _Shape((3, 17, 9, 7), IDENTITY, affine=False),
    "large-mean": _Shape((3, 9, 33, 31), mean=100.0),
    "large-sums": _Shape((4, 6, 65, 67), grad=8.0),  # the sums of gradients are above what fp16 can hold
}
# Kernels that are compiled exist in several sizes, all of which are: they get the fewest problems.
_FOR_COMPILED: Final = ("silu", "many-pixels", "many-channels", "alone", "running", "large-sums")


def norm_probes(quick: bool = False) -> tuple[KernelProbe, ...]:
    """Return the probes of every algorithm; the vendor library last.

    Args:
        quick: fp32 alone.
    """
    order = ("gemm", "aten", "triton", "hip", "vendor")
    return tuple(
        KernelProbe(NORM_KIND, engine, dtype, layout, algorithm.name)
        for engine in order
        for dtype in (DTYPES[:1] if quick else DTYPES)
        for layout in LAYOUTS
        for algorithm in ALGORITHMS
        if algorithm.engine == engine
    )


def problems_of(algorithm: NormAlgorithm, dtype: str, layout: str, device: str) -> dict[str, NormProblem]:
    """Return the problems that an algorithm is tried on, by name.

    Raises:
        NotSupportedError: It supports none of them here; with its own reason.
    """
    found, reasons = {}, []
    for name in _FOR_COMPILED if algorithm.engine in COMPILED_WAYS else PROBLEMS:
        problem = PROBLEMS[name].problem(getattr(torch, TORCH_NAMES[dtype]), device, layout == "nhwc")
        why = algorithm.not_supported_reasons(problem)
        if why:
            reasons += why
        else:
            found[name] = problem
    if not found:
        raise NotSupportedError(reasons[0])
    return found


def check_algorithm(algorithm: NormAlgorithm, problems: dict[str, NormProblem]) -> tuple[float, dict[str, Any]]:
    """Compute every problem, and return the largest share of the allowed error with what it was found in.

    Args:
        algorithm: The algorithm.
        problems: By name, as `problems_of` returns them.

    Raises:
        RuntimeError: A kernel has not passed the test that the engine room puts before its first use.
    """
    worst: tuple[float, dict[str, Any]] = (-1.0, {})
    roundings = ROUNDINGS_OF_TORCH if algorithm.engine in NATIVE else ROUNDINGS
    number = 0
    for name, problem in problems.items():
        on_cpu = PROBLEMS[name].operands(problem)
        exact = exact_results(problem, on_cpu)
        operands = Operands(*(tensor.to(problem.device) for tensor in on_cpu))
        with as_in_the_seam():
            results = results_of(algorithm, problem, operands)
        found, most = errors(problem, results, exact), allowed(problem, on_cpu, exact, roundings)
        number += len(found)
        for what, error in found.items():
            share = error / most[what]
            if not share <= worst[0]:  # a NaN is worse than anything
                worst = share, {"problem": name, "pass": what, "error": error, "allowed": most[what]}
            if share != share:
                return worst
    return worst[0], {**worst[1], "problems": len(problems), "results": number, **_qualified(algorithm, problems)}


def _qualified(algorithm: NormAlgorithm, problems: dict[str, NormProblem]) -> dict[str, bool]:
    """Put the test to an algorithm's kernel that the engine room puts before its first use; nothing without one."""
    if algorithm.tested_by().kernel is None:
        return {}
    for problem in problems.values():
        check(NORMALISATION, algorithm, problem)
        reasons = algorithm.not_supported_reasons(problem)
        if reasons:
            raise RuntimeError(f"the kernel does not qualify: {reasons[0]}")
    return {"qualified": True}


def _ask(waiting: list[DeviceProbe], probe: DeviceProbe, device: torch.device) -> tuple[float, dict[str, Any]]:
    name = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
    algorithm = BY_NAME[probe.shape]
    problems = problems_of(algorithm, probe.dtype, probe.layout, name)
    # All sizes of a data type and layout are compiled at once; after a death one by one, so that the culprit is known.
    fresh = waiting[0].name == norm_probes()[0].name
    group = [each for each in waiting if (each.group, each.layout) == (probe.group, probe.layout)]
    _compile(group if fresh else [probe], name)
    if algorithm.engine == "vendor":
        return check_algorithm(algorithm, problems)
    with vendor_off(device.type):
        return check_algorithm(algorithm, problems)


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

    if any(probe.compiles for probe in probes):
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
        probes: list[DeviceProbe] = [probe for probe in norm_probes() if probe.name in wanted]
        answer_all(probes, given.device, answers, partial(_ask, probes))


if __name__ == "__main__":
    main()
