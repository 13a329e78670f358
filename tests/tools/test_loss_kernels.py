"""The kernels of a detector's loss, for AMD cards that are not there: compiled, and executed whole."""

from __future__ import annotations

import json
from itertools import product

import pytest

from tools import loss_kernels
from tools.kernel import TARGETS
from yolo_rocm.engines.triton.available import missing_reason

from ..tables import each_row
from ..thinning import deep_but
from .child import python

pytestmark = pytest.mark.once
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
KERNELS = {"loss candidates", "loss box losses", "loss box gradients", "loss logit losses", "loss logit gradients"}
PROBLEMS = {"usual": loss_kernels.USUAL, "odd": loss_kernels.ODD}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return what runs a program that compiles and returns what it prints; all have one folder, and compile once."""
    folder = tmp_path_factory.mktemp("losses")

    def run(program, *words):
        done = python(folder, program, *words)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


COMPILE = """
import dataclasses, json, sys
from tools import compile_kernels
from tools.loss_kernels import curated_losses
kernels = [(kernel, sys.argv[1]) for dtype in ("fp32", "fp16") for kernel in curated_losses(dtype)]
print(json.dumps([dataclasses.asdict(row) for row in compile_kernels.build_all(kernels, 1)]))
"""


@with_triton
@pytest.mark.deep
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles_without_spills(printed, target):
    rows = printed(COMPILE, target)
    assert {(row["kernel"], row["dtype"]) for row in rows} == set(product(KERNELS, ("fp32", "fp16")))
    for row in rows:
        assert (row["error"], row["spills"], row["scalar_spills"]) == ("", 0, 0), row
        assert row["occupancy"] >= 2, row
        assert 4 <= row["registers"] <= 256, row


RUN = """
import json, sys
from tools import kernel_assembly, loss_kernels
from tools.emulate_kernels import execute
target, dtype, which = sys.argv[1:]
found, problem = {}, {"usual": loss_kernels.USUAL, "odd": loss_kernels.ODD}[which]
for kernel in loss_kernels.curated_losses(dtype, problem):
    ran = execute(kernel, *kernel_assembly.assembly(kernel, target), preloaded=which == "odd")
    found[kernel.name] = (ran.error, ran.allowed, ran.wrong, ran.right)
print(json.dumps(found))
"""
# A card without matrix units with the more difficult problem, and one in half precision.
RUNS = ("gfx1010", "fp32", "odd"), ("gfx90a", "fp16", "usual")


@with_triton
@pytest.mark.parametrize("one", deep_but(product(TARGETS, ("fp32", "fp16", "bf16"), PROBLEMS), RUNS[0]), ids=" ".join)
def test_every_kernel_computes_what_fp64_does(printed, one):
    found = printed(RUN, *one)
    assert set(found) == KERNELS
    for name, (error, allowed, wrong, right) in found.items():
        assert right, (name, error, allowed, wrong)
        assert allowed < (1e-6 if one[1] == "fp32" or "gradients" not in name else 5e-3)


@each_row(("dtype", "which"), [*product(("fp32", "fp16"), PROBLEMS)])
def test_all_workgroups_write_all_there_is(dtype, which):
    for kernel in loss_kernels.curated_losses(dtype, PROBLEMS[which]):
        given = loss_kernels.task(kernel)
        assert [tensor.dtype for tensor in given.tensors] == list(kernel.types)
        groups = [(x, 0, 0) for x in range(kernel.call.grid[0])]
        written = sum(given.tensors[place].numel() for place in given.written)
        assert loss_kernels.elements_written(kernel, groups) == written


@each_row("which", PROBLEMS)
def test_a_problem_has_what_kernels_treat_in_a_way_of_their_own(which):
    """Anchors inside of targets and outside, boxes apart, side by side and the same, distances beyond the last bin."""
    problem = PROBLEMS[which]
    given = loss_kernels._given(problem)
    assert (given.real == 0).any()
    boxes, wanted, chosen = given.boxes, given.wanted, given.chosen.bool()
    assert 0 < chosen.sum() < chosen.numel()
    assert not given.chosen.flatten()[32:64].any()
    same = (boxes == wanted)[chosen]
    assert same.all(1).any()
    assert (same.any(1) & ~same.all(1)).any()
    assert (boxes[..., 2] == wanted[..., 0])[chosen].any()
    far = wanted[..., 2:] - given.points
    assert (far[chosen] < 0).any()
    if which == "odd":
        assert (far[chosen] > problem.bins - 1).any()
        assert problem.anchors > 1024


BROKEN = """
import json
from tools import kernel_assembly, loss_kernels
from tools.emulate_kernels import execute
target, found = "gfx1030", {}

def right(kernel, text, shared):
    try:
        return execute(kernel, text, shared).right
    except Exception as error:
        return type(error).__name__

usual = list(loss_kernels.curated_losses("fp32"))
# Of its many anchors at a time the small problem has few.
many = next(loss_kernels.curated_losses("fp32", loss_kernels.ODD))
for kernel in (many, *usual[1:]):
    text, shared = kernel_assembly.assembly(kernel, target)
    known = [right(kernel, text, shared)]
    # By percents: log2(e), or 4 / pi**2 and the second factor of an arc tangent.
    for constant in ("0x3fb8aa3b",) if "logit" in kernel.name else ("0x3ecf817b", "0xbeaaaa2a"):
        changed = text.replace(constant, hex(int(constant, 0) ^ 0xFFFFF))
        known.append(right(kernel, changed, shared) if changed != text else None)
    lines = text.splitlines()
    stores = [i for i, line in enumerate(lines) if "_store_" in line]
    known.append(right(kernel, "\\n".join(lines[: stores[-1]] + lines[stores[-1] + 1 :]), shared))
    found[kernel.name] = known
compute, built = loss_kernels._complete_iou, kernel_assembly.assembly(usual[2], target)

def one_side_negated(a, b):
    a.register_hook(lambda grad: grad * grad.new_tensor([1, 1, -1, 1]))
    return compute(a, b)

loss_kernels._complete_iou = one_side_negated
print(json.dumps([found, right(usual[2], *built)]))
"""


@with_triton
@pytest.mark.deep
def test_a_kernel_that_computes_something_else_is_found(printed):
    found, negated = printed(BROKEN)
    assert set(found) == KERNELS
    for name, (right, *broken) in found.items():
        assert right is True, name
        assert broken == [False] * (1 if "logit" in name else 2) + ["ValueError"], name
    assert negated is False
