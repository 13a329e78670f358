"""`python -m yolo_rocm.bench.certify_child SETTINGS ANSWER`: a part of a certification that uses the device.

A card that brings the process down costs this part alone, or of the kernels one engine.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from ..conv.plan import CONVOLUTION
from ..conv.problem import ConvProblem
from ..diagnosis.probes import LAYOUTS, TORCH_NAMES
from ..engines.backend_flags import vendor_off
from ..engines.measure import as_in_the_seam
from ..engines.operator import Operator
from ..engines.precision import without_tf32
from ..engines.triton.launch import prepare_all
from ..engines.trust.checks import ROUNDINGS
from ..norm.plan import NORMALISATION, Operands
from ..norm.problem import LEAKY_RELU, SILU, NormProblem
from ..utils.child_process import answer_parent
from ..utils.error_text import typed_line
from . import train, train_table
from .demo import ON_CPU, ON_GPU, run_demo
from .demo_data import make_data
from .layers import threads_of_a_training
from .ways import OURS_KIND, STOCK_KIND, ways

Answer = dict[str, Any]
# Relative to the length of the result. Right kernels stay below 4 in fp32 and 0.9 in half precision, whose sums are
# fp32; those that pay speed with digits, and torch's own sums of BatchNorm, below 33.
_ROUNDINGS: Final = {"fp32": 16.0, "fp16": 2.0, "bf16": 2.0}
# Values far from zero cost every right sum digits: torch's kernels on a CPU are off by up to 252 roundings of fp32
# there, ours in plain PyTorch by 10. A variance from the mean of squares is off by more than 2500.
_LARGE, _MEAN_OF_LARGE, _SCALE_OF_LARGE, _ROOM_OF_LARGE = "large-values", 30.0, 32.0, 8.0
_MOST_COMPILERS: Final = 16
_MODEL: Final = "yolov8n.yaml"
_COLUMNS: Final = ("step_ms", "to_stock", "to_vendor_off", "peak_mb", "loss", "departure", "wrong", "served", "error")


def _conv(
    image: tuple[int, ...], weight: tuple[int, ...], stride: int = 1, padding: int = 1, dilation: int = 1, **more: Any
) -> ConvProblem:
    pairs = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": 0}
    geometry: dict[str, Any] = {name: (value, value) for name, value in pairs.items()}
    more = {"groups": 1, "transposed": False, **more}
    return ConvProblem(input_shape=image, weight_shape=weight, **geometry, **more, dtype=torch.float32, device="cpu")


def _norm(*shape: int, **more: Any) -> NormProblem:
    return NormProblem(shape, torch.float32, "cpu", **more)


# Sizes are multiples of nothing that a kernel's tiles are made of.
PROBLEMS: Final[dict[str, dict[str, Any]]] = {
    "conv": {
        "3x3": _conv((2, 19, 13, 11), (37, 19, 3, 3)),
        "3x3-stride2": _conv((2, 24, 13, 11), (40, 24, 3, 3), stride=2),
        "many-channels": _conv((2, 131, 5, 3), (137, 131, 3, 3)),  # more than one block of the largest tiles
        "1x1": _conv((2, 33, 9, 7), (21, 33, 1, 1), padding=0),
        "groups": _conv((2, 24, 13, 11), (36, 8, 3, 3), dilation=2, padding=2, groups=3),
        "depthwise": _conv((2, 23, 13, 11), (23, 1, 3, 3), groups=23),
        "transposed": _conv((2, 20, 7, 5), (20, 12, 2, 2), stride=2, padding=0, transposed=True),
    },
    "norm": {
        "silu": _norm(2, 19, 13, 11, activation=SILU),
        "many-pixels": _norm(3, 5, 65, 67, activation=SILU),  # summed by several programs
        "many-channels": _norm(2, 131, 5, 3, activation=SILU),
        "running": _norm(2, 21, 9, 7, training=False),
        "leaky": _norm(3, 17, 9, 7, activation=LEAKY_RELU, slope=0.1, affine=False),
        _LARGE: _norm(3, 9, 33, 31),
    },
}


def kernels(given: Answer) -> Iterator[Answer]:
    """Compare every algorithm of an engine with fp64 on the CPU; yield what is known so far, and what is next.

    Args:
        given: `device`, `engine` and `dtypes`.
    """
    engine = given["engine"]
    answer: Answer = {"tried": {}, "not_supported": {}}
    operators: tuple[Operator[Any, Any], ...] = (CONVOLUTION, NORMALISATION)
    for dtype in given["dtypes"]:
        reasons = []
        cases: dict[str, tuple[Operator[Any, Any], Any, dict[str, Any]]] = {}
        for operator, layout in itertools.product(operators, LAYOUTS):
            moved = {"dtype": getattr(torch, TORCH_NAMES[dtype]), "device": _torch_name(given["device"])}
            moved["channels_last"] = layout == "nhwc"
            problems = {key: replace(problem, **moved) for key, problem in PROBLEMS[operator.name].items()}
            for algorithm in (each for each in operator.algorithms if each.engine == engine):
                why = {key: algorithm.not_supported_reasons(problem) for key, problem in problems.items()}
                reasons += [each[-1] for each in why.values() if each]
                supported = {key: problem for key, problem in problems.items() if not why[key]}
                if supported:
                    cases[f"{engine}/{dtype}/{layout}/{operator.name}/{algorithm.name}"] = (
                        operator,
                        algorithm,
                        supported,
                    )
        if not cases:
            answer["not_supported"][f"{engine}/{dtype}"] = min(reasons, key=len, default="it has no such kernels")
        _compile(cases.values())
        for name, case in cases.items():
            yield {**answer, "next": name}
            answer["tried"][name] = compare(*case, dtype)
    yield answer


def _compile(cases: Iterable[tuple[Operator[Any, Any], Any, dict[str, Any]]]) -> None:
    """Compile all kernels first: compilers run in parallel."""
    jobs: list[Callable[[], None]] = [
        partial(algorithm.prepare, problem, which)
        for operator, algorithm, problems in cases
        if algorithm.tested_by().kernel is not None
        for problem in problems.values()
        for which in operator.passes
    ]
    prepare_all(jobs, min(_MOST_COMPILERS, os.cpu_count() or 1), lambda: False)


def compare(operator: Operator[Any, Any], algorithm: Any, problems: dict[str, Any], dtype: str) -> Answer:
    """Run every pass of every problem, and return the largest error in roundings, and what is wrong."""
    allowed = _ROUNDINGS[dtype] if algorithm.exact and algorithm.engine not in ("aten", "vendor") else float(ROUNDINGS)
    facts: Answer = {"error": 0.0, "allowed": allowed, "results": 0}
    for name, problem in problems.items():
        operands, room = operator.operands(problem), 1.0
        if name == _LARGE:  # far from zero, and gradients whose sums are above what fp16 holds
            drawn, room = Operands.of(problem, mean_of_input=_MEAN_OF_LARGE), _ROOM_OF_LARGE
            operands = drawn._replace(grad=drawn.grad * _SCALE_OF_LARGE)
        for which in operator.passes:
            exact = operator.in_fp64(problem, which, operands, "cpu")
            try:
                with without_tf32(), as_in_the_seam():
                    if algorithm.engine == "vendor":
                        result = operator.run(algorithm, problem, which, operands)
                    else:
                        with vendor_off(torch.device(problem.device).type):
                            result = operator.run(algorithm, problem, which, operands)
                distance = operator.distance(problem, which, result.double().cpu(), exact)
            except RuntimeError as error:
                return {**facts, "wrong": f"{which} of {problem} fails: {typed_line(error)}"}
            roundings = distance / torch.finfo(problem.dtype).eps / room
            facts["results"] += 1
            if not roundings <= allowed:  # a NaN is wrong
                wrong = f"{which} of {problem} is off by {roundings * room:.1f} roundings"
                return {**facts, "error": roundings, "wrong": wrong}
            facts["error"] = max(facts["error"], roundings)
    return facts


def demo(given: Answer) -> Answer:
    """Train the demo; see `demo.run_demo`.

    Args:
        given: `device`, `folder`, `preset`, `rocm`, and `quick` for a single epoch.
    """
    on_cpu, folder = given["device"] == "cpu", Path(given["folder"])
    size = ON_CPU if on_cpu else ON_GPU
    data = make_data(folder / "data", images=size.images, size=size.pixels)
    epochs = 1 if given["quick"] else size.epochs
    device = {"device": "cpu"} if on_cpu else {}
    facts = run_demo(folder, data, size, epochs, given["preset"], lambda *lines: None, given["rocm"], **device)
    return {key: value for key, value in facts.items() if key not in ("folder", "device")}


def bench_train(given: Answer) -> Answer:
    """Time a few whole training steps in fp32: torch as it is, the vendor library off, and ours.

    Args:
        given: `device`, `quick`, the preset's `batch`, and `ways` where not all of the quick ones.
    """
    device = _torch_name(given["device"])
    long = device != "cpu" and not given["quick"]
    most = 16 if long else 2
    batch = min(given["batch"], most) if isinstance(given["batch"], int) else most
    imgsz, steps = (640, 6) if long else (64, 1)
    compared = ways(quick=True, chosen=given["ways"], on_gpu=device != "cpu")
    with threads_of_a_training(device):
        tune_s = 15.0 if long else 0.0
        bench = train.TrainBench(_MODEL, batch, imgsz, amp=False, device=device, steps=steps, tune_s=tune_s)
        bench.run(compared, lambda *_: None)
    # Losses of the vendor library are no reference: where it is wrong, ours must not be called so.
    own = [*(way for way in compared if way.kind != STOCK_KIND), *compared]
    reference = next((way for way in own if way.step_ms is not None), None)
    table = train_table.rows(compared, amp=False, reference=reference)
    ours = [row for row in table if row.way.startswith(OURS_KIND)]
    results = {
        **{"model": _MODEL, "dtype": "fp32", "batch": batch, "imgsz": imgsz, "steps": steps},
        "ways": {row.way: {key: asdict(row)[key] for key in _COLUMNS} for row in table},
        "reference": reference.name if reference is not None else None,
        "torch_own_failures": train_table.failures(row for row in table if row not in ours),
    }
    failures = train_table.failures(ours, bench.held_mb)
    return {"summary": train_table.summary(compared), "failures": failures, "results": results}


def _torch_name(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


PARTS: Final = {"kernels": kernels, "demo": demo, "bench_train": bench_train}


def main(settings: Answer) -> Any:
    """Run the part that the settings name."""
    return PARTS[settings["part"]](settings)


if __name__ == "__main__":
    answer_parent(main)
