"""Products are cut where a target would leave a part of them unwritten, and what gets them wrong is not used."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines import products
from yolo_rocm.engines.products import longest, product
from yolo_rocm.engines.trust.checks import gives
from yolo_rocm.engines.tuning import time_candidates
from yolo_rocm.errors import EngineError

from ..short_products import short_products
from .toy import Plain, Product, Products, planner_of

SIDE, BATCH, MOST = 128, 5, 70_000  # 81,920 pixels: more rows than the stand-in multiplies


def conv(kernel: int, channels_last: bool = True, transposed: bool = False) -> ConvProblem:
    padding, stride = (0, kernel) if transposed else (kernel // 2, 1)
    shapes = (BATCH, 4, SIDE, SIDE), (4, 4, kernel, kernel)
    geometry = ((each, each) for each in (stride, padding, 1, 0))
    return ConvProblem(*shapes, *geometry, 1, transposed, torch.float32, "cpu", channels_last)


@pytest.mark.parametrize("most", [4, 1000])
def test_a_product_that_is_cut_is_the_same_product(monkeypatch, most):
    monkeypatch.setattr(products, "SHORTEST", 3)
    a, b, offset, held = torch.randn(11, 5), torch.randn(5, 9), torch.randn(9), torch.randn(2, 11, 9)
    pairs, groups = (torch.randn(2, 11, 5), torch.randn(2, 5, 9)), torch.randn(3, 2, 5, 9)
    monkeypatch.setattr(products, "longest", lambda device: most)
    with short_products(10**6) as sizes:
        results = [
            (product(a, b), a @ b),
            (product(a, b, offset=offset), a @ b + offset),
            (product(*pairs, torch.empty(11, 2, 9).transpose(0, 1)), pairs[0] @ pairs[1]),
            (product(*pairs, held.clone(), add=True), held + pairs[0] @ pairs[1]),
            (product(pairs[0], groups), pairs[0] @ groups),
        ]
    for ours, exact in results:
        torch.testing.assert_close(ours, exact)
    assert (max(map(max, sizes)) > most) is (most == 4)  # the exact ones beside them
    assert min(map(max, sizes)) <= most


@pytest.mark.parametrize(("gfx", "most"), [("gfx1201", 2**18), ("gfx1100", None), (None, None)])
def test_the_target_says_where_to_cut(fresh, monkeypatch, gfx, most):
    monkeypatch.setattr(products, "target_of", lambda device: None if gfx is None else SimpleNamespace(gfx=gfx))
    assert longest(torch.device("cuda:0")) == most
    assert longest(torch.device("cpu")) is None


PROBLEMS = {
    **{f"{kernel}x{kernel} {'nhwc' if last else 'nchw'}": conv(kernel, last) for kernel in (1, 3) for last in (0, 1)},
    "transposed": conv(2, transposed=True),
}


@pytest.mark.parametrize("name", [name for name, each in BY_NAME.items() if each.engine == "gemm"])
def test_all_passes_of_all_algorithms_are_right_where_products_are_short(name, monkeypatch):
    monkeypatch.setattr(products, "SHORTEST", 500)
    cut = 0
    for problem in PROBLEMS.values():
        if BY_NAME[name].not_supported_reasons(problem):
            continue
        operands = Operands.of(problem)
        for which in PASSES:
            exact = CONVOLUTION.run(BY_NAME["aten"], problem, which, operands)
            for longest_here in (None, 2000):
                monkeypatch.setattr(products, "longest", lambda device, most=longest_here: most)
                with short_products(2000) as sizes:
                    right = gives(exact, CONVOLUTION, BY_NAME[name], problem, which, operands, 1 << 40)
                assert right or longest_here is None, (problem, which)
                cut += not right
                assert longest_here is None or max(map(max, sizes), default=0) <= 2000
    assert cut or name not in ("pointwise", "columns")  # these were wrong before they were cut


@pytest.mark.parametrize(("kernel", "wrong"), [(1, {"pointwise", "columns"}), (3, {"columns"})])
def test_tuning_leaves_out_a_library_that_is_wrong_at_the_real_size(fresh, kernel, wrong, events):
    problem = conv(kernel)
    tried = [a for a in BY_NAME.values() if a.engine in ("gemm", "aten") and not a.not_supported_reasons(problem)]
    with short_products(MOST):
        rows = time_candidates(CONVOLUTION, problem, "forward", tried, Operands.of(problem), 1 << 40)
    assert {row.algorithm for row in rows} == {a.name for a in tried} - wrong - _inexact(problem)
    assert {line.partition(" ")[0] for line in events.of("kernel.dropped") if "wrong numbers" in line} == wrong
    with short_products(products.SHORTEST) as sizes:  # what others are compared with needs no long product
        expected = CONVOLUTION.expected(problem, "forward", Operands.of(problem), 1 << 40)
    assert max(map(max, sizes)) <= products.SHORTEST
    assert expected.isfinite().all()


def _inexact(problem: ConvProblem) -> set[str]:
    """Winograd may pay too many digits for its speed, on any card."""
    return {a.name for a in BY_NAME.values() if not a.exact and not a.not_supported_reasons(problem)}


def test_what_heuristics_choose_is_compared_once_for_each_size_and_pass(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    plain, dtypes = Plain("plain", lambda y: dtypes.append(y.dtype) or y), []
    choose = planner_of(Products(plain, Plain("other")))
    with torch.autocast("cpu", torch.bfloat16):  # which does not reach what is compared
        choose.plan(Product(5))
        choose.use({})  # all plans are made again
        choose.plan(Product(5))
    assert plain.ran == ["forward", "backward"]
    assert dtypes == [torch.float32] * 2
    choose.plan(Product(6))
    assert plain.ran == ["forward", "backward"] * 2
    choose.tune([Product(7)])
    ran = len(plain.ran)
    choose.plan(Product(7))  # was measured, and so compared
    assert len(plain.ran) == ran


@pytest.mark.parametrize("bad", [lambda y: y * 1.1, lambda y: y * math.nan], ids=["wrong", "NaN"])
def test_torchs_own_is_kept_with_a_warning_where_there_is_no_other(fresh, events, bad):
    native = Plain("plain", bad)
    native.engine = "aten"
    assert planner_of(Products(native), "aten", remember=False).plan(Product(5))["forward"].algorithm is native
    assert "kernel.wrong_numbers" in events.warnings
    ours = planner_of(Products(native, Plain("other")), "aten+gemm", remember=False)
    assert ours.plan(Product(6))["forward"].algorithm.name == "other"
    with pytest.raises(EngineError, match="wrong: it gives wrong numbers"):
        planner_of(Products(Plain("wrong", bad)), "gemm", remember=False).plan(Product(5))
