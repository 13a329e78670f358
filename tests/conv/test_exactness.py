"""Every algorithm against fp64: at most twice the native kernel's own error, nothing left unwritten, no NaN."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.conv.gemm import winograd
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines import tuning

from .problems import MOST_RATIO, error_ratios, in_doubles, native_passes, random_problem

GEMM = [a for a in ALGORITHMS if a.engine == "gemm" and a.name != "depthwise_kernel"]  # that one needs a GPU
ROOM = 1 << 40
TORCH_2 = int(torch.__version__.partition(".")[0]) >= 2


def run(algorithm, problem, which, operands):
    return CONVOLUTION.run(algorithm, problem, which, operands, ROOM)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_the_whole_parameter_space_in_fp64(poisoned, seed):
    problem = random_problem(random.Random(seed))
    operands = Operands.of(problem, seed=seed % 1000)
    native = native_passes(problem, operands)
    for algorithm in GEMM:
        if not algorithm.not_supported_reasons(problem):
            for which in PASSES:
                torch.testing.assert_close(run(algorithm, problem, which, operands), native[which])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_the_whole_parameter_space_in_working_precision(poisoned, seed, dtype):
    problem = random_problem(random.Random(seed), dtype)
    if dtype == torch.bfloat16 and problem.transposed and not TORCH_2:
        return  # torch 1.13 has no such native kernel to compare with
    for algorithm in GEMM:
        if algorithm.exact and not algorithm.not_supported_reasons(problem):
            ratios = error_ratios(algorithm, problem, run)
            assert max(ratios.values()) <= MOST_RATIO, (algorithm.name, str(problem), ratios)


OTHERS = [pytest.param(name, marks=pytest.mark.deep) for name in ("yolov8n", "yolov10n", "rtdetr-l")]


@pytest.mark.parametrize("model", ["yolo11n", "yolo26n", *OTHERS])
def test_every_layer_of_real_models(model):
    layers = model_layers(f"{model}.yaml", 64, 1, torch.float32, "cpu")
    assert len(layers) > 20
    for layer in layers:
        for algorithm in GEMM:
            if algorithm.not_supported_reasons(layer.problem):
                continue
            ratios = error_ratios(algorithm, layer.problem, run)
            for which, ratio in ratios.items():
                # One that pays with digits is used only where the tuner has found it exact enough; see below.
                if algorithm.exact:
                    assert ratio <= MOST_RATIO, (algorithm.name, which, str(layer.problem), ratio)


def wide_problem(channels: int) -> ConvProblem:
    ones, pad = (1, 1), (1, 1)
    shape, weight = (1, channels, 40, 40), (channels, channels, 3, 3)
    return ConvProblem(shape, weight, ones, pad, ones, (0, 0), 1, False, torch.float32, "cpu", False)


def test_the_points_of_winograd_halve_the_error_of_the_textbooks(monkeypatch):
    problem, wino = wide_problem(128), BY_NAME["winograd4"]
    ours = error_ratios(wino, problem, run)["forward"]
    winograd._squares.cache_clear()
    monkeypatch.setitem(winograd._POINTS, 4, (1.0, -1.0, 2.0, -2.0))
    textbook = error_ratios(wino, problem, run)["forward"]
    winograd._squares.cache_clear()
    assert ours < 0.6 * textbook


def test_an_algorithm_that_errs_too_much_is_not_timed(monkeypatch):
    problem, wino = wide_problem(64), BY_NAME["winograd4"]
    operands = Operands.of(problem)
    for most, timed in ((100.0, ["winograd4"]), (0.01, [])):
        monkeypatch.setattr(tuning, "_MOST_ERROR", most)
        rows = tuning.time_candidates(CONVOLUTION, problem, "forward", [wino], operands, ROOM)
        assert [row.algorithm for row in rows] == timed
    assert wino.not_supported_reasons(wide_problem(32)) == [
        "fewer than 64 channels: errs more than twice as much as a direct sum"
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_large_values_do_not_overflow_where_native_does_not(dtype):
    """Activations near the end of half precision: transforms and partial sums may not leave its range."""
    for problem in (random_problem(random.Random(seed), dtype) for seed in range(30)):
        operands = Operands.of(problem)
        loud = Operands(operands.x * 100, operands.weight, operands.grad * 10)
        exact = native_passes(problem, in_doubles(loud))
        for algorithm in GEMM:
            if algorithm.not_supported_reasons(problem):
                continue
            for which in PASSES:
                if exact[which].abs().max() < torch.finfo(dtype).max / 2:
                    assert run(algorithm, problem, which, loud).isfinite().all(), (algorithm.name, which, str(problem))
