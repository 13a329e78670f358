"""Scalar instructions.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", sections "SOP2 Instructions", "SOPK
Instructions", "SOP1 Instructions" and "SOPC Instructions"; what gfx12 has alone is from the same sections of "RDNA4"
Instruction Set Architecture (AMD, 2025). CDNA3 says the same of what it has.
"""

from __future__ import annotations

from typing import Final

from ..single import EVERY, GCN, RDNA34
from .row import QUIET, Row, f32

UP_TO_11: Final = tuple(target for target in EVERY if target != "gfx1201")
GFX12: Final = ("gfx1201",)

SOP2: Final = (
    Row("s_sub_u32 s22, s20, s21", {"s20": 0, "s21": 1}, {"s22": 0xFFFFFFFF, "scc": 1}),
    Row("s_subb_u32 s22, s20, s21", {"s20": 5, "s21": 4, "scc": 1}, {"s22": 0, "scc": 0}),
    Row("s_ashr_i64 s[24:25], s[20:21], 40", {"s[20:21]": 1 << 63}, {"s[24:25]": 0xFFFFFFFFFF800000, "scc": 1}),
    Row("s_bfm_b32 s22, s20, s21", {"s20": 5, "s21": 3}, {"s22": 0xF8}),
    Row("s_mul_hi_i32 s22, s20, s21", {"s20": 0xFFFFFFFF, "s21": 2}, {"s22": 0xFFFFFFFF}),
    Row("s_min_u32 s22, s20, s21", {"s20": 0xFFFFFFFF, "s21": 1}, {"s22": 1, "scc": 0}),
    Row("s_max_u32 s22, s20, s21", {"s20": 0xFFFFFFFF, "s21": 1}, {"s22": 0xFFFFFFFF, "scc": 1}),
    Row("s_lshl2_add_u32 s22, s20, s21", {"s20": 0xFFFFFFFF, "s21": 4}, {"s22": 0, "scc": 1}),
    Row("s_pack_ll_b32_b16 s22, s20, s21", {"s20": 0x11112222, "s21": 0x33334444}, {"s22": 0x44442222}),
    Row("s_pack_lh_b32_b16 s22, s20, s21", {"s20": 0x11112222, "s21": 0x33334444}, {"s22": 0x33332222}),
    Row("s_pack_hh_b32_b16 s22, s20, s21", {"s20": 0x11112222, "s21": 0x33334444}, {"s22": 0x33331111}),
    Row("s_absdiff_i32 s22, s20, s21", {"s20": 2, "s21": 7}, {"s22": 5, "scc": 1}),
    Row("s_sub_nc_u64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 0, "s[22:23]": 1}, {"s[24:25]": 2**64 - 1}, on=GFX12),
)  # fmt: skip

SOPK: Final = (
    Row("s_addk_i32 s22, 0xffff", {"s22": 5}, {"s22": 4, "scc": 0}),
    # one constant is signed, the other is not
    Row("s_cmpk_lt_i32 s20, 0x8000", {"s20": 0xFFFF0000}, {"scc": 1}, on=UP_TO_11),
    Row("s_cmpk_lt_u32 s20, 0x8000", {"s20": 0x7FFF}, {"scc": 1}, on=UP_TO_11),
)

SOP1: Final = (
    Row("s_cls_i32 s22, s20", {"s20": 0xFFFF0000}, {"s22": 16}),
    Row("s_sext_i32_i8 s22, s20", {"s20": 0x180}, {"s22": 0xFFFFFF80}),
    Row("s_abs_i32 s22, s20", {"s20": 0x80000000}, {"s22": 0x80000000, "scc": 1}),
    Row("s_cmov_b32 s22, s20", {"s20": 5, "s22": 9, "scc": 0}, {"s22": 9}),
    Row("s_bitset1_b32 s22, s20", {"s20": 37, "s22": 0}, {"s22": 32}),
)

# What `exec` was goes to the destination; the source decides what becomes of it.
EXEC_32: Final = tuple(
    Row(f"s_{name}_saveexec_b32 s22, s20", {"s20": 0x0FF0, "exec": 0x00FF}, {"s22": 0xFF, "exec_lo": left, "scc": scc},
        on=tuple(target for target in EVERY if target not in GCN))
    for name, left, scc in (("and", 0xF0, 1), ("or", 0xFFF, 1), ("xor", 0xF0F, 1), ("and_not1", 0xF00, 1))
)  # fmt: skip
EXEC_64: Final = (
    Row("s_and_not1_saveexec_b64 s[22:23], s[20:21]",
        {"s[20:21]": 5 << 32, "exec": 5 << 32 | 3}, {"exec_lo": 0, "exec_hi": 0, "scc": 0}, on=GCN),
)  # fmt: skip

SOPC: Final = (
    Row("s_cmp_lt_i32 s20, s21", {"s20": 0xFFFFFFFF, "s21": 1}, {"scc": 1}),
    Row("s_cmp_ge_i32 s20, s21", {"s20": 0x80000000, "s21": 0}, {"scc": 0}),
    Row("s_cmp_gt_i32 s20, s21", {"s20": 1, "s21": 0xFFFFFFFF}, {"scc": 1}),
    Row("s_cmp_le_u32 s20, s21", {"s20": 1, "s21": 0xFFFFFFFF}, {"scc": 1}),
    Row("s_cmp_eq_u64 s[20:21], s[22:23]", {"s[20:21]": 1 << 32, "s[22:23]": 0}, {"scc": 0}),
    Row("s_bitcmp1_b32 s20, s21", {"s20": 0x10, "s21": 36}, {"scc": 1}),
    Row("s_bitcmp0_b32 s20, s21", {"s20": 0x10, "s21": 4}, {"scc": 0}),
)

# Floating point on the scalar unit came with gfx1150.
SCALAR_FLOAT: Final = (
    Row("s_add_f32 s22, s20, s21", {"s20": f32(1.0), "s21": f32(2**-24)}, {"s22": f32(1.0)}, on=RDNA34[1:]),
    Row("s_fmac_f32 s22, s20, s21", {"s20": f32(3.0), "s21": f32(5.0), "s22": f32(0.5)}, {"s22": f32(15.5)},
        on=RDNA34[1:]),
    Row("s_max_f32 s22, s20, s21", {"s20": f32(-1.0), "s21": QUIET}, {"s22": f32(-1.0)}, on=("gfx1151",)),
    Row("s_max_num_f32 s22, s20, s21", {"s20": f32(-1.0), "s21": QUIET}, {"s22": f32(-1.0)}, on=GFX12),
    Row("s_min_num_f32 s22, s20, s21", {"s20": f32(-1.0), "s21": f32(2.0)}, {"s22": f32(-1.0)}, on=GFX12),
    Row("s_cmp_gt_f32 s20, s21", {"s20": f32(-1.0), "s21": f32(-2.0)}, {"scc": 1}, on=RDNA34[1:]),
    Row("s_cmp_neq_f32 s20, 0", {"s20": 0x80000000}, {"scc": 0}, on=RDNA34[1:]),
    Row("s_cmp_lg_f32 s20, s20", {"s20": QUIET}, {"scc": 0}, on=RDNA34[1:]),
)  # fmt: skip

ROWS: Final = (*SOP2, *SOPK, *SOP1, *EXEC_32, *EXEC_64, *SOPC, *SCALAR_FLOAT)
