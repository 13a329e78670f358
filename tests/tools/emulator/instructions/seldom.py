"""What the emulator's tables have beyond what compilers have printed for our kernels and functions so far.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", sections "SOP1", "SOP2", "VOP1", "VOP2",
"VOP3 and VOP3SD" and "VOP3P Instructions"; V_MAD_F32 and V_MAC_F32 from "RDNA 1.0" Instruction Set Architecture (AMD,
2020).
"""

from __future__ import annotations

import math
from typing import Final

from ..single import GCN, RDNA, RDNA34
from .row import Row, f16, f32, f64

INF: Final = math.inf

SCALAR: Final = (
    Row("s_and_not1_b64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 7 << 32 | 1, "s[22:23]": 5 << 32 | 2},
        {"s[24:25]": 2 << 32 | 1, "scc": 1}),
    Row("s_ctz_i32_b64 s22, s[20:21]", {"s[20:21]": 1 << 40}, {"s22": 40}),
    Row("s_bitset0_b32 s22, s20", {"s20": 37, "s22": 0xFF}, {"s22": 0xDF}),
    Row("s_bcnt0_i32_b32 s22, s20", {"s20": 0xFFFFFFF0}, {"s22": 4, "scc": 1}),
    Row("s_bfe_u64 s[24:25], s[20:21], s22", {"s[20:21]": 0xABCD << 40, "s22": 8 << 16 | 44},
        {"s[24:25]": 0xBC, "scc": 1}),
    Row("s_bfe_i64 s[24:25], s[20:21], s22", {"s[20:21]": 0xF << 40, "s22": 4 << 16 | 40},
        {"s[24:25]": 2**64 - 1, "scc": 1}),
    Row("s_lshl1_add_u32 s22, s20, s21", {"s20": 0x80000000, "s21": 3}, {"s22": 3, "scc": 1}),
    Row("s_lshl3_add_u32 s22, s20, s21", {"s20": 2, "s21": 3}, {"s22": 19, "scc": 0}),
    Row("s_lshl4_add_u32 s22, s20, s21", {"s20": 2, "s21": 3}, {"s22": 35, "scc": 0}),
    Row("s_nor_b32 s22, s20, s21", {"s20": 0xFFFF0000, "s21": 0xFFFF}, {"s22": 0, "scc": 0}),
    Row("s_xnor_b32 s22, s20, s21", {"s20": 0xFF, "s21": 0x0F}, {"s22": 0xFFFFFF0F, "scc": 1}),
    Row("s_nand_b64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 2**64 - 1, "s[22:23]": 2**64 - 1},
        {"s[24:25]": 0, "scc": 0}),
    Row("s_nor_b64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 1 << 63, "s[22:23]": 1},
        {"s[24:25]": 0x7FFFFFFFFFFFFFFE, "scc": 1}),
    Row("s_xnor_b64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 1 << 63, "s[22:23]": 1},
        {"s[24:25]": 0x7FFFFFFFFFFFFFFE, "scc": 1}),
    Row("s_not_b64 s[24:25], s[20:21]", {"s[20:21]": 2**64 - 1}, {"s[24:25]": 0, "scc": 0}),
    Row("s_or_not1_b64 s[24:25], s[20:21], s[22:23]", {"s[20:21]": 1, "s[22:23]": 2**64 - 2},
        {"s[24:25]": 1, "scc": 1}),
)  # fmt: skip

INTEGERS: Final = (
    Row("v_xnor_b32_e32 v3, v1, v2", {"v1": 0xFF, "v2": 0x0F}, {"v3": 0xFFFFFF0F}),
    Row("v_bfm_b32 v3, v1, v2", {"v1": 5, "v2": 3}, {"v3": 0xF8}),
    Row("v_mul_hi_i32_i24_e32 v3, v1, v2", {"v1": 0x800000, "v2": 0x7FFFFF}, {"v3": 0xFFFFC000}),
    Row("v_max3_u32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 0xFFFFFFFF}),
    Row("v_min3_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 0xFFFFFFFF}),
    Row("v_med3_u32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 8}, {"v3": 8}),
    Row("v_maxmin_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 5}, {"v3": 5}, on=RDNA34),
    Row("v_maxmin_u32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 9}, {"v3": 9}, on=RDNA34),
    Row("v_minmax_i32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 5}, {"v3": 5}, on=RDNA34),
    Row("v_minmax_u32 v3, v1, v2, v4", {"v1": 7, "v2": 0xFFFFFFFF, "v4": 5}, {"v3": 7}, on=RDNA34),
    Row("v_accvgpr_write_b32 a5, v1\nv_accvgpr_mov_b32 a6, a5\nv_accvgpr_read_b32 v3, a6", {"v1": 7},
        {"v3": 7}, on=GCN),
    Row("v_lshlrev_b16 v3, v1, v2", {"v1": 4, "v2": 0xF801}, {"v3.l": 0x8010}),
    Row("v_max_u16 v3, v1, v2", {"v1": 0xFFFF, "v2": 1}, {"v3.l": 0xFFFF}),
    Row("v_min_u16 v3, v1, v2", {"v1": 0xFFFF, "v2": 1}, {"v3.l": 1}),
    Row("v_max_i16 v3, v1, v2", {"v1": 0xFFFF, "v2": 1}, {"v3.l": 1}),
    Row("v_min_i16 v3, v1, v2", {"v1": 0xFFFF, "v2": 1}, {"v3.l": 0xFFFF}),
    Row("v_add_nc_i16 v3, v1, v2", {"v1": 0x7FFF, "v2": 2}, {"v3.l": 0x8001}, on=RDNA),
    Row("v_sub_nc_i16 v3, v1, v2", {"v1": 1, "v2": 2}, {"v3.l": 0xFFFF}, on=RDNA),
    Row("v_subrev_u16_e32 v3, v1, v2", {"v1": 1, "v2": 3}, {"v3.l": 2}, on=GCN),
    Row("v_mad_u16 v3, v1, v2, v4", {"v1": 0x101, "v2": 0x101, "v4": 3}, {"v3.l": 0x204}),
    Row("v_mad_i16 v3, v1, v2, v4", {"v1": 0xFFFF, "v2": 3, "v4": 5}, {"v3.l": 2}),
    Row("v_mad_u32_u16 v3, v1, v2, v4", {"v1": 0xFFFF, "v2": 0xFFFF, "v4": 5}, {"v3": 0xFFFE0006}),
    Row("v_and_b16 v3, v1, v2", {"v1": 0xFF, "v2": 0x10F0}, {"v3.l": 0xF0}, on=RDNA34),
    Row("v_or_b16 v3, v1, v2", {"v1": 0xFF, "v2": 0x1000}, {"v3.l": 0x10FF}, on=RDNA34),
    Row("v_xor_b16 v3, v1, v2", {"v1": 0xFF, "v2": 0x10F0}, {"v3.l": 0x100F}, on=RDNA34),
    Row("v_cndmask_b16 v3, v1, v2, {vcc}", {"v1": 5, "v2": 6, "vcc": 2}, {"v3.l": [5, 6]}, on=RDNA34),
    Row("v_pk_add_i16 v3, v1, v2", {"v1": 0x7FFF0001, "v2": 0x00020003}, {"v3": 0x80010004}),
    Row("v_pk_add_i16 v3, v1, v2 clamp", {"v1": 0x7FFF0001, "v2": 0x00020003}, {"v3": 0x7FFF0004}),
    Row("v_pk_sub_u16 v3, v1, v2", {"v1": 0x00010005, "v2": 0x00020003}, {"v3": 0xFFFF0002}),
    Row("v_pk_mad_i16 v3, v1, v2, v4", {"v1": 0xFFFF0007, "v2": 0x00020003, "v4": 0x10001}, {"v3": 0xFFFF0016}),
    Row("v_pk_max_u16 v3, v1, v2", {"v1": 0xFFFF0001, "v2": 0x00020003}, {"v3": 0xFFFF0003}),
    Row("v_pk_min_u16 v3, v1, v2", {"v1": 0xFFFF0001, "v2": 0x00020003}, {"v3": 0x00020001}),
    Row("v_dot4c_i32_i8_e32 v3, v1, v2", {"v1": 0x010203FF, "v2": 0x050607FF, "v3": 1}, {"v3": 1 + 21 + 12 + 5 + 1},
        on=(*GCN, "gfx1030")),
    Row("v_dot2c_f32_f16_e32 v3, v1, v2", {"v1": f16(1.0, 2.0), "v2": f16(3.0, 4.0), "v3": f32(0.5)}, {"v3": f32(11.5)},
        on=(*GCN, "gfx1030")),
    Row("v_dot4_i32_i8 v3, v1, v2, v4", {"v1": 0x010203FF, "v2": 0x050607FF, "v4": 1}, {"v3": 1 + 21 + 12 + 5 + 1},
        on=(*GCN, "gfx1030")),
)  # fmt: skip

FLOATS: Final = (
    Row("v_min3_f32 v3, v1, v2, v4", {"v1": f32(1.0), "v2": f32(-5.0), "v4": f32(3.0)}, {"v3": f32(-5.0)}),
    Row("v_maxmin_f32 v3, v1, v2, v4", {"v1": f32(1.0), "v2": f32(5.0), "v4": f32(3.0)}, {"v3": f32(3.0)}, on=RDNA34),
    Row("v_mad_f32 v3, v1, v2, v4", {"v1": f32(3.0), "v2": f32(4.0), "v4": f32(0.5)},
        {"v3": f32(12.5)}, on=("gfx1010",)),
    Row("v_mac_f32_e32 v3, v1, v2", {"v1": f32(3.0), "v2": f32(4.0), "v3": f32(0.5)},
        {"v3": f32(12.5)}, on=("gfx1010",)),
    # "CDNA4" Instruction Set Architecture (AMD, 2025), VOP3: bf16, ties to even
    Row("v_cvt_pk_bf16_f32 v3, v1, v2", {"v1": 0x3F808000, "v2": 0x3F818000}, {"v3": 0x3F823F80}, on=("gfx950",)),
    Row("v_madak_f32 v3, v1, v2, 0x40a00000", {"v1": f32(3.0), "v2": f32(4.0)}, {"v3": f32(17.0)}, on=("gfx1010",)),
    Row("v_mul_legacy_f32_e64 v3, v1, v2", {"v1": 0, "v2": f32(INF)}, {"v3": 0}),
    # revolutions, not radians
    Row("v_sin_f32_e32 v3, v1", {"v1": [0, f32(0.25)]}, {"v3": [0, f32(1.0)]}),
    Row("v_cos_f32_e32 v3, v1", {"v1": [0, f32(0.5)]}, {"v3": [f32(1.0), f32(-1.0)]}),
    Row("v_ceil_f16_e32 v3, v1", {"v1": f16(2.25)}, {"v3.l": f16(3.0)}),
    Row("v_floor_f16_e32 v3, v1", {"v1": f16(-0.5)}, {"v3.l": f16(-1.0)}),
    Row("v_trunc_f16_e32 v3, v1", {"v1": f16(-2.75)}, {"v3.l": f16(-2.0)}),
    Row("v_rndne_f16_e32 v3, v1", {"v1": f16(2.5)}, {"v3.l": f16(2.0)}),
    Row("v_fract_f16_e32 v3, v1", {"v1": f16(-0.25)}, {"v3.l": f16(0.75)}),
    Row("v_rcp_f16_e32 v3, v1", {"v1": f16(4.0)}, {"v3.l": f16(0.25)}),
    Row("v_rsq_f16_e32 v3, v1", {"v1": f16(4.0)}, {"v3.l": f16(0.5)}),
    Row("v_sqrt_f16_e32 v3, v1", {"v1": f16(9.0)}, {"v3.l": f16(3.0)}),
    Row("v_exp_f16_e32 v3, v1", {"v1": f16(3.0)}, {"v3.l": f16(8.0)}),
    Row("v_log_f16_e32 v3, v1", {"v1": f16(8.0)}, {"v3.l": f16(3.0)}),
    Row("v_ldexp_f16_e32 v3, v1, v2", {"v1": f16(3.0), "v2": 0xFFFF}, {"v3.l": f16(1.5)}),
    Row("v_frexp_mant_f16_e32 v3, v1", {"v1": f16(6.0)}, {"v3.l": f16(0.75)}),
    Row("v_frexp_exp_i16_f16_e32 v3, v1", {"v1": f16(6.0)}, {"v3.l": 3}),
    Row("v_fmac_f16_e32 v3, v1, v2", {"v1": f16(3.0), "v2": f16(4.0), "v3": f16(0.5)}, {"v3.l": f16(12.5)}, on=RDNA),
    Row("v_fmaak_f16 v3, v1, v2, 0x4500", {"v1": f16(3.0), "v2": f16(4.0)}, {"v3.l": f16(17.0)}, on=RDNA),
    Row("v_fmamk_f16 v3, v1, 0x4500, v2", {"v1": f16(3.0), "v2": f16(4.0)}, {"v3.l": f16(19.0)}, on=RDNA),
    Row("v_subrev_f16_e32 v3, v1, v2", {"v1": f16(1.0), "v2": f16(3.0)}, {"v3.l": f16(2.0)}),
    Row("v_max_f16_e32 v3, v1, v2", {"v1": f16(1.0), "v2": f16(3.0)}, {"v3.l": f16(3.0)}),
    Row("v_min_f16_e32 v3, v1, v2", {"v1": f16(1.0), "v2": f16(3.0)}, {"v3.l": f16(1.0)}),
    Row("v_max3_f16 v3, v1, v2, v4", {"v1": f16(1.0), "v2": f16(3.0), "v4": f16(2.0)}, {"v3.l": f16(3.0)}),
    Row("v_min3_f16 v3, v1, v2, v4", {"v1": f16(1.0), "v2": f16(3.0), "v4": f16(2.0)}, {"v3.l": f16(1.0)}),
    Row("v_med3_f16 v3, v1, v2, v4", {"v1": f16(1.0), "v2": f16(3.0), "v4": f16(2.0)}, {"v3.l": f16(2.0)}),
    Row("v_maxmin_f16 v3, v1, v2, v4", {"v1": f16(1.0), "v2": f16(5.0), "v4": f16(2.0)}, {"v3.l": f16(2.0)}, on=RDNA34),
    Row("v_minmax_f16 v3, v1, v2, v4", {"v1": f16(1.0), "v2": f16(5.0), "v4": f16(2.0)}, {"v3.l": f16(2.0)}, on=RDNA34),
    # -0 is less than +0
    Row("v_pk_min_f16 v3, v1, v2", {"v1": 0x80000000, "v2": 0x00008000}, {"v3": 0x80008000}),
    Row("v_ceil_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(2.25)}, {"v[4:5]": f64(3.0)}),
    Row("v_trunc_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(-2.75)}, {"v[4:5]": f64(-2.0)}),
    Row("v_fract_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(-0.25)}, {"v[4:5]": f64(0.75)}),
    Row("v_frexp_mant_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(6.0)}, {"v[4:5]": f64(0.75)}),
    Row("v_frexp_exp_i32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(6.0)}, {"v3": 3}),
    Row("v_max_f64 v[6:7], v[2:3], v[4:5]", {"v[2:3]": f64(6.0), "v[4:5]": f64(-7.0)}, {"v[6:7]": f64(6.0)}),
    Row("v_min_f64 v[6:7], v[2:3], v[4:5]", {"v[2:3]": f64(6.0), "v[4:5]": f64(-7.0)}, {"v[6:7]": f64(-7.0)}),
    Row("v_rsq_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(4.0)}, {"v[4:5]": f64(0.5)}),
    Row("v_sqrt_f64_e32 v[4:5], v[2:3]", {"v[2:3]": f64(9.0)}, {"v[4:5]": f64(3.0)}),
    Row("v_cvt_u32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(4294967295.75)}, {"v3": 0xFFFFFFFF}),
)  # fmt: skip

ROWS: Final = (*SCALAR, *INTEGERS, *FLOATS)
