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
    Row("v_add_f32_e64 v3, -|v1|, v2", {"v1": f32(-3.0), "v2": f32(1.0)}, {"v3": f32(-2.0)}),
    Row("v_add_f32_e64 v3, v1, v2 clamp", {"v1": [f32(3.0), f32(-3.0), f32(0.25), QUIET], "v2": f32(0.5)},
        {"v3": [f32(1.0), 0, f32(0.75), 0]}),
    Row("v_add_f32_e64 v3, v1, v2 clamp", {"v1": f32(-0.25), "v2": f32(0.5)}, {"v3": f32(0.25)}),
    Row("v_subrev_f32_e32 v3, v1, v2", {"v1": f32(1.0), "v2": f32(3.0)}, {"v3": f32(2.0)}),
    # 1 + 2**-23 + 2**-24 - 2**-70: through fp64 it would be a tie, and go up
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": 0x39800001, "v2": 0x397FFFFE, "v4": 0x3F800001}, {"v3": 0x3F800001}),
    # 1 + 2**-24 + 2**-70: through fp64 it would be a tie, and go down
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": 0x39800001, "v2": 0xB97FFFFE, "v4": 0x3F800001}, {"v3": 0x3F800001}),
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": f32(INF), "v2": 0, "v4": QUIET}, {"v3": NAN}),
    Row("v_fma_f32 v3, v1, -v2, |v4|", {"v1": f32(2.0), "v2": f32(3.0), "v4": f32(-10.0)}, {"v3": f32(4.0)}),
    Row("v_fma_f32 v3, v1, v2, v4", {"v1": f32(2**-75), "v2": f32(2**-75), "v4": f32(-3 * TINY)}, {"v3": 0x80000002}),
    Row("v_max3_f32 v3, v1, v2, v4", {"v1": f32(1.0), "v2": f32(5.0), "v4": f32(3.0)}, {"v3": f32(5.0)}),
    Row("v_rsq_f32_e32 v3, v1", {"v1": [f32(4.0), 0, f32(INF)]}, {"v3": [f32(0.5), f32(INF), 0]}),
    Row("v_exp_f32_e32 v3, v1", {"v1": [f32(3.0), 0, f32(-INF)]}, {"v3": [f32(8.0), f32(1.0), 0]}),
    Row("v_log_f32_e32 v3, v1", {"v1": [f32(8.0), f32(1.0), 0]}, {"v3": [f32(3.0), 0, f32(-INF)]}),
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
)  # fmt: skip

CONVERSIONS: Final = (
    Row("v_cvt_nearest_i32_f32_e32 v3, v1", {"v1": [f32(2.5), f32(-2.5), f32(0.49)]}, {"v3": [3, 0xFFFFFFFE, 0]}),
    Row("v_cvt_floor_i32_f32_e32 v3, v1", {"v1": [f32(-0.5), f32(2.9)]}, {"v3": [0xFFFFFFFF, 2]}),
    Row("v_cvt_i32_f64_e32 v3, v[4:5]", {"v[4:5]": f64(-2147483649.0)}, {"v3": 0x80000000}),
)  # fmt: skip

COMPARE: Final = (
    Row("v_cmp_ge_i32_e64 {mask}, v1, v2", {"v1": [0xFFFFFFFF, 5, 6], "v2": 5, "exec": 7}, {"s30": 6}),
    Row("v_cmp_le_u32_e64 {mask}, v1, v2", {"v1": [0xFFFFFFFF, 5, 6], "v2": 5, "exec": 7}, {"s30": 2}),
)  # fmt: skip

FP64: Final = (
)  # fmt: skip

A: Final = f16(1.0, 2.0)
B: Final = f16(3.0, 4.0)
C: Final = f16(5.0, 6.0)
HALVES: Final = (
    Row("v_pk_fma_f16 v3, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[0,1,0]", {"v1": A, "v2": B, "v4": C},
        {"v3": f16(2 * 3 + 5, 1 * 4 + 5)}),
    Row("v_pk_fma_f16 v3, v1, v2, v4 neg_lo:[1,0,0] neg_hi:[0,0,1]", {"v1": A, "v2": B, "v4": C},
        {"v3": f16(-1 * 3 + 5, 2 * 4 - 6)}),
    Row("v_pk_max_f16 v3, v1, v2", {"v1": f16(1.0, 9.0), "v2": f16(2.0, 3.0)}, {"v3": f16(2.0, 9.0)}),
    Row("v_pk_add_u16 v3, v1, v2 clamp", {"v1": 0xFFFF0001, "v2": 0x00020003}, {"v3": 0xFFFF0004}),
    Row("v_pk_sub_i16 v3, v1, v2 op_sel:[0,1] op_sel_hi:[1,0]", {"v1": 0x00050007, "v2": 0x00020003},
        {"v3": 0x00020005}),
    # which operand is fp16 (op_sel_hi), and of which half (op_sel)
    Row("v_fma_mix_f32 v3, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]", {"v1": A, "v2": B, "v4": f32(0.25)},
        {"v3": f32(6.25)}),
    Row("v_fma_mixlo_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]", {"v1": A, "v2": f32(3.0), "v4": f32(0.5), "v3": 0x77770000},
        {"v3": 0x77770000 | f16(3.5)}),
    Row("v_fma_mixhi_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]", {"v1": A, "v2": f32(3.0), "v4": f32(0.5), "v3": 0x7777},
        {"v3": f16(0.0, 3.5) | 0x7777}),
    Row("v_dot2_f32_f16 v3, v1, v2, v4", {"v1": A, "v2": B, "v4": f32(0.5)}, {"v3": f32(11.5)}, on=NOT_GFX1010),
    Row("v_dot2_f32_bf16 v3, v1, v2, v4", {"v1": 0x40003F80, "v2": 0x40804040, "v4": f32(0.5)},
        {"v3": f32(11.5)}, on=RDNA34),
    Row("v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7]",
        {"v[2:3]": f32(1.0, 2.0), "v[4:5]": f32(3.0, 4.0), "v[6:7]": f32(5.0, 6.0)},
        {"v[10:11]": f32(8.0, 14.0)}, on=GCN),
    Row("v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7] op_sel:[1,0,0] op_sel_hi:[0,1,1]",
        {"v[2:3]": f32(1.0, 2.0), "v[4:5]": f32(3.0, 4.0), "v[6:7]": f32(5.0, 6.0)},
        {"v[10:11]": f32(11.0, 10.0)}, on=GCN),
    Row("v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]", {"v[2:3]": 1 << 32 | 2, "v[4:5]": 3 << 32 | 4},
        {"v[10:11]": 4 << 32 | 1}, on=GCN),
)  # fmt: skip

ROWS: Final = (*ARITHMETIC, *DIVISION, *CONVERSIONS, *COMPARE, *FP64, *HALVES)
