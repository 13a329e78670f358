"""Single instructions against values that were worked out from AMD's ISA documents by hand, not by the emulator.

They are those of our kernels that no function of the witness shows, and the cases that C leaves open.
"""

from __future__ import annotations

import math
import re
import struct
from typing import NamedTuple

import numpy as np
import pytest

from tools.emulator import lanes, packed, vector

from ...tables import each_row
from .single import kernel, run
from .witness import make

pytestmark = pytest.mark.once
NAN, QUIET, INF = "nan", 0x7FC00000, math.inf
LANES = list(range(64))


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f16(low: float, high: float = 0.0) -> int:
    return int(struct.unpack("<I", struct.pack("<ee", low, high))[0])


class Row(NamedTuple):
    """Registers before and after lines: a value for every lane, or for each of the first ones."""

    target: str
    text: str
    given: dict[str, int | list[int]]
    wanted: dict[str, int | str | list[int] | list[int | str]]


DPP = "v_mov_b32_dpp v3, v1 {} row_mask:0xf bank_mask:0xf"
ROWS = [
    # NaN, zeros and denormals of minima and fused multiply-adds; sums that go through fp64 as a tie.
    Row("gfx1100", "v_max_f32_e32 v3, v1, v2", {"v1": [f32(-1.0), 1 << 31, 0], "v2": [QUIET, 0, 1 << 31]},
        {"v3": [f32(-1.0), 0, 0]}),
    Row("gfx1201", "v_min_num_f32_e32 v3, v1, v2", {"v1": [QUIET, 1 << 31], "v2": [f32(2.0), 0]},
        {"v3": [f32(2.0), 1 << 31]}),
    Row("gfx1100", "v_fma_f32 v3, v1, v2, v4", {"v1": 0x39800001, "v2": [0x397FFFFE, 0xB97FFFFE], "v4": 0x3F800001},
        {"v3": 0x3F800001}),
    Row("gfx942", "v_fma_f32 v3, v1, -v2, |v4|", {"v1": f32(2.0), "v2": f32(3.0), "v4": f32(-10.0)}, {"v3": f32(4.0)}),
    Row("gfx1030", "v_fma_f32 v3, v1, v2, v4", {"v1": [f32(INF), f32(2**-75)], "v2": [0, f32(2**-75)],
        "v4": [0, f32(-3 * 2**-149)]}, {"v3": [NAN, 0x80000002]}),
    Row("gfx1010", "v_mad_f32 v3, v1, v2, v4", {"v1": f32(1 + 2**-12), "v2": f32(1 + 2**-12), "v4": f32(-1 - 2**-11)},
        {"v3": 0}),
    Row("gfx1010", "v_mac_f32_e32 v3, v1, v2\nv_madak_f32 v4, v1, v2, 0x40a00000",
        {"v1": f32(3.0), "v2": f32(4.0), "v3": f32(0.5)}, {"v3": f32(12.5), "v4": f32(17.0)}),
    Row("gfx1100", "v_min3_f32 v3, v1, v2, v4\nv_maxmin_f32 v5, v1, v2, v4",
        {"v1": f32(1.0), "v2": f32(5.0), "v4": f32(3.0)}, {"v3": f32(1.0), "v5": f32(3.0)}),
    Row("gfx1100", "v_rsq_f32_e32 v3, v1", {"v1": [f32(4.0), 0, f32(INF)]}, {"v3": [f32(0.5), f32(INF), 0]}),
    Row("gfx942", "v_exp_f32_e32 v3, v1", {"v1": [f32(3.0), 0, f32(-INF)]}, {"v3": [f32(8.0), f32(1.0), 0]}),
    Row("gfx1100", "v_log_f32_e32 v3, v1", {"v1": [f32(8.0), f32(1.0), 0]}, {"v3": [f32(3.0), 0, f32(-INF)]}),
    Row("gfx1100", "v_cvt_i32_f32_e32 v3, v1", {"v1": [f32(-2.7), f32(3e9), QUIET]}, {"v3": [2**32 - 2, 2**31 - 1, 0]}),
    # The steps of an exact division: operands that are scaled, and whether.
    Row("gfx1100", "v_div_scale_f32 v3, vcc_lo, v1, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, vcc_lo",
        {"v1": [f32(3.0), f32(2**-130), f32(2**-130), f32(2.0**127), f32(2**-10), 0],
         "v2": [f32(1.0), f32(1.0), f32(2**-100), f32(2.0**120), f32(2**-110), f32(1.0)]},
        {"v3": [f32(3.0), f32(2**-66), f32(2**-66), f32(2.0**63), f32(2**54), NAN], "v4": [0, 1, 0, 0, 0, 0]}),
    Row("gfx1100", "v_div_scale_f32 v3, vcc_lo, v2, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, vcc_lo",
        {"v1": [f32(2**-130), f32(2.0**100)], "v2": [f32(1.0), f32(2**-40)]},
        {"v3": [f32(1.0), f32(2**24)], "v4": [1, 1]}),
    # Mixed precision: op_sel_hi makes an operand fp16, op_sel takes its upper half.
    Row("gfx1100", "v_fma_mix_f32 v3, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
        {"v1": f16(1.0, 2.0), "v2": f16(3.0, 4.0), "v4": f32(0.25)}, {"v3": f32(6.25)}),
    Row("gfx1010", "v_fma_mixlo_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]",
        {"v1": f16(1.0, 2.0), "v2": f32(3.0), "v4": f32(0.5), "v3": 0x77770000}, {"v3": 0x77770000 | f16(3.5)}),
    Row("gfx942", "v_fma_mixhi_f16 v3, v1, v2, v4 op_sel_hi:[1,0,0]",
        {"v1": f16(1.0, 2.0), "v2": f32(3.0), "v4": f32(0.5), "v3": 0x7777}, {"v3": f16(0.0, 3.5) | 0x7777}),
    Row("gfx942", "v_cvt_f32_f16_sdwa v3, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
        {"v1": f16(2.0, 1.0)}, {"v3": f32(1.0)}),
    Row("gfx1100", "v_cvt_f16_f32_e32 v3, v1", {"v1": [f32(1 + 2**-11), f32(1e6)], "v3": 0x55550000},
        {"v3": [0x55553C00, 0x55557C00]}),
    Row("gfx942", "v_cvt_f16_f32_e32 v3, v1", {"v1": f32(1 + 3 * 2**-11), "v3": 0x55550000}, {"v3": 0x3C02}),
    Row("gfx1100", "v_pack_b32_f16 v3, v1, v2", {"v1": 0x11113C00, "v2": 0x22224000}, {"v3": 0x40003C00}),
    # Packed fp32: op_sel chooses registers of pairs.
    Row("gfx90a", "v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_hi:[0,0,1]",
        {"v2": f32(1.0), "v3": f32(2.0), "v4": f32(3.0), "v5": f32(4.0), "v6": f32(5.0), "v7": f32(6.0)},
        {"v10": f32(11.0), "v11": f32(-2.0)}),
    Row("gfx90a", "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]", {"v2": 2, "v3": 1, "v4": 4, "v5": 3},
        {"v10": 1, "v11": 4}),
    # Between lanes.
    Row("gfx1100", DPP.format("row_shr:2"), {"v1": LANES, "v3": 99},
        {"v3": [99, 99, *range(14), 99, 99, *range(16, 30)]}),
    Row("gfx1100", DPP.format("row_shr:2") + " bound_ctrl:1", {"v1": LANES, "v3": 99},
        {"v3": [0, 0, *range(14), 0, 0, *range(16, 30)]}),
    Row("gfx1201", DPP.format("row_shl:8"), {"v1": LANES, "v3": 99},
        {"v3": [*range(8, 16), *([99] * 8), *range(24, 32)]}),
    Row("gfx942", "v_mov_b32_dpp v3, v1 quad_perm:[3,2,2,0] row_mask:0x2 bank_mask:0x5", {"v1": LANES, "v3": 99},
        {"v3": [99] * 16 + [19, 18, 18, 16, 99, 99, 99, 99, 27, 26, 26, 24, 99, 99, 99, 99]}),
    Row("gfx942", DPP.format("row_bcast:15"), {"v1": LANES, "v3": 99}, {"v3": [99] * 16 + [15] * 16 + [31] * 16}),
    Row("gfx1100", "s_mov_b32 s20, 0\ns_mov_b32 s21, 0\nv_permlanex16_b32 v3, v1, s20, s21", {"v1": LANES},
        {"v3": [16] * 16 + [0] * 16}),
    Row("gfx1010", "s_mov_b32 s20, 77\nv_writelane_b32 v3, s20, 2", {"v3": 1}, {"v3": [1, 1, 77, 1]}),
    Row("gfx90a", "v_accvgpr_write_b32 a5, v1\nv_accvgpr_mov_b32 a6, a5\nv_accvgpr_read_b32 v3, a6", {"v1": [4, 5, 6]},
        {"v3": [4, 5, 6]}),
    # Pairs: both halves read before either writes.
    Row("gfx1100", "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1", {"v1": 5, "v2": 6}, {"v1": 6, "v2": 5}),
    Row("gfx1201", "v_dual_fmac_f32 v1, v4, v2 :: v_dual_add_f32 v2, v3, v1",
        {"v1": f32(1.0), "v2": f32(2.0), "v3": f32(3.0), "v4": f32(4.0)}, {"v1": f32(9.0), "v2": f32(4.0)}),
    # Sums that stop at their limits, carries, the scalar unit's constants of 16 bits.
    Row("gfx1100", "v_add_nc_u32_e64 v3, v1, v2 clamp", {"v1": 0xFFFFFFFF, "v2": 2}, {"v3": 0xFFFFFFFF}),
    Row("gfx942", "v_mad_i64_i32 v[4:5], vcc, v1, v2, v[2:3]\nv_cndmask_b32_e64 v6, 0, 1, vcc",
        {"v1": 0xFFFFFFFF, "v2": 3, "v3": 0}, {"v4": 0, "v5": 0, "v6": 0}),
    Row("gfx1100", "s_mov_b32 s20, 0xffff0000\ns_cmpk_lt_i32 s20, 0x8000\ns_cselect_b32 s21, 7, 8", {}, {"s21": 7}),
    Row("gfx1100", "s_mov_b32 s20, 0xffff0000\ns_addk_i32 s20, 0xffff", {}, {"s20": 0xFFFEFFFF}),
    Row("gfx1201", "s_mov_b32 s20, 3.0\ns_mov_b32 s21, 0.5\ns_fmac_f32 s21, s20, 0x40a00000", {}, {"s21": f32(15.5)}),
    Row("gfx1201", "s_mov_b32 s20, 4.0\nv_s_rcp_f32 s21, s20", {}, {"s21": f32(0.25)}),
]  # fmt: skip


@each_row("row", ROWS, ids=lambda row: f"{row.target}: {row.text}")
def test_an_instruction_does_what_the_manual_says(row: Row) -> None:
    each = kernel(row.target, row.text, list(row.given), list(row.wanted))
    values = [np.resize(np.array(value, np.uint32), each.wave) for value in row.given.values()]
    after = run(each, np.array([values]).reshape(1, len(values), each.wave), 1)[0]
    for name, register in zip(row.wanted, after, strict=True):
        right = row.wanted[name]
        for lane, want in enumerate(right if isinstance(right, list) else [right] * each.wave):
            is_nan = want == NAN and np.isnan(register[lane : lane + 1].view(np.float32)[0])
            assert is_nan or register[lane] == want, f"{name}, lane {lane}: {register[lane]:#x}, not {want}"


# What our kernels print and neither a row nor the witness shows: compared with fp64 where those are executed.
BY_KERNELS = {
    *(
        "v_add_lshl_u32",
        "v_add_nc_u16",
        "v_cvt_f32_i32",
        "v_lshrrev_b16",
        "v_madmk_f32",
        "v_max3_f32",
        "v_readlane_b32",
    ),
    *("v_sub_co_u32", "v_sub_co_ci_u32", "v_subrev_co_u32", "v_subrev_co_ci_u32", "v_subrev_f32"),
}


def test_every_instruction_of_the_vector_tables_is_shown() -> None:
    texts = [make.stored(text) for text in make.TEXTS] + [row.text for row in ROWS]
    names = re.findall(r"(?:^|::)\s*(v_\w+)", "\n".join(texts), re.MULTILINE)
    plain = {re.sub(r"(_e64_dpp|_e32|_e64|_dpp|_sdwa)$", "", name).replace("v_dual_", "v_") for name in names}
    shown = plain | {vector.ALIASES[name] for name in plain if name in vector.ALIASES}
    assert {*vector.TABLE, *lanes.STEPS} - shown == BY_KERNELS
    assert all(packed.knows(name) for name in plain if name.startswith(("v_pk", "v_fma_mix")))
