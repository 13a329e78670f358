"""What a certification does on the device: every algorithm against fp64, and a few steps of a training."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from yolo_rocm.bench import certify_child
from yolo_rocm.bench.certify_child import PROBLEMS, compare, main
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.plan import CONVOLUTION
from yolo_rocm.norm.plan import NORMALISATION
from yolo_rocm.norm.pytorch import Torch

GIVEN = {"part": "kernels", "device": "cpu", "engine": "gemm", "dtype": "fp32"}


def test_all_algorithms_of_an_engine_are_right():
    answers = list(main(GIVEN))
    tried = answers[-1]["tried"]
    operators = {name.split("/")[3] for name in tried}
    assert operators == {"conv", "norm"}
    assert {name.split("/")[2] for name in tried} == {"nchw", "nhwc"}
    assert [facts for facts in tried.values() if "wrong" in facts] == []
    assert all(0 < facts["error"] < facts["allowed"] and facts["results"] > 1 for facts in tried.values())


def test_what_is_tried_next_is_known_before_it_can_take_the_process_down(monkeypatch):
    monkeypatch.setattr(certify_child, "compare", lambda *_: {})
    answers = main(GIVEN)
    first = dict(next(answers))
    assert first["next"].startswith("gemm/fp32/nchw/conv/")
    assert first["next"] in next(answers)["tried"]


def test_an_engine_that_is_not_here_says_why():
    (answer,) = main({**GIVEN, "engine": "hip"})
    assert answer["tried"] == {}
    assert answer["not_supported"]


def spoiled(value: float, shape: str = "3x3"):
    """Return what `compare` says of an algorithm whose last result has a wrong element."""

    class Spoiled(type(BY_NAME["columns"])):
        def grad_weight(self, *args, **kwargs):
            result = super().grad_weight(*args, **kwargs)
            result[-1, -1, -1, -1] += value  # whatever its layout is
            return result

    return compare(CONVOLUTION, Spoiled(), {shape: PROBLEMS["conv"][shape]}, "fp32")


@pytest.mark.parametrize("value", [1e-1, float("nan")])
def test_a_wrong_element_is_noticed(value):
    assert re.match("grad_weight of .* is off by", spoiled(value)["wrong"])


class VarianceFromSquares(Torch):
    """Has fp32's digits alone for a variance that is small next to the mean."""

    def forward(self, problem, x, p):
        y, statistics = super().forward(problem, x, p)
        if not problem.training:
            return y, statistics
        variance = x.float().square().mean((0, 2, 3)) - x.float().mean((0, 2, 3)).square()
        statistics = statistics._replace(invstd=(variance + p.eps).rsqrt())
        return self.activate(problem, x, p, statistics), statistics


class SumsInHalf(Torch):
    """Cannot hold a bias's gradient above 65504."""

    def backward(self, *args):
        grads = super().backward(*args)
        return grads._replace(bias=grads.bias if grads.bias is None else grads.bias.half().float())


@pytest.mark.parametrize("algorithm", [VarianceFromSquares(), SumsInHalf()])
def test_digits_lost_in_large_values_are_noticed(algorithm):
    problems = {name: replace(problem, dtype=torch.float16) for name, problem in PROBLEMS["norm"].items()}
    assert (
        "is off by"
        in compare(NORMALISATION, algorithm, {"large-values": problems.pop("large-values")}, "fp16")["wrong"]
    )
    assert "wrong" not in compare(NORMALISATION, algorithm, problems, "fp16")


def test_an_algorithm_that_raises_is_recorded():
    class Failing(type(BY_NAME["columns"])):
        def grad_input(self, *_, **__):
            raise RuntimeError("miopenStatusUnknownError\nmore")

    wrong = compare(CONVOLUTION, Failing(), {"3x3": PROBLEMS["conv"]["3x3"]}, "fp32")["wrong"]
    assert wrong.startswith("grad_input of")
    assert "miopenStatusUnknownError" in wrong


def test_problems_are_on_the_cpu_in_fp32_until_they_are_moved():
    for problems in PROBLEMS.values():
        assert {(problem.dtype, problem.device) for problem in problems.values()} == {(torch.float32, "cpu")}


def test_a_few_steps_are_timed_and_judged():
    given = {"part": "bench_train", "device": "cpu", "quick": True, "batch": 8, "ways": "vendor off,ours"}
    answer = main(given)
    assert (answer["batch"], answer["failures"], answer["reference"]) == (2, [], "vendor off NCHW")
    assert set(answer["ways"]) == {"vendor off NCHW", "vendor off channels_last", "ours NCHW", "ours channels_last"}
    assert answer["ways"]["ours NCHW"]["step_ms"] > 0
