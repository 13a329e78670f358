"""Vector instructions on floating point, in one and two halves of a register, and conversions.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", sections "VOP1 Instructions", "VOP2
Instructions", "VOPC Instructions", "VOP3 and VOP3SD Instructions" and "VOP3P Instructions"; packed fp32 from section
"VOP3P Instructions" of "CDNA3" Instruction Set Architecture (AMD, 2025); names ending in NUM from "RDNA4"
Instruction Set Architecture (AMD, 2025). Modes: round to nearest even, denormals kept, IEEE and DX10_CLAMP on.
"""

from __future__ import annotations

import math
from typing import Final

from ..single import EVERY, GCN, RDNA34
from .row import NAN, QUIET, Row, f16, f32, f64

INF: Final = math.inf
TINY: Final = 2**-149  # the smallest denormal
NOT_GFX1010: Final = tuple(target for target in EVERY if target != "gfx1010")

ARITHMETIC: Final = (
    # ties to even: down, and up
    Row("v_add_f32_e32 v3, v1, v2", {"v1": [0x3F800000, 0x3F800001], "v2": f32(2**-24)},
        {"v3": [0x3F800000, 0x3F800002]}),
    Row("v_add_f32_e32 v3, v1, v2", {"v1": f32(INF), "v2": f32(-INF)}, {"v3": NAN}),
    Row("v_add_f32_e64 v3, -|v1|, v2", {"v1": f32(-3.0), "v2": f32(1.0)}, {"v3": f32(-2.0)}),
    Row("v_add_f32_e64 v3, v1, v2 clamp", {"v1": [f32(3.0), f32(-3.0), f32(0.25), QUIET], "v2": f32(0.5)},
        {"v3": [f32(1.0), 0, f32(0.75), 0]}),
    Row("v_add_f32_e64 v3, v1, v2 clamp", {"v1": f32(-0.25), "v2": f32(0.5)}, {"v3": f32(0.25)}),
    Row("v_sub_f32_e32 v3, v1, v2", {"v1": f32(1.0), "v2": f32(1.0)}, {"v3": 0}),
    Row("v_subrev_f32_e32 v3, v1, v2", {"v1": f32(1.0), "v2": f32(3.0)}, {"v3": f32(2.0)}),
    Row("v_mul_f32_e32 v3, v1, v2", {"v1": f32(2**-126), "v2": f32(0.5)}, {"v3": 0x00400000}),
    Row("v_mul_f32_e32 v3, v1, v2", {"v1": f32(TINY), "v2": [f32(0.5), f32(0.75), f32(1.5)]}, {"v3": [0, 1, 2]}),
    Row("v_mul_f32_e32 v3, v1, v2", {"v1": f32(3e38), "v2": f32(-2.0)}, {"v3": f32(-INF)}),
    # 1 + 2**-23 + 2**-24 - 2**-70: through fp64 it would be a tie, and go up
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": 0x39800001, "v2": 0x397FFFFE, "v4": 0x3F800001}, {"v3": 0x3F800001}),
    # 1 + 2**-24 + 2**-70: through fp64 it would be a tie, and go down
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": 0x39800001, "v2": 0xB97FFFFE, "v4": 0x3F800001}, {"v3": 0x3F800001}),
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": f32(INF), "v2": 0, "v4": QUIET}, {"v3": NAN}),
    Row("v_fma_f32 v3, v1, -v2, |v4|", {"v1": f32(2.0), "v2": f32(3.0), "v4": f32(-10.0)}, {"v3": f32(4.0)}),
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": f32(2**-75), "v2": f32(2**-75), "v4": f32(-3 * TINY)}, {"v3": 0x80000002}),
    Row("v_fmac_f32_e32 v3, v1, v2", {"v1": f32(3.0), "v2": f32(4.0), "v3": f32(0.5)}, {"v3": f32(12.5)}),
    Row("v_fmaak_f32 v3, v1, v2, 0x40a00000", {"v1": f32(3.0), "v2": f32(4.0)}, {"v3": f32(17.0)}, on=EVERY[1:]),
    Row("v_fmamk_f32 v3, v1, 0x40a00000, v2", {"v1": f32(3.0), "v2": f32(4.0)}, {"v3": f32(19.0)}, on=EVERY[1:]),
    Row("v_max3_f32 v3, v1, v2, v4", {"v1": f32(1.0), "v2": f32(5.0), "v4": f32(3.0)}, {"v3": f32(5.0)}),
    # a NaN is no number, and -0 is less than +0
    Row("v_min_f32_e32 v3, v1, v2", {"v1": [QUIET, f32(2.0), 0x80000000, 0], "v2": [f32(1.0), QUIET, 0, 0x80000000]},
        {"v3": [f32(1.0), f32(2.0), 0x80000000, 0x80000000]}),
    Row("v_max_f32_e32 v3, v1, v2", {"v1": [QUIET, f32(2.0), 0x80000000, 0], "v2": [f32(1.0), QUIET, 0, 0x80000000]},
        {"v3": [f32(1.0), f32(2.0), 0, 0]}),
    Row("v_med3_f32 v3, v1, v2, v4", {"v1": f32(1.0), "v2": [f32(2.0), QUIET], "v4": f32(3.0)},
        {"v3": [f32(2.0), f32(1.0)]}),
    Row("v_rcp_f32_e32 v3, v1", {"v1": [f32(2.0), 0x80000000, f32(-INF), f32(0.25)]},
        {"v3": [f32(0.5), f32(-INF), 0x80000000, f32(4.0)]}),
    Row("v_sqrt_f32_e32 v3, v1", {"v1": [f32(9.0), 0x80000000, f32(INF)]}, {"v3": [f32(3.0), 0x80000000, f32(INF)]}),
    Row("v_sqrt_f32_e32 v3, v1", {"v1": f32(-1.0)}, {"v3": NAN}),
    Row("v_rsq_f32_e32 v3, v1", {"v1": [f32(4.0), 0, f32(INF)]}, {"v3": [f32(0.5), f32(INF), 0]}),
    Row("v_exp_f32_e32 v3, v1", {"v1": [f32(3.0), 0, f32(-INF)]}, {"v3": [f32(8.0), f32(1.0), 0]}),
    Row("v_log_f32_e32 v3, v1", {"v1": [f32(8.0), f32(1.0), 0]}, {"v3": [f32(3.0), 0, f32(-INF)]}),
    Row("v_ldexp_f32 v3, v1, v2", {"v1": f32(1.5), "v2": [1, 0xFFFFFF6B, 0xFFFFFED4, 128]},
        {"v3": [f32(3.0), 2, 0, f32(INF)]}),
    Row("v_frexp_mant_f32_e32 v3, v1", {"v1": [f32(6.0), f32(-TINY)]}, {"v3": [f32(0.75), f32(-0.5)]}),
    Row("v_frexp_exp_i32_f32_e32 v3, v1", {"v1": [f32(6.0), f32(TINY), f32(INF)]}, {"v3": [3, 0xFFFFFF6C, 0]}),
    Row("v_fract_f32_e32 v3, v1", {"v1": [f32(2.75), f32(-0.25)]}, {"v3": [f32(0.75), f32(0.75)]}),
)  # fmt: skip

# The steps of an exact division. Scaling: num / den with den or the quotient too small.
DIVISION: Final = (
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": f32(3.0), "v2": f32(1.0), "exec": 1},
        {"v3": [f32(3.0)], "vcc_lo": 0}),
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": f32(2**-130), "v2": f32(1.0), "exec": 1},
        {"v3": [f32(2**-66)], "vcc_lo": 1}),
    Row("v_div_scale_f32 v3, {vcc}, v2, v1, v2", {"v1": f32(2**-130), "v2": f32(1.0), "exec": 1},
        {"v3": [f32(1.0)], "vcc_lo": 1}),
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": f32(2**-130), "v2": f32(2**-100), "exec": 1},
        {"v3": [f32(2**-66)], "vcc_lo": 0}),
    Row("v_div_scale_f32 v3, {vcc}, v2, v1, v2", {"v1": f32(2.0**100), "v2": f32(2**-40), "exec": 1},
        {"v3": [f32(2**24)], "vcc_lo": 1}),
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": f32(2.0**127), "v2": f32(2.0**120), "exec": 1},
        {"v3": [f32(2.0**63)], "vcc_lo": 0}),
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": f32(2**-10), "v2": f32(2**-110), "exec": 1},
        {"v3": [f32(2**54)], "vcc_lo": 0}),
    Row("v_div_scale_f32 v3, {vcc}, v1, v1, v2", {"v1": 0, "v2": f32(1.0), "exec": 1}, {"v3": [NAN], "vcc_lo": 0}),
    # The documents say 2**32 and 2**64, with which no scaled quotient is right. The sign follows the exponent of the
    # third operand: an IEEE quotient comes out of the compiler's sequence only so (fp32_divide, fp64_divide).
    Row("v_div_fmas_f32 v3, v1, v2, v4", {"v1": f32(3.0), "v2": f32(2.0), "v4": f32(1.0), "vcc": 2},
        {"v3": [f32(7.0), f32(7.0 * 2**-64)]}),
    Row("v_div_fmas_f32 v3, v1, v2, v4", {"v1": f32(3.0), "v2": f32(2.0), "v4": f32(2.0), "vcc": 2},
        {"v3": [f32(8.0), f32(8.0 * 2**64)]}),
    Row("v_div_fmas_f64 v[10:11], v[2:3], v[4:5], v[6:7]",
        {"v[2:3]": f64(3.0), "v[4:5]": f64(2.0), "v[6:7]": f64(2.0), "vcc": 2},
        {"v[10:11]": [f64(8.0), f64(8.0 * 2.0**128)]}),
    # quotient, denominator, numerator: the signs are the operands', and what is no number is put right
    Row("v_div_fixup_f32 v3, v1, v2, v4", {"v1": f32(5.0), "v2": [f32(-1.0), 0, f32(INF), f32(2.0)],
        "v4": [f32(1.0), f32(-1.0), f32(-1.0), f32(-INF)]}, {"v3": [f32(-5.0), f32(-INF), 0x80000000, f32(-INF)]}),
    Row("v_div_fixup_f32 v3, v1, v2, v4", {"v1": f32(5.0), "v2": 0, "v4": 0}, {"v3": NAN}),
    Row("v_div_fixup_f32 v3, v1, v2, v4", {"v1": f32(5.0), "v2": f32(INF), "v4": f32(INF)}, {"v3": NAN}),
)  # fmt: skip

CONVERSIONS: Final = (
    Row("v_cvt_i32_f32_e32 v3, v1", {"v1": [f32(2.9), f32(-2.9), f32(3e9), QUIET, f32(-INF)]},
        {"v3": [2, 0xFFFFFFFE, 0x7FFFFFFF, 0, 0x80000000]}),
    Row("v_cvt_u32_f32_e32 v3, v1", {"v1": [f32(2.9), f32(-1.0), f32(2.0**32), QUIET]}, {"v3": [2, 0, 0xFFFFFFFF, 0]}),
    Row("v_cvt_nearest_i32_f32_e32 v3, v1", {"v1": [f32(2.5), f32(-2.5), f32(0.49)]}, {"v3": [3, 0xFFFFFFFE, 0]}),
    Row("v_cvt_floor_i32_f32_e32 v3, v1", {"v1": [f32(-0.5), f32(2.9)]}, {"v3": [0xFFFFFFFF, 2]}),
    Row("v_cvt_f32_u32_e32 v3, v1", {"v1": [16777217, 16777219, 0xFFFFFFFF]},
        {"v3": [0x4B800000, 0x4B800002, 0x4F800000]}),
    Row("v_cvt_f32_i32_e32 v3, v1", {"v1": [0x80000000, 0xFFFFFFFF]}, {"v3": [f32(-(2.0**31)), f32(-1.0)]}),
    Row("v_cvt_f32_ubyte2_e32 v3, v1", {"v1": 0x00C80000}, {"v3": f32(200.0)}),
    # fp16: ties to even, the largest number, the first that is infinite, and denormals
    Row("v_cvt_f16_f32_e32 v3, v1", {"v1": [0x3F801000, 0x3F803000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33400000]},
        {"v3.l": [0x3C00, 0x3C02, 0x7BFF, 0x7C00, 0, 1]}),
    Row("v_cvt_f32_f16_e32 v3, v1", {"v1": [0x0001, 0x03FF, 0x7C00, 0x8000]},
        {"v3": [f32(2**-24), f32(1023 * 2**-24), f32(INF), 0x80000000]}),
    Row("v_cvt_pk_rtz_f16_f32_e64 v3, v1, v2", {"v1": [0x477FF000, f32(1e30), f32(-1e-30)], "v2": 0xBF801FFF},
        {"v3": [0xBC007BFF, 0xBC007BFF, 0xBC008000]}),
    Row("v_cvt_f32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(1 + 2**-24)}, {"v3": 0x3F800000}),
    Row("v_cvt_f32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(1 + 2**-24 + 2**-52)}, {"v3": 0x3F800001}),
    Row("v_cvt_f32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(1e-46)}, {"v3": 0}),
    Row("v_cvt_f64_f32_e32 v[4:5], v1", {"v1": 1}, {"v[4:5]": f64(TINY)}),
    Row("v_cvt_i32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(-2147483649.0)}, {"v3": 0x80000000}),
    Row("v_cvt_f64_u32_e32 v[4:5], v1", {"v1": 0xFFFFFFFF}, {"v[4:5]": f64(4294967295.0)}),
    Row("v_rndne_f32_e32 v3, v1", {"v1": [f32(2.5), f32(3.5), f32(-0.5)]}, {"v3": [f32(2.0), f32(4.0), 0x80000000]}),
    Row("v_trunc_f32_e32 v3, v1", {"v1": [f32(-2.9), f32(-0.5)]}, {"v3": [f32(-2.0), 0x80000000]}),
    Row("v_ceil_f32_e32 v3, v1", {"v1": [f32(2.1), f32(-0.5)]}, {"v3": [f32(3.0), 0x80000000]}),
    Row("v_floor_f32_e32 v3, v1", {"v1": [f32(2.9), f32(-0.5)]}, {"v3": [f32(2.0), f32(-1.0)]}),
)  # fmt: skip

COMPARE: Final = (
    Row("v_cmp_lt_f32_e32 {vcc}, v1, v2",
        {"v1": [f32(1.0), QUIET, 0x80000000], "v2": [f32(2.0), f32(1.0), 0], "exec": 7},
        {"vcc_lo": 1}),
    Row("v_cmp_nge_f32_e64 {mask}, v1, v2",
        {"v1": [f32(1.0), QUIET, f32(3.0)], "v2": [f32(2.0), f32(1.0), 0], "exec": 7},
        {"s30": 3}),
    Row("v_cmp_u_f32_e64 {mask}, v1, v2", {"v1": [f32(1.0), QUIET], "v2": f32(1.0), "exec": 3}, {"s30": 2}),
    Row("v_cmp_neq_f32_e64 {mask}, v1, v2", {"v1": [f32(1.0), QUIET], "v2": f32(1.0), "exec": 3}, {"s30": 2}),
    Row("v_cmp_lg_f32_e64 {mask}, v1, v2", {"v1": [f32(1.0), QUIET, f32(2.0)], "v2": f32(1.0), "exec": 7}, {"s30": 4}),
    # lanes that are off give 0
    Row("v_cmp_eq_u32_e64 {mask}, v1, v2", {"v1": 5, "v2": 5, "exec": 5}, {"s30": 5}),
    Row("v_cmp_ge_i32_e64 {mask}, v1, v2", {"v1": [0xFFFFFFFF, 5, 6], "v2": 5, "exec": 7}, {"s30": 6}),
    Row("v_cmp_le_u32_e64 {mask}, v1, v2", {"v1": [0xFFFFFFFF, 5, 6], "v2": 5, "exec": 7}, {"s30": 2}),
    Row("v_cmp_lt_i64_e64 {mask}, v[2:3], v[4:5]", {"v[2:3]": 2**64 - 1, "v[4:5]": 1, "exec": 1}, {"s30": 1}),
    Row("v_cmp_lt_u64_e64 {mask}, v[2:3], v[4:5]", {"v[2:3]": 2**64 - 1, "v[4:5]": 1, "exec": 1}, {"s30": 0}),
    # signalling and quiet NaN; -inf, -normal, -denormal, -0; +0, +denormal, +normal, +inf
    Row("v_cmp_class_f32_e64 {mask}, v1, v2",
        {"v1": [0x7F800001, QUIET, f32(-INF), f32(-1.0), 0x80000001, 0x80000000, 0,
        1, f32(1.0), f32(INF)], "v2": [1 << bit for bit in range(10)], "exec": 0x3FF}, {"s30": 0x3FF}),
    Row("v_cmp_class_f32_e64 {mask}, v1, v2", {"v1": [QUIET, f32(1.0), 1], "v2": 0x3FF & ~0x102, "exec": 7},
        {"s30": 4}),
    Row("v_cmpx_lt_u32_e32 v1, v2", {"v1": [1, 2, 3], "v2": 3, "exec": 7}, {"exec_lo": 3}, on=EVERY[2:]),
)  # fmt: skip

FP64: Final = (
    Row("v_add_f64 v[10:11], v[2:3], v[4:5]", {"v[2:3]": f64(1.0), "v[4:5]": f64(2**-53)}, {"v[10:11]": f64(1.0)}),
    Row("v_mul_f64 v[10:11], v[2:3], v[4:5]", {"v[2:3]": f64(3.0), "v[4:5]": f64(-0.5)}, {"v[10:11]": f64(-1.5)}),
    Row("v_fma_f64 v[10:11], v[2:3], v[4:5], v[6:7]",
        {"v[2:3]": f64(1 + 2**-52), "v[4:5]": f64(1 - 2**-52), "v[6:7]": f64(-1.0)}, {"v[10:11]": f64(-(2.0**-104))}),
    Row("v_ldexp_f64 v[10:11], v[2:3], v1", {"v[2:3]": f64(3.0), "v1": 0xFFFFFFFF}, {"v[10:11]": f64(1.5)}),
)  # fmt: skip

A: Final = f16(1.0, 2.0)
B: Final = f16(3.0, 4.0)
C: Final = f16(5.0, 6.0)
HALVES: Final = (
    Row("v_add_f16_e32 v3, v1, v2", {"v1": f16(2048.0), "v2": [f16(1.0), f16(3.0)]},
        {"v3.l": [f16(2048.0), f16(2052.0)]}),
    Row("v_mul_f16_e32 v3, v1, v2", {"v1": f16(256.0), "v2": f16(256.0)}, {"v3.l": 0x7C00}),
    Row("v_pk_add_f16 v3, v1, v2", {"v1": A, "v2": B}, {"v3": f16(4.0, 6.0)}),
    Row("v_pk_fma_f16 v3, v1, v2, v4", {"v1": A, "v2": B, "v4": C}, {"v3": f16(8.0, 14.0)}),
    Row("v_pk_fma_f16 v3, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[0,1,0]", {"v1": A, "v2": B, "v4": C},
        {"v3": f16(2 * 3 + 5, 1 * 4 + 5)}),
    Row("v_pk_fma_f16 v3, v1, v2, v4 neg_lo:[1,0,0] neg_hi:[0,0,1]", {"v1": A, "v2": B, "v4": C},
        {"v3": f16(-1 * 3 + 5, 2 * 4 - 6)}),
    # 2048 + 1.0005: one rounding goes up; rounded first, the product is 1, and the sum a tie that goes down
    Row("v_pk_fma_f16 v3, v1, v2, v4",
        {"v1": f16(1 + 2**-10, 1.0), "v2": f16(1 - 2**-11, 1.0), "v4": f16(2048.0, 2048.0)},
        {"v3": f16(2050.0, 2048.0)}),
    Row("v_pk_mul_f16 v3, v1, v2", {"v1": A, "v2": B}, {"v3": f16(3.0, 8.0)}),
    Row("v_pk_max_f16 v3, v1, v2", {"v1": f16(1.0, 9.0), "v2": f16(2.0, 3.0)}, {"v3": f16(2.0, 9.0)}),
    Row("v_pk_add_u16 v3, v1, v2", {"v1": 0xFFFF0001, "v2": 0x00020003}, {"v3": 0x00010004}),
    Row("v_pk_add_u16 v3, v1, v2 clamp", {"v1": 0xFFFF0001, "v2": 0x00020003}, {"v3": 0xFFFF0004}),
    Row("v_pk_sub_i16 v3, v1, v2 op_sel:[0,1] op_sel_hi:[1,0]", {"v1": 0x00050007, "v2": 0x00020003},
        {"v3": 0x00020005}),
    Row("v_pk_mad_u16 v3, v1, v2, v4", {"v1": 0x00050007, "v2": 0x00020003, "v4": 0x10001}, {"v3": 0x000B0016}),
    Row("v_pk_lshlrev_b16 v3, v1, v2", {"v1": 0x00010004, "v2": 0x8001FFFF}, {"v3": 0x0002FFF0}),
    # which operand is fp16 (op_sel_hi), and of which half (op_sel)
    Row("v_fma_mix_f32 v3, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]", {"v1": A, "v2": B, "v4": f32(0.25)},
        {"v3": f32(6.25)}),
    Row("v_fma_mix_f32 v3, v1, v2, v4", {"v1": f32(2.0), "v2": f32(3.0), "v4": f32(0.25)}, {"v3": f32(6.25)}),
    Row("v_fma_mixlo_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]", {"v1": A, "v2": f32(3.0), "v4": f32(0.5), "v3": 0x77770000},
        {"v3": 0x77770000 | f16(3.5)}),
    Row("v_fma_mixhi_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]", {"v1": A, "v2": f32(3.0), "v4": f32(0.5), "v3": 0x7777},
        {"v3": f16(0.0, 3.5) | 0x7777}),
    Row("v_dot2_f32_f16 v3, v1, v2, v4", {"v1": A, "v2": B, "v4": f32(0.5)}, {"v3": f32(11.5)}, on=NOT_GFX1010),
    Row("v_dot2_f32_bf16 v3, v1, v2, v4", {"v1": 0x40003F80, "v2": 0x40804040, "v4": f32(0.5)},
        {"v3": f32(11.5)}, on=RDNA34),
    Row("v_dot4_u32_u8 v3, v1, v2, v4", {"v1": 0x010203FF, "v2": 0x050607FF, "v4": 1}, {"v3": 65025 + 21 + 12 + 5 + 1},
        on=NOT_GFX1010),
    Row("v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7]",
        {"v[2:3]": f32(1.0, 2.0), "v[4:5]": f32(3.0, 4.0), "v[6:7]": f32(5.0, 6.0)},
        {"v[10:11]": f32(8.0, 14.0)}, on=GCN),
    Row("v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7] op_sel:[1,0,0] op_sel_hi:[0,1,1]",
        {"v[2:3]": f32(1.0, 2.0), "v[4:5]": f32(3.0, 4.0), "v[6:7]": f32(5.0, 6.0)},
        {"v[10:11]": f32(11.0, 10.0)}, on=GCN),
    Row("v_pk_add_f32 v[10:11], v[2:3], v[4:5]", {"v[2:3]": f32(1.0, 2.0), "v[4:5]": f32(3.0, 4.0)},
        {"v[10:11]": f32(4.0, 6.0)}, on=GCN),
    Row("v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]", {"v[2:3]": 1 << 32 | 2, "v[4:5]": 3 << 32 | 4},
        {"v[10:11]": 4 << 32 | 1}, on=GCN),
)  # fmt: skip

ROWS: Final = (*ARITHMETIC, *DIVISION, *CONVERSIONS, *COMPARE, *FP64, *HALVES)
