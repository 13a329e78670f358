"""Vector instructions on integers, and those that move bits.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", sections "VOP1 Instructions", "VOP2
Instructions", "VOP3 and VOP3SD Instructions"; SDWA (gfx9, gfx10) from "CDNA3" Instruction Set Architecture (AMD, 2025),
section "SDWA"; VOPD from RDNA3.5, section "Dual Issue VALU".
"""

from __future__ import annotations

from typing import Final

from ..single import GCN, RDNA12, RDNA34
from .row import Row, f32

WITH_SDWA: Final = GCN + RDNA12

INTEGERS: Final = (
    Row("v_add_nc_u32_e64 v3, v1, v2 clamp", {"v1": 0xFFFFFFFF, "v2": 2}, {"v3": 0xFFFFFFFF}),
    Row("v_sub_nc_u32_e64 v3, v1, v2 clamp", {"v1": 1, "v2": 2}, {"v3": 0}),
    Row("v_sub_nc_i32 v3, v1, v2", {"v1": 0x80000000, "v2": 2}, {"v3": 0x7FFFFFFE}),
    Row("v_add_nc_i32 v3, v1, v2 clamp", {"v1": 0x7FFFFFFF, "v2": 2}, {"v3": 0x7FFFFFFF}),
    Row("v_sub_nc_i32 v3, v1, v2 clamp", {"v1": 0x80000000, "v2": 2}, {"v3": 0x80000000}),
    Row("v_mul_hi_u32_u24_e32 v3, v1, v2", {"v1": 0xFFFFFF, "v2": 0xFFFFFF}, {"v3": 0xFFFF}),
    Row("v_add_lshl_u32 v3, v1, v2, v4", {"v1": 3, "v2": 4, "v4": 33}, {"v3": 14}),
    Row("v_max3_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 8}),
    Row("v_med3_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 7}),
    Row("v_subrev_co_u32 v3, {mask}, v1, v2", {"v1": [1, 5], "v2": [0, 5], "exec": 3},
        {"v3": [0xFFFFFFFF, 0], "s30": 1}),
    Row("v_add_nc_u16 v3, v1, v2", {"v1": 0x1FFFF, "v2": 0x30003}, {"v3.l": 2}),
    Row("v_lshrrev_b16 v3, v1, v2", {"v1": 4, "v2": 0xFFFF8010}, {"v3.l": 0x801}),
    Row("v_ashrrev_i16 v3, v1, v2", {"v1": 4, "v2": 0x8010}, {"v3.l": 0xF801}),
)  # fmt: skip

BITS: Final = (
    Row("v_pack_b32_f16 v3, v1, v2", {"v1": 0x11113C00, "v2": 0x22224000}, {"v3": 0x40003C00}),
    Row("v_pack_b32_f16 v3, v1, v2 op_sel:[1,0,0]", {"v1": 0x3C001111, "v2": 0x22224000}, {"v3": 0x40003C00}),
    Row("v_cvt_pk_u16_u32 v3, v1, v2", {"v1": 70000, "v2": 5}, {"v3": 0x5FFFF}),
    Row("v_cvt_pk_i16_i32 v3, v1, v2", {"v1": 0xFFFF63C0, "v2": 40000}, {"v3": 0x7FFF8000}),
)  # fmt: skip

# Between lanes, and lanes that are switched off.
LANES: Final = (
    Row("v_cndmask_b32_e64 v3, -v1, |v2|, {vcc}", {"v1": f32(1.0), "v2": f32(-2.0), "vcc": 2},
        {"v3": [f32(-1.0), f32(2.0)]}),
    Row("v_accvgpr_write_b32 a5, v1\nv_accvgpr_read_b32 v3, a5", {"v1": [4, 5, 6]}, {"v3": [4, 5, 6]}, on=GCN),
    Row("v_writelane_b32 v3, s20, 2", {"v3": 1, "s20": 77, "exec": 1}, {"v3": [1, 1, 77, 1]}),
    Row("v_mov_b32_dpp v3, v1 row_shr:2 row_mask:0xf bank_mask:0xf", {"v1": list(range(64)), "v3": 99},
        {"v3": [99, 99, *range(14), 99, 99, *range(16, 30)]}),
    Row("v_mov_b32_dpp v3, v1 row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:1", {"v1": list(range(64)), "v3": 99},
        {"v3": [0, 0, *range(14), 0, 0, *range(16, 30)]}),
    Row("v_mov_b32_dpp v3, v1 quad_perm:[3,2,2,0] row_mask:0x2 bank_mask:0x5", {"v1": list(range(64)), "v3": 99},
        {"v3": [99] * 16 + [19, 18, 18, 16, 99, 99, 99, 99, 27, 26, 26, 24, 99, 99, 99, 99]}),
    Row("v_add_f32_dpp v3, v1, v2 row_ror:1 row_mask:0xf bank_mask:0xf",
        {"v1": [f32(float(lane)) for lane in range(64)], "v2": f32(0.5), "v3": 0},
        {"v3": [f32(15.5), *(f32(lane + 0.5) for lane in range(15))]}),
)  # fmt: skip

SDWA: Final = (
    Row("v_cvt_f32_f16_sdwa v3, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", {"v1": 0x3C004000},
        {"v3": f32(1.0)}, on=WITH_SDWA),
    Row("v_mul_u32_u24_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:BYTE_1",
        {"v1": 0xFF000000, "v2": 0x0200}, {"v3": 0x1FE}, on=WITH_SDWA),
    Row("v_mul_i32_i24_sdwa v3, sext(v1), sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_0",
        {"v1": 0xFF000000, "v2": 0x8000}, {"v3": 0x8000}, on=WITH_SDWA),
    Row("v_cndmask_b32_sdwa v3, v1, v2, {vcc} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
        {"v1": 0x12345678, "v2": 9, "vcc": 2}, {"v3": [0x1234, 9]}, on=WITH_SDWA),
    Row("v_and_b32_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
        {"v1": 0xFFF05678, "v2": 0xFFFFFFFF}, {"v3": 0xFFF0}, on=WITH_SDWA),
    Row("v_add_u16_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
        {"v1": 0x0500, "v2": 0xFFFF0000}, {"v3.l": 4}, on=GCN),
    Row("v_sub_u16_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3",
        {"v1": 0x0500, "v2": 0x01000000}, {"v3.l": 0x4FF}, on=GCN),
    Row("v_mul_lo_u16_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD",
        {"v1": 0x1203, "v2": 0x5556}, {"v3.l": 2}, on=GCN),
    Row("v_or_b32_sdwa v3, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD",
        {"v1": 1, "v2": 6, "v3": 0xAAAABBBB}, {"v3": 0x0007BBBB}, on=WITH_SDWA),
    Row("v_or_b32_sdwa v3, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
        {"v1": 1, "v2": 6, "v3": 0xAAAABBBB}, {"v3": 0x0700}, on=WITH_SDWA),
)  # fmt: skip

# Both halves read before either writes.
VOPD: Final = (
    Row("v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1", {"v1": 5, "v2": 6}, {"v1": 6, "v2": 5}, on=RDNA34),
    Row("v_dual_fmac_f32 v1, v4, v2 :: v_dual_add_f32 v2, v3, v1",
        {"v1": f32(1.0), "v2": f32(2.0), "v3": f32(3.0), "v4": f32(4.0)}, {"v1": f32(9.0), "v2": f32(4.0)}, on=RDNA34),
    Row("v_dual_cndmask_b32 v1, v2, v4 :: v_dual_lshlrev_b32 v6, 3, v5", {"v2": 7, "v4": 8, "v5": 2, "vcc": 2},
        {"v1": [7, 8, 7], "v6": 16}, on=RDNA34),
)  # fmt: skip

ROWS: Final = (*INTEGERS, *BITS, *LANES, *SDWA, *VOPD)
