"""Kernels executed in emulation for AMD cards that are not there: a sample that changes from day to day.

The whole table is `docs/compiled.csv`; `python tools/emulate_kernels.py > FILE` makes it again.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from tools import compile_kernels
from tools.kernel import TARGETS
from tools.kernel_bounds import CARDS, bound, lds_bytes, matrix_cycles, vector_cycles
from yolo_rocm.engines.triton.available import missing_reason

from ..pages import PROJECT
from .child import python
from .samples import KERNELS_PER_TARGET, ROTATION, every_row, sample

pytestmark = pytest.mark.once
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))

RUN = """
import csv, dataclasses, json, sys, torch
from tools import compile_kernels
from tools.emulate_kernels import emulated
torch.set_num_threads(1)
wanted = [tuple(row) for row in json.loads(sys.argv[1])]
kernels = []
for target, name, tile, dtype, layout in wanted:
    every = compile_kernels.curated(target, dtype, layout == "nhwc")
    kernels.append((next(k for k in every if (k.name, k.tile) == (name, tile)), target))
rows = compile_kernels.build_all(kernels, 1, emulated)
print(json.dumps([dataclasses.asdict(row) for row in rows]))
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
        assert int(row["instructions"]) > (50 if row["kernel"] == "norm known statistics" else 100), row
        assert row["computed_for"] == (CARDS[row["target"]].name if row["target"] in CARDS else ""), row
        assert (row["computed_us"] != "") == (row["target"] in CARDS), row
        if row["kernel"].startswith(("forward", "grad_")):
            assert float(row["fma_share"]) > 0, row


def test_grad_weight_in_nchw_multiplies_most_of_the_time():
    """Without matrix units its instructions are multiply-adds for the most part, on the card the project began with."""
    shares = [
        float(row["fma_share"])
        for row in table()
        if (row["target"], row["dtype"], row["layout"]) == ("gfx1010", "fp32", "nchw")
        and row["kernel"] in ("grad_weight", "grad_weight_rows")
    ]
    assert len(shares) == 7
    assert min(shares) >= 0.6


def test_bounds_are_sums_of_what_the_card_can_do():
    card = CARDS["gfx1010"]
    # A thousand multiply-adds of a wave: a thousand cycles of one of 72 SIMDs.
    counts = Counter({"v_fmac_f32": 1000})
    assert vector_cycles(counts, card) == 1000
    found = bound("gfx1010", counts, 32, 72.0, 0)
    assert found is not None
    assert found.limit == "vector"
    assert found.microseconds == pytest.approx(1.0 / card.clock)
    # As many through LDS as fit in half that time, then more than fit.
    counts["ds_read_b128"] = 250 // 4
    assert lds_bytes(counts, 32) == 250 // 4 * 32 * 16
    assert bound("gfx1010", counts, 32, 72.0, 0).limit == "vector"
    counts["ds_read2_b64"] = 1000
    assert bound("gfx1010", counts, 32, 72.0, 0).limit == "lds"
    assert bound("gfx1010", counts, 32, 72.0, 10**9) == (pytest.approx(1e9 / 288e9 * 1e6), "memory")
    assert bound("gfx1151", counts, 32, 72.0, 0) is None


def test_pairs_issue_together_and_matrix_units_have_their_own_rate():
    card = CARDS["gfx1100"]
    assert vector_cycles(Counter({"v_fmac_f32": 20, "vopd": 10}), card) == 10
    assert matrix_cycles(Counter({"v_wmma_f32_16x16x16_f16": 1}), card) == 16 * 16 * 16 / 128
    assert vector_cycles(Counter({"v_rcp_iflag_f32": 1, "v_mul_lo_u32": 2, "v_mul_hi_u32_u24": 1}), card) == 4 + 8 + 1
    both = Counter({"v_mfma_f32_32x32x8_f16": 10, "v_mov_b32": 10})
    assert (matrix_cycles(both, CARDS["gfx942"]), vector_cycles(both, CARDS["gfx942"])) == (320, 40)
    # At the same time on CDNA, one after the other on RDNA.
    together = bound("gfx942", both, 64, 304 * 4, 0)
    assert together == (pytest.approx(0.32 / CARDS["gfx942"].clock), "matrix")
    one = Counter({"v_wmma_f32_16x16x16_f16": 10, "v_mov_b32": 10})
    assert bound("gfx1100", one, 32, 96 * 2, 0) == (pytest.approx(0.33 / card.clock), "vector")


LEFT_OUT = """
import json
from tools import compile_kernels, kernel_assembly
from tools.emulate_kernels import USUAL, execute, like
target, found = "gfx1010", []
for name in ("forward", "transpose"):
    kernel = like(next(k for k in compile_kernels.curated(target, "fp32", True) if k.name == name), target, USUAL)
    text, shared = kernel_assembly.assembly(kernel, target)
    stores = [line for line in text.splitlines() if "global_store" in line]
    for changed in (text, text.replace(stores[-1], "", 1)):
        try:
            found.append(execute(kernel, changed, shared, some=True).right)
        except ValueError as error:
            found.append(str(error))
print(json.dumps(found))
"""


@with_triton
def test_some_workgroups_write_all_of_their_tile(tmp_path):
    forward, fewer, transpose, none = printed(tmp_path, LEFT_OUT)
    assert (forward, transpose) == (True, True)
    assert fewer.startswith("forward wrote ")
    assert none.startswith("transpose wrote ")


@with_triton
def test_all_workgroups_write_the_whole_output():
    from tools.emulate_kernels import ODD, USUAL
    from tools.kernel_tasks import elements_written, task

    for layers in (ODD, USUAL):
        for dtype, last in (("fp32", False), ("fp16", True)):
            for kernel in compile_kernels.curated("gfx942", dtype, last, layers, 4):
                x, y, z = kernel.call.grid
                if kernel.name == "grad_input" and layers is ODD:
                    continue  # stride phases of several sizes
                groups = list(product(range(x), range(y), range(z)))
                assert elements_written(kernel, groups) == task(kernel).exact.numel(), kernel.name


@with_triton
def test_workgroups_of_normalisations_write_all_there_is():
    from tools import norm_kernels

    for dtype, last, odd in product(("fp32", "fp16"), (False, True), (False, True)):
        for kernel in norm_kernels.curated_norms("gfx1100", dtype, last, odd):
            given = norm_kernels.task(kernel)
            fresh = sum(given.tensors[place].numel() for place in given.written if place not in given.updated)
            x, y, z = kernel.call.grid
            groups = list(product(range(x), range(y), range(z)))
            assert norm_kernels.elements_written(kernel, groups) == fresh, kernel.name


BROKEN_NORMS = """
import json
from tools import kernel_assembly
from tools.emulate_kernels import execute
from tools.norm_kernels import curated_norms
target, found = "gfx1030", {}
wanted = {"norm statistics": 1, "norm whole backward": 1}
for kernel in curated_norms(target, "fp32", True, odd=True):
    if not wanted.pop(kernel.name, 0):
        continue
    text, shared = kernel_assembly.assembly(kernel, target)
    lines = text.splitlines()
    adds = [i for i, line in enumerate(lines) if line.split()[:1] in (["v_add_f32_e32"], ["v_fmac_f32_e32"])]
    changed = list(lines)
    changed[adds[len(adds) // 2]] = ""  # one sum or product less
    found[kernel.name] = [execute(kernel, text, shared).right]
    try:
        found[kernel.name].append(execute(kernel, "\\n".join(changed), shared).right)
    except Exception as error:
        found[kernel.name].append(type(error).__name__)
print(json.dumps(found))
"""


@with_triton
def test_a_normalisation_that_leaves_out_a_sum_is_found(tmp_path):
    found = printed(tmp_path, BROKEN_NORMS)
    assert len(found) == 2
    for name, (right, broken) in found.items():
        assert right is True, name
        assert broken is not True, name


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
WITH_THEIR_OWN_CODE = (("gfx1010", "fp32", "nchw"), ("gfx942", "fp16", "nhwc"), ("gfx1201", "bf16", "nchw"))


@with_triton
@pytest.mark.parametrize(
    "one", [WITH_THEIR_OWN_CODE[0], *(pytest.param(one, marks=pytest.mark.deep) for one in WITH_THEIR_OWN_CODE[1:])]
)
def test_what_runs_is_what_the_table_compiles(tmp_path, one):
    """What code is specialised by are sizes of a layer: they are the same for every target."""
    same = printed(tmp_path, SAME, *one)
    assert len(same) > 5
    assert all(same.values()), same
