"""What a certification does on the device: every algorithm against fp64, and a few steps of a training."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from yolo_rocm.bench.certify_child import PROBLEMS, compare, main
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.plan import CONVOLUTION
from yolo_rocm.norm.plan import NORMALISATION
from yolo_rocm.norm.pytorch import Torch

GIVEN = {"part": "kernels", "device": "cpu", "engine": "gemm", "dtypes": ["fp32"]}


def test_all_algorithms_of_an_engine_are_right():
    *before, last = main(GIVEN)
    tried = last["tried"]
    assert {tuple(name.split("/")[2:4]) for name in tried} == {
        (a, b) for a in ("nchw", "nhwc") for b in ("conv", "norm")
    }
    assert all(0 < facts["error"] < facts["allowed"] and facts["results"] > 1 for facts in tried.values())
    assert [answer["next"] for answer in before] == list(tried)  # known before it can take the process down
    (answer,) = main({**GIVEN, "engine": "hip"})
    assert (answer["tried"], list(answer["not_supported"])) == ({}, ["hip/fp32"])


class Spoiled(type(BY_NAME["columns"])):
    """The last result has a wrong element."""

    value = 0.1

    def grad_weight(self, *args, **kwargs):
        result = super().grad_weight(*args, **kwargs)
        result[-1, -1, -1, -1] += self.value
        return result


class NotANumber(Spoiled):
    """As what was never written may be."""

    value = float("nan")


class Failing(type(BY_NAME["columns"])):
    """Ends as MIOpen does."""

    def grad_input(self, *_, **__):
        raise RuntimeError("miopenStatusUnknownError\nmore")


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


@pytest.mark.parametrize(
    ("operator", "algorithm", "case", "words"),
    [
        (CONVOLUTION, Spoiled(), "3x3", "grad_weight of .* is off by"),
        (CONVOLUTION, NotANumber(), "3x3", "grad_weight of .* is off by nan"),
        (CONVOLUTION, Failing(), "3x3", "grad_input of .* fails: .*miopenStatusUnknownError"),
        (NORMALISATION, VarianceFromSquares(), "large-values", ".* is off by"),
        (NORMALISATION, SumsInHalf(), "large-values", ".* is off by"),
    ],
)
def test_what_is_wrong_is_noticed(operator, algorithm, case, words):
    dtype, name = (torch.float32, "fp32") if operator is CONVOLUTION else (torch.float16, "fp16")
    problem = replace(PROBLEMS[operator.name][case], dtype=dtype)
    assert re.match(words, compare(operator, algorithm, {case: problem}, name)["wrong"])


@pytest.mark.deep  # bench train has tests of its own
def test_a_few_steps_are_timed_and_judged():
    given = {"part": "bench_train", "device": "cpu", "quick": True, "batch": 8, "ways": "vendor off,ours"}
    answer = main(given)
    assert (answer["failures"], answer["results"]["reference"]) == ([], "vendor off NCHW")
    assert answer["results"]["ways"]["ours NCHW"]["step_ms"] > 0
