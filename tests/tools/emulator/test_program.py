"""Assembly as LLVM prints it."""

from __future__ import annotations

import pytest

from tools.emulator import Program, UnknownInstruction
from tools.emulator.program import Argument, instruction

from ...tables import each_row
from .assembled import text

pytestmark = pytest.mark.once


@each_row(("line", "name", "operands", "modifiers"), [
    ("v_fma_f32 v0, -v1, |v2|, -|v3|", "v_fma_f32", ("v0", "-v1", "|v2|", "-|v3|"), {}),
    ("v_mad_u64_u32 v[0:1], null, v2, s3, v[4:5]", "v_mad_u64_u32", ("v[0:1]", "null", "v2", "s3", "v[4:5]"), {}),
    ("global_load_dword v0, v[1:2], off offset:-16 glc slc", "global_load_dword", ("v0", "v[1:2]", "off"),
     {"offset": "-16", "glc": "", "slc": ""}),
    ("ds_read2_b32 v[0:1], v2 offset0:1 offset1:3", "ds_read2_b32", ("v[0:1]", "v2"), {"offset0": "1", "offset1": "3"}),
    ("s_waitcnt vmcnt(0) lgkmcnt(1)", "s_waitcnt", ("vmcnt(0)", "lgkmcnt(1)"), {}),
    ("v_pk_fma_f16 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0]", "v_pk_fma_f16",
     ("v0", "v1", "v2", "v3"), {"op_sel": "[1,0,0]", "op_sel_hi": "[0,1,1]", "neg_lo": "[1,0,0]"}),
    ("v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1", "v_mov_b32", ("v0", "v1"),
     {"quad_perm": "[1,0,3,2]", "row_mask": "0xf", "bank_mask": "0xf", "bound_ctrl": "1"}),
    ("ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)", "ds_swizzle_b32", ("v0", "v1"), {"offset": "swizzle(SWAP,16)"}),
    ("v_mfma_f32_16x16x4_f32 a[0:3], v1, v2, a[0:3]", "v_mfma_f32_16x16x4_f32", ("a[0:3]", "v1", "v2", "a[0:3]"), {}),
    ("global_store_b32 v0, v1, s[2:3] offset:4 th:TH_STORE_NT scope:SCOPE_SYS", "global_store_b32",
     ("v0", "v1", "s[2:3]"), {"offset": "4", "th": "TH_STORE_NT", "scope": "SCOPE_SYS"}),
    ("v_cvt_f32_f16_sdwa v0, sext(v1) dst_sel:DWORD src0_sel:WORD_1", "v_cvt_f32_f16", ("v0", "sext(v1)"),
     {"dst_sel": "DWORD", "src0_sel": "WORD_1"}),
    ("buffer_load_dword v0, off, s[0:3], 0 offset:8", "buffer_load_dword", ("v0", "off", "s[0:3]", "0"),
     {"offset": "8"}),
])  # fmt: skip
def test_lines(line, name, operands, modifiers):
    read = instruction(line)
    assert (read.name, read.operands, read.modifiers) == (name, operands, modifiers)


def test_pairs():
    read = instruction("v_dual_mov_b32 v0, 1 :: v_dual_fmac_f32 v3, v4, v5", 17)
    assert [(half.name, half.operands, half.line) for half in read.pair] == [
        ("v_mov_b32", ("v0", "1"), 17), ("v_fmac_f32", ("v3", "v4", "v5"), 17),
    ]  # fmt: skip


def test_a_kernel():
    program = Program.parse(text("v_nop ; a comment\nhere:\n// another\n\ts_branch here\nthere:", 2, "gfx1201"))
    assert (program.name, program.target, program.generation, program.wave_size) == ("k", "gfx1201", 12, 32)
    assert [each.name for each in program.instructions[-3:]] == ["v_nop", "s_branch", "s_endpgm"]
    count = len(program.instructions)
    assert program.labels == {"here": count - 2, "there": count - 1}
    assert program.arguments == (Argument(0, 8, "global_buffer"), Argument(8, 8, "global_buffer"))
    assert program.descriptor["kernarg_size"] == 16
    lines = text("v_nop", 0, "gfx1201").splitlines()
    instruction_ = Program.parse("\n".join(lines)).instructions[-2]
    assert lines[instruction_.line - 1].strip() == instruction_.text == "v_nop"


LOADS = "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_branch .L0"


def preloading(before: str, length: int = 2) -> Program:
    kernel = text("s_nop 7", target="gfx942", user_sgpr_kernarg_preload_length=length, user_sgpr_count=4)
    return Program.parse(kernel.replace("k:\n", f"k:\n{before}\n.p2align 8\n.L0:\n"))


def test_the_entry_for_preloaded_arguments():
    program = preloading(LOADS)
    assert (program.preloaded_entry, program.labels[".L0"]) == (3, 3)
    assert preloading(LOADS, 0).preloaded_entry is None
    assert Program.parse(text("s_nop 7", target="gfx942")).preloaded_entry is None


@each_row("before", ["", "v_nop", "\n".join([LOADS] * 11)])
def test_an_entry_that_may_not_be_after_256_bytes(before):
    with pytest.raises(UnknownInstruction, match="no entry for them after 256 bytes"):
        preloading(before)


def test_a_line_that_cannot_be_read_is_named():
    with pytest.raises(UnknownInstruction, match="frobnicate"):
        Program.parse(text("v_add_f32 v0, v1, v2 frobnicate"))
