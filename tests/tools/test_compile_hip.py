"""The kernels of engine hip for AMD cards that are not there: compiled, read back, executed."""

from __future__ import annotations

import csv
import shutil
import subprocess
from functools import partial

import pytest

from tools import compile_hip, emulate_hip
from tools.exactness import allowed_error
from tools.hip_compilers import by_clang, read_needs
from tools.hip_objects import as_assembly

from ..pages import PROJECT
from ..tables import each_row

pytestmark = pytest.mark.once
with_clang = pytest.mark.skipif(not shutil.which("clang-19"), reason="clang-19 is not here")
MADE = """
    v_fma_f32 v0, v1, v2, v3
    v_dot2c_f32_f16 v0, v1, v2
    .amdhsa_workgroup_processor_mode {}
    .group_segment_fixed_size: 37376
    .private_segment_fixed_size: 12
    .sgpr_spill_count: 2
    .vgpr_count: {}
    .vgpr_spill_count: 3
"""


def test_what_is_spilled_and_what_is_forbidden_is_in_the_table():
    """Rows of a compiler that spills and takes an instruction that gfx1010 lacks."""
    row = next(compile_hip.rows("gfx1030", lambda *given: read_needs(MADE.format(1, 200)), "made up"))
    names = ("compiler", "registers", "vgpr_spills", "sgpr_spills", "private_bytes", "lds_bytes", "forbidden")
    assert [row[name] for name in names] == ["made up", 200, 3, 2, 12, 37376, "v_dot2c_f32_f16"]
    row = next(compile_hip.rows("gfx1100", lambda *given: read_needs(MADE.format(1, 200)), "made up"))
    assert row["forbidden"] == ""


@each_row(
    ("target", "registers", "mode", "waves"),
    [
        ("gfx1010", 256, 1, 3),  # by LDS: three workgroups of four waves on four SIMDs
        ("gfx1010", 256, 0, 2),  # one workgroup on two SIMDs
        ("gfx1030", 400, 1, 2),
        ("gfx90a", 256, 1, None),
    ],
)
def test_waves_are_limited_by_registers_and_by_lds(target, registers, mode, waves):
    assert read_needs(MADE.format(mode, registers)).waves(target, 128) == waves
    made = read_needs(".vgpr_count: 113")  # in blocks of registers
    assert [made.waves(target, 64) for target in ("gfx1010", "gfx1030", "gfx1100", "gfx942")] == [8, 8, 12, None]


@with_clang
def test_a_kernel_is_compiled_and_executed():
    """Fewest lines of code: the one for depthwise layers, by clang; and what comes out is not only zeros."""
    row = next(compile_hip.rows("gfx1010", by_clang, "clang"))
    assert (row["kernel"], row["pass"], row["dtype"], row["layout"]) == ("depthwise", "forward", "fp32", "nchw")
    assert 4 <= row["registers"] <= 32
    assert [row[name] for name in ("vgpr_spills", "sgpr_spills", "private_bytes", "waves")] == [0, 0, 0, 20]
    with emulate_hip.cut_for_a_card():
        algorithm = next(each for each in emulate_hip.every() if each.name == "hip_depthwise")
        problem = emulate_hip.ODD[-1].problem(False)
        ran = emulate_hip.run_pass(algorithm, problem, "forward", partial(by_clang, target="gfx1010"))
    assert 0 < ran.error <= allowed_error(problem, "forward")
    assert emulate_hip.share_of_multiply_adds(ran.counts)[0] > 0


@with_clang
@pytest.mark.skipif(not shutil.which("llvm-objdump-19"), reason="llvm-objdump-19 is not here")
def test_an_object_reads_back_as_what_it_was_made_from(tmp_path):
    """Instructions, descriptor and arguments: what hiprtc gives is an object."""
    with emulate_hip.cut_for_a_card():
        algorithm = next(each for each in emulate_hip.every() if each.name == "hip_depthwise")
        call = compile_hip.call_of(algorithm, emulate_hip.layer_of(algorithm).problem(False), "forward")
    made = by_clang(call.source, call.defines, "gfx1010")
    (tmp_path / "kernel.s").write_text(made.text, encoding="utf-8")
    words = ["-c", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1010", "-o", "kernel.co", "kernel.s"]
    subprocess.run(["clang-19", *words], check=True, timeout=60, cwd=tmp_path)
    text = as_assembly((tmp_path / "kernel.co").read_bytes(), "gfx1010")
    again, first = (emulate_hip.Program.parse(each) for each in (text, made.text))
    assert [each.name for each in again.instructions[: len(first.instructions)]] == [
        each.name for each in first.instructions
    ]
    assert again.arguments == first.arguments
    assert {name: first.descriptor[name] for name in again.descriptor} == again.descriptor
    assert read_needs(text)[1:] == made[1:]


def table(name: str) -> list[dict[str, str]]:
    with (PROJECT / "docs" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_every_kernel_of_today_and_none_spills_on_rdna():
    """A kernel that changes is to be compiled again: `python tools/compile_hip.py > docs/compiled_hip.csv`."""
    rows = table("compiled_hip.csv")
    names = ("algorithm", "kernel", "pass", "activation", "dtype", "layout")
    today = [
        tuple(row[name] for name in names)
        for row in compile_hip.rows("gfx1010", lambda *given: read_needs(""), "made up")
    ]
    for target in compile_hip.TARGETS:
        for compiler in ("clang", *(("hiprtc",) if target in ("gfx1010", "gfx1030") else ())):
            own = [row for row in rows if row["target"] == target and row["compiler"].startswith(compiler)]
            assert [tuple(row[name] for name in names) for row in own] == today
    for row in rows:
        assert row["forbidden"] == "", row
        assert (row["vgpr_spills"], row["private_bytes"]) == ("0", "0"), row
        assert bool(row["waves"]) == row["target"].startswith("gfx1"), row
        if row["waves"]:
            assert row["sgpr_spills"] == "0", row


def test_what_was_executed_is_within_its_bound_and_multiplies_most_of_the_time():
    rows = table("executed_hip.csv")
    assert {(row["target"], row["compiler"].split()[0]) for row in rows} >= {("gfx1010", "clang")}
    for row in rows:
        assert float(row["relative_error"]) <= float(row["allowed_error"]), row
        if row["algorithm"] in ("hip_64x64", "hip_128x64"):
            assert float(row["fma_share"]) >= (0.7 if row["pass"] == "grad_weight" else 0.8), row
