"""The kernels of a detector's loss, for AMD cards that are not there: compiled, and executed whole."""

from __future__ import annotations

import json
from itertools import product

import pytest

from tools import loss_kernels
from tools.kernel import TARGETS
from yolo_rocm.engines.triton.available import missing_reason

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
