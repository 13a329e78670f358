"""Vector instructions on integers, and those that move bits.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", sections "VOP1 Instructions", "VOP2
Instructions", "VOP3 and VOP3SD Instructions"; SDWA (gfx9, gfx10) from "CDNA3" Instruction Set Architecture (AMD, 2025),
section "SDWA"; VOPD from RDNA3.5, section "Dual Issue VALU".
"""

from __future__ import annotations

from typing import Final

from ..single import GCN, RDNA, RDNA12, RDNA34
from .row import Row, f32

WITH_SDWA: Final = GCN + RDNA12

INTEGERS: Final = (
    Row("v_add_nc_u32_e32 v3, v1, v2", {"v1": 0xFFFFFFFF, "v2": 2}, {"v3": 1}),
    Row("v_subrev_nc_u32_e32 v3, v1, v2", {"v1": 3, "v2": 5}, {"v3": 2}),
    Row("v_add_nc_u32_e64 v3, v1, v2 clamp", {"v1": 0xFFFFFFFF, "v2": 2}, {"v3": 0xFFFFFFFF}),
    Row("v_sub_nc_u32_e64 v3, v1, v2 clamp", {"v1": 1, "v2": 2}, {"v3": 0}),
    Row("v_add_nc_i32 v3, v1, v2", {"v1": 0x7FFFFFFF, "v2": 2}, {"v3": 0x80000001}),
    Row("v_sub_nc_i32 v3, v1, v2", {"v1": 0x80000000, "v2": 2}, {"v3": 0x7FFFFFFE}),
    Row("v_add_nc_i32 v3, v1, v2 clamp", {"v1": 0x7FFFFFFF, "v2": 2}, {"v3": 0x7FFFFFFF}),
    Row("v_sub_nc_i32 v3, v1, v2 clamp", {"v1": 0x80000000, "v2": 2}, {"v3": 0x80000000}),
    # lane by lane: a carry out, none, and one that only the carry in makes
    Row("v_add_co_u32 v3, {vcc}, v1, v2", {"v1": [0xFFFFFFFF, 1, 0xFFFFFFFF, 0], "v2": [1, 1, 0, 0], "exec": 0xF},
        {"v3": [0, 2, 0xFFFFFFFF, 0], "vcc_lo": 1}),
    Row("v_add_co_ci_u32_e32 v3, {vcc}, v1, v2, {vcc}",
        {"v1": [0xFFFFFFFF, 1, 0xFFFFFFFF, 0], "v2": [1, 1, 0, 0], "vcc": 0b0110, "exec": 0xF},
        {"v3": [0, 3, 0, 0], "vcc_lo": 0b0101}),
    Row("v_sub_co_u32 v3, {mask}, v1, v2", {"v1": [0, 5], "v2": [1, 5], "exec": 3}, {"v3": [0xFFFFFFFF, 0], "s30": 1}),
    Row("v_sub_co_ci_u32_e32 v3, {vcc}, v1, v2, {vcc}", {"v1": [5, 5], "v2": [5, 5], "vcc": 2, "exec": 3},
        {"v3": [0, 0xFFFFFFFF], "vcc_lo": 2}),
    Row("v_subrev_co_ci_u32_e32 v3, {vcc}, v1, v2, {vcc}", {"v1": [1, 5], "v2": [5, 5], "vcc": 3, "exec": 3},
        {"v3": [3, 0xFFFFFFFF], "vcc_lo": 2}),
    Row("v_mul_lo_u32 v3, v1, v2", {"v1": 0x10001, "v2": 0x10001}, {"v3": 0x20001}),
    Row("v_mul_hi_u32 v3, v1, v2", {"v1": 0xFFFFFFFF, "v2": 0xFFFFFFFF}, {"v3": 0xFFFFFFFE}),
    Row("v_mul_hi_i32 v3, v1, v2", {"v1": 0xFFFFFFFF, "v2": 0xFFFFFFFF}, {"v3": 0}),
    # 24 bits count, the upper eight do not
    Row("v_mul_u32_u24_e32 v3, v1, v2", {"v1": 0xFF000003, "v2": 0x01000005}, {"v3": 15}),
    Row("v_mul_i32_i24_e32 v3, v1, v2", {"v1": 0x00800000, "v2": 1}, {"v3": 0xFF800000}),
    Row("v_mul_hi_u32_u24_e32 v3, v1, v2", {"v1": 0xFFFFFF, "v2": 0xFFFFFF}, {"v3": 0xFFFF}),
    Row("v_mad_u32_u24 v3, v1, v2, v4", {"v1": 0xFF000003, "v2": 5, "v4": 0xFFFFFFFF}, {"v3": 14}),
    Row("v_mad_i32_i24 v3, v1, v2, v4", {"v1": 0x00FFFFFF, "v2": 5, "v4": 7}, {"v3": 2}),
    Row("v_mad_u64_u32 v[4:5], {mask}, v1, v2, v[6:7]",
        {"v1": 0xFFFFFFFF, "v2": 0xFFFFFFFF, "v[6:7]": 2**64 - 1, "exec": 1},
        {"v[4:5]": [0xFFFFFFFE00000000], "s30": 1}),
    Row("v_mad_i64_i32 v[4:5], {mask}, v1, v2, v[6:7]", {"v1": 0xFFFFFFFF, "v2": 2, "v[6:7]": 5}, {"v[4:5]": 3}),
    # the carry is the sign of the sum with one bit more
    Row("v_mad_i64_i32 v[4:5], {mask}, v1, v2, v[6:7]",
        {"v1": [1, 0xFFFFFFFF, 2, 0xFFFFFFFF], "v2": [0xFFFFFFFF, 1, 3, 1], "v6": [0, 5, 0, 0],
         "v7": [0, 0, 0x80000000, 0x80000000], "exec": 15}, {"s30": 0b1101}),
    Row("v_add3_u32 v3, v1, v2, v4", {"v1": 0xFFFFFFFF, "v2": 2, "v4": 3}, {"v3": 4}),
    Row("v_lshl_add_u32 v3, v1, v2, v4", {"v1": 3, "v2": 34, "v4": 5}, {"v3": 17}),
    Row("v_add_lshl_u32 v3, v1, v2, v4", {"v1": 3, "v2": 4, "v4": 33}, {"v3": 14}),
    Row("v_lshl_or_b32 v3, v1, v2, v4", {"v1": 3, "v2": 4, "v4": 1}, {"v3": 0x31}),
    Row("v_and_or_b32 v3, v1, v2, v4", {"v1": 0xFF, "v2": 0xF0, "v4": 3}, {"v3": 0xF3}),
    Row("v_or3_b32 v3, v1, v2, v4", {"v1": 1, "v2": 2, "v4": 4}, {"v3": 7}),
    Row("v_xad_u32 v3, v1, v2, v4", {"v1": 6, "v2": 3, "v4": 10}, {"v3": 15}),
    Row("v_xor3_b32 v3, v1, v2, v4", {"v1": 7, "v2": 2, "v4": 4}, {"v3": 1}, on=RDNA),
    Row("v_lshl_add_u64 v[4:5], v[6:7], 3, v[8:9]", {"v[6:7]": 1 << 31, "v[8:9]": 5}, {"v[4:5]": (1 << 34) + 5},
        on=("gfx942",)),
    Row("v_min3_u32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 7}),
    Row("v_max3_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 8}),
    Row("v_med3_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 7}),
    Row("v_sad_u8 v3, v1, v2, v4", {"v1": 0x01FF8000, "v2": 0x0300807F, "v4": 1000}, {"v3": 1384}),
    Row("v_sad_u32 v3, v1, v2, v4", {"v1": 3, "v2": 0xFFFFFFFF, "v4": 5}, {"v3": 1}),
    Row("v_subrev_co_u32 v3, {mask}, v1, v2", {"v1": [1, 5], "v2": [0, 5], "exec": 3},
        {"v3": [0xFFFFFFFF, 0], "s30": 1}),
    Row("v_add_nc_u16 v3, v1, v2", {"v1": 0x1FFFF, "v2": 0x30003}, {"v3.l": 2}),
    Row("v_lshrrev_b16 v3, v1, v2", {"v1": 4, "v2": 0xFFFF8010}, {"v3.l": 0x801}),
    Row("v_ashrrev_i16 v3, v1, v2", {"v1": 4, "v2": 0x8010}, {"v3.l": 0xF801}),
    Row("v_mul_lo_u16 v3, v1, v2", {"v1": 0x10101, "v2": 0x10101}, {"v3.l": 0x201}),
)  # fmt: skip

BITS: Final = (
    Row("v_lshlrev_b32_e32 v3, v1, v2", {"v1": 33, "v2": 3}, {"v3": 6}),
    Row("v_ashrrev_i32_e32 v3, v1, v2", {"v1": 31, "v2": 0x80000000}, {"v3": 0xFFFFFFFF}),
    Row("v_lshlrev_b64 v[4:5], v1, v[2:3]", {"v1": 65, "v[2:3]": 1}, {"v[4:5]": 2}),
    Row("v_lshrrev_b64 v[4:5], v1, v[2:3]", {"v1": 33, "v[2:3]": 6 << 32}, {"v[4:5]": 3}),
    Row("v_ashrrev_i64 v[4:5], v1, v[2:3]", {"v1": 63, "v[2:3]": 1 << 63}, {"v[4:5]": 2**64 - 1}),
    Row("v_not_b32_e32 v3, v1", {"v1": 0x0F0F0F0F}, {"v3": 0xF0F0F0F0}),
    Row("v_bfrev_b32_e32 v3, v1", {"v1": 0x00000005}, {"v3": 0xA0000000}),
    Row("v_clz_i32_u32_e32 v3, v1", {"v1": [0, 1, 0x80000000, 0xFFFF]}, {"v3": [0xFFFFFFFF, 31, 0, 16]}),
    Row("v_ctz_i32_b32_e32 v3, v1", {"v1": [0, 1, 0x80000000, 0x50]}, {"v3": [0xFFFFFFFF, 0, 31, 4]}),
    Row("v_cls_i32_e32 v3, v1", {"v1": [0, 0xFFFFFFFF, 0xFFFF0000, 1]}, {"v3": [0xFFFFFFFF, 0xFFFFFFFF, 16, 31]}),
    Row("v_bcnt_u32_b32 v3, v1, v2", {"v1": 0xF0F0, "v2": 3}, {"v3": 11}),
    Row("v_bfe_u32 v3, v1, v2, v4", {"v1": 0xABCD1234, "v2": 36, "v4": 8}, {"v3": 0x23}),
    Row("v_bfe_i32 v3, v1, v2, v4", {"v1": 0x00000F00, "v2": 8, "v4": [4, 5, 0, 32]},
        {"v3": [0xFFFFFFFF, 15, 0, 0]}),
    Row("v_bfi_b32 v3, v1, v2, v4", {"v1": 0xFFFF0000, "v2": 0x12345678, "v4": 0x9ABCDEF0}, {"v3": 0x1234DEF0}),
    Row("v_alignbit_b32 v3, v1, v2, v4", {"v1": 0x12345678, "v2": 0x9ABCDEF0, "v4": [8, 40, 0]},
        {"v3": [0x789ABCDE, 0x789ABCDE, 0x9ABCDEF0]}),
    Row("v_alignbyte_b32 v3, v1, v2, v4", {"v1": 0x12345678, "v2": 0x9ABCDEF0, "v4": [3, 5]},
        {"v3": [0x3456789A, 0x789ABCDE]}),
    # 0-3: bytes of the second source; 4-7: of the first; 8-11: signs of every second byte; 12: 0; more: 0xff
    Row("v_perm_b32 v3, v1, v2, v4", {"v1": 0x8899AABB, "v2": 0x00112233, "v4": [0x0C0D0704, 0x0B0A0908, 0x03020100]},
        {"v3": [0x00FF88BB, 0xFFFF0000, 0x00112233]}),
    Row("v_pack_b32_f16 v3, v1, v2", {"v1": 0x11113C00, "v2": 0x22224000}, {"v3": 0x40003C00}),
    Row("v_pack_b32_f16 v3, v1, v2 op_sel:[1,0,0]", {"v1": 0x3C001111, "v2": 0x22224000}, {"v3": 0x40003C00}),
    Row("v_cvt_pk_u16_u32 v3, v1, v2", {"v1": 70000, "v2": 5}, {"v3": 0x5FFFF}),
    Row("v_cvt_pk_i16_i32 v3, v1, v2", {"v1": 0xFFFF63C0, "v2": 40000}, {"v3": 0x7FFF8000}),
)  # fmt: skip

# Between lanes, and lanes that are switched off.
LANES: Final = (
    Row("v_mov_b32_e32 v3, v1", {"v1": 5, "v3": 9, "exec": 0b101}, {"v3": [5, 9, 5, 9]}),
    Row("v_cndmask_b32_e32 v3, v1, v2, {vcc}", {"v1": 5, "v2": 6, "vcc": 0b0110}, {"v3": [5, 6, 6, 5]}),
    Row("v_cndmask_b32_e64 v3, -v1, |v2|, {vcc}", {"v1": f32(1.0), "v2": f32(-2.0), "vcc": 2},
        {"v3": [f32(-1.0), f32(2.0)]}),
    Row("v_accvgpr_write_b32 a5, v1\nv_accvgpr_read_b32 v3, a5", {"v1": [4, 5, 6]}, {"v3": [4, 5, 6]}, on=GCN),
    Row("v_readfirstlane_b32 s22, v1", {"v1": [10, 11, 12, 13], "exec": 0b1100}, {"s22": 12}),
    Row("v_readfirstlane_b32 s22, v1", {"v1": [10, 11, 12, 13], "exec": 0}, {"s22": 10}),
    Row("v_readlane_b32 s22, v1, s20", {"v1": [10, 11, 12, 13], "s20": 3, "exec": 1}, {"s22": 13}),
    Row("v_writelane_b32 v3, s20, 2", {"v3": 1, "s20": 77, "exec": 1}, {"v3": [1, 1, 77, 1]}),
    Row("v_mbcnt_lo_u32_b32 v3, 0xd, v1", {"v1": 100}, {"v3": [100, 101, 101, 102, 103, 103]}),
    Row("v_mov_b32_dpp v3, v1 row_shr:2 row_mask:0xf bank_mask:0xf", {"v1": list(range(64)), "v3": 99},
        {"v3": [99, 99, *range(14), 99, 99, *range(16, 30)]}),
    Row("v_mov_b32_dpp v3, v1 row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:1", {"v1": list(range(64)), "v3": 99},
        {"v3": [0, 0, *range(14), 0, 0, *range(16, 30)]}),
    Row("v_mov_b32_dpp v3, v1 quad_perm:[3,2,2,0] row_mask:0x2 bank_mask:0x5", {"v1": list(range(64)), "v3": 99},
        {"v3": [99] * 16 + [19, 18, 18, 16, 99, 99, 99, 99, 27, 26, 26, 24, 99, 99, 99, 99]}),
    Row("v_add_f32_dpp v3, v1, v2 row_ror:1 row_mask:0xf bank_mask:0xf",
        {"v1": [f32(float(lane)) for lane in range(64)], "v2": f32(0.5), "v3": 0},
        {"v3": [f32(15.5), *(f32(lane + 0.5) for lane in range(15))]}),
    Row("v_permlanex16_b32 v3, v1, s20, s21", {"v1": list(range(64)), "v3": 0, "s20": 0x76543210, "s21": 0xFEDCBA98},
        {"v3": [*range(16, 32), *range(16)]}, on=RDNA),
    Row("v_permlane16_b32 v3, v1, s20, s21", {"v1": list(range(64)), "v3": 0, "s20": 0, "s21": 0xFFFFFFFF},
        {"v3": [0] * 8 + [15] * 8 + [16] * 8 + [31] * 8}, on=RDNA),
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
