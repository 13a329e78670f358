"""Kernels executed in emulation for AMD cards that are not there: a sample that changes from day to day.

The whole table is `docs/compiled.csv`; `python tools/emulate_kernels.py > FILE` makes it again.
"""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path

import pytest

from tools import compile_kernels, kernel_tasks, loss_kernels, norm_kernels
from tools.kernel import TARGETS
from yolo_rocm.engines.triton.available import missing_reason

from ..pages import PROJECT
from .child import python
from .samples import KERNELS_PER_TARGET, ROTATION, every_row, sample

pytestmark = pytest.mark.once
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))

RUN = """
import json, sys, torch
from tools import compile_kernels
from tools.emulate_kernels import emulated
torch.set_num_threads(1)
wanted = [tuple(row) for row in json.loads(sys.argv[1])]
kernels = []
for target, name, tile, dtype, layout in wanted:
    every = compile_kernels.curated(target, dtype, layout == "nhwc")
    kernels.append((next(k for k in every if (k.name, k.tile) == (name, tile)), target))
rows = compile_kernels.build_all(kernels, 1, emulated)
print(json.dumps(rows))
"""


def table() -> list[dict[str, str]]:
    with (PROJECT / "docs" / "compiled.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sample_has_every_kernel_and_every_target():
    rows = every_row()
    for rotation in range(40):
        chosen = sample(rotation)
        for place in (0, 1):
            assert {row[place] for row in chosen} == {row[place] for row in rows}
    seen = {row for rotation in range(400) for row in sample(rotation)}
    assert len(seen) > len(set(rows)) // 2  # it goes round


def printed(tmp_path: Path, program: str, *words: str):
    """Run a program that compiles, and return what it prints."""
    done = python(tmp_path, program, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@with_triton
@pytest.mark.parametrize("later", [0, *(pytest.param(part, marks=pytest.mark.deep) for part in (1, 2, 3))])
def test_a_sample_computes_what_fp64_does(tmp_path, later):
    """A kernel for each target, others each day; all of them are compiled each time, by `test_compile_kernels`."""
    wanted = sample(ROTATION)[(ROTATION + later) % KERNELS_PER_TARGET :: KERNELS_PER_TARGET]
    assert [target for target, *_ in wanted] == list(TARGETS)
    rows = printed(tmp_path, RUN, json.dumps(wanted))
    assert [row["error"] for row in rows] == [""] * len(wanted), f"YOLO_ROCM_ROTATION={ROTATION}: {rows}"
    known = {tuple(row[key] for key in ("target", "kernel", "tile", "dtype", "layout")): row for row in table()}
    for row, key in zip(rows, wanted, strict=True):
        assert 0 <= row["relative_error"] <= row["allowed_error"]
        # The page was made by the same code: the same instructions were executed.
        assert str(row["instructions"]) == known[key]["instructions"], f"{key}: make docs/compiled.csv again"


def test_the_page_says_what_was_executed():
    rows = table()
    assert len(rows) > 1000
    for row in rows:
        assert row["error"] == "", row
        assert 0 <= float(row["relative_error"]) <= float(row["allowed_error"]), row
        assert int(row["instructions"]) > 100, row
        if row["kernel"].startswith(("forward", "grad_")):
            assert float(row["fma_share"]) > 0, row


@with_triton
def test_all_workgroups_write_all_there_is():
    """By the rules for how many elements some of them write: of convolutions, normalisations and losses."""
    from tools.emulate_kernels import ODD, USUAL

    def check(of, kernel):
        task = of.task(kernel)
        fresh = sum(task.tensors[place].numel() for place in task.written if place not in task.updated)
        groups = list(product(*map(range, kernel.call.grid)))
        assert of.elements_written(kernel, groups) == fresh, kernel.name

    for (dtype, last), layers in product((("fp32", False), ("fp16", True)), (ODD, USUAL)):
        for kernel in compile_kernels.curated("gfx942", dtype, last, layers, 4):
            if kernel.name != "grad_input" or layers is USUAL:  # stride phases of several sizes
                check(kernel_tasks, kernel)
        for kernel in norm_kernels.curated_norms("gfx1100", dtype, last, layers is ODD):
            check(norm_kernels, kernel)
        for kernel in loss_kernels.curated_losses(dtype, loss_kernels.ODD if layers is ODD else loss_kernels.USUAL):
            check(loss_kernels, kernel)


BROKEN = """
import json
from tools import compile_kernels, kernel_assembly
from tools.emulate_kernels import USUAL, execute, like
from tools.norm_kernels import curated_norms

def right(kernel, text, shared, some=False):
    try:
        return execute(kernel, text, shared, some).right
    except Exception as error:
        return str(error)

found = {}
for kernel in curated_norms("gfx1030", "fp32", True, odd=True):
    if kernel.name in ("norm statistics", "norm whole backward") and kernel.name not in found:
        text, shared = kernel_assembly.assembly(kernel, "gfx1030")
        lines = text.splitlines()
        adds = [i for i, line in enumerate(lines) if line.split()[:1] in (["v_add_f32_e32"], ["v_fmac_f32_e32"])]
        changed = lines[: adds[len(adds) // 2]] + lines[adds[len(adds) // 2] + 1 :]  # one sum or product less
        found[kernel.name] = [right(kernel, each, shared) for each in (text, "\\n".join(changed))]
kernel = next(k for k in compile_kernels.curated("gfx1010", "fp32", True) if k.name == "transpose")
kernel = like(kernel, "gfx1010", USUAL)
text, shared = kernel_assembly.assembly(kernel, "gfx1010")
stores = [line for line in text.splitlines() if "global_store" in line]
changed = text.replace(stores[-1], "", 1)  # one store less, of the workgroups that are run
found["transpose"] = [right(kernel, each, shared, some=True) for each in (text, changed)]
print(json.dumps(found))
"""


@with_triton
def test_a_kernel_that_leaves_out_a_sum_or_a_store_is_found(tmp_path):
    found = printed(tmp_path, BROKEN)
    assert len(found) == 3
    for name, (right, broken) in found.items():
        assert right is True, name
        assert broken is not True, name
    assert found["transpose"][1].startswith("transpose wrote ")


ON_RDNA1 = """
import json
from contextlib import nullcontext
from tools import compile_kernels, kernel_assembly
from tools.emulate_kernels import ODD, execute, like
target = "gfx1010"
kernel = next(k for k in compile_kernels.curated(target, "fp32", True) if k.name == "transpose")
found = []
for buffers in (False, True):
    if buffers:
        kernel_assembly.broken_on, kernel_assembly.without_broken_buffers = (lambda gfx: False), nullcontext
    small = like(kernel, target, ODD)
    text, shared = kernel_assembly.assembly(small, target)
    try:
        found.append((text.count("buffer_store"), execute(small, text, shared).error))
    except ValueError as error:
        found.append((text.count("buffer_store"), str(error)))
print(json.dumps(found))
"""


@with_triton
def test_on_rdna1_buffer_descriptors_would_write_nothing(tmp_path):
    """Triton leaves out of them how their end is checked; why `engines/triton/buffers.py` is there."""
    (without, error), (with_them, why) = printed(tmp_path, ON_RDNA1)
    assert (without, error) == (0, 0.0)
    assert with_them > 0
    assert why == f"transpose wrote 0 elements of {2 * 24 * 7 * 15}"


SAME = """
import json, sys
from tools import compile_kernels, kernel_assembly
from tools.emulate_kernels import USUAL, like
same, (target, dtype, layout) = {}, sys.argv[1:]
for kernel in compile_kernels.curated(target, dtype, layout == "nhwc"):
    if kernel.name not in same and not kernel.name.startswith("depthwise"):
        texts = [kernel_assembly.assembly(each, target)[0] for each in (kernel, like(kernel, target, USUAL))]
        same[kernel.name] = texts[0] == texts[1]
print(json.dumps(same))
"""


@with_triton
def test_what_runs_is_what_the_table_compiles(tmp_path):
    """What code is specialised by are sizes of a layer: they are the same for every target."""
    same = printed(tmp_path, SAME, "gfx1010", "fp32", "nchw")
    assert len(same) > 5
    assert all(same.values()), same
