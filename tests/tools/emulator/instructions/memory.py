"""The local data share, what lanes send each other through it, and halves of registers in memory.

"RDNA3.5" Instruction Set Architecture (AMD, 2024), chapter "Instructions", section "LDS Instructions"; the same
instructions are called `ds_read` and `ds_write` in "CDNA3" Instruction Set Architecture (AMD, 2025), section "LDS & GDS
Instructions"; global memory from sections "FLAT, Scratch and Global Instructions".
"""

from __future__ import annotations

from typing import Final

from ..single import GCN, RDNA12, RDNA34
from .row import Row

LANE4: Final = [4 * lane for lane in range(64)]
LANE: Final = list(range(64))
# What a load leaves of the other half of its register: on cards with ECC, nothing (CDNA3, 9.1.6).
OTHER_HALF: Final = ((RDNA12 + RDNA34, 0xFFFF), (GCN, 0))

ROWS: Final = (
    # two words with offsets counted in words, or in 64 words
    Row("""ds_store_2addr_b32 v1, v2, v3 offset0:1 offset1:65
        {wait}
        ds_load_b32 v4, v1 offset:4
        ds_load_b32 v5, v1 offset:260
        {wait}""",
        {"v1": 0, "v2": 5, "v3": 6, "exec": 1}, {"v4": [5], "v5": [6]}),
    Row("""ds_store_2addr_stride64_b32 v1, v2, v3 offset0:1 offset1:2
        {wait}
        ds_load_b32 v4, v1 offset:256
        ds_load_b32 v5, v1 offset:512
        {wait}""",
        {"v1": 0, "v2": 5, "v3": 6, "exec": 1}, {"v4": [5], "v5": [6]}),
    Row("""ds_store_b64 v1, v[2:3] offset:8
        {wait}
        ds_load_2addr_b32 v[4:5], v1 offset0:3 offset1:2
        {wait}""",
        {"v1": 0, "v[2:3]": 7 << 32 | 9, "exec": 1}, {"v[4:5]": [9 << 32 | 7]}),
    Row("""ds_store_2addr_b64 v1, v[2:3], v[4:5] offset1:2
        {wait}
        ds_load_b64 v[6:7], v1 offset:16
        ds_load_2addr_b64 v[8:11], v1 offset0:2
        {wait}""",
        {"v1": 0, "v[2:3]": 7 << 32 | 9, "v[4:5]": 3 << 32 | 4, "exec": 1},
        {"v[6:7]": [3 << 32 | 4], "v[8:9]": [3 << 32 | 4], "v[10:11]": [7 << 32 | 9]}),
    Row("""ds_store_2addr_stride64_b64 v1, v[2:3], v[4:5] offset0:1 offset1:2
        {wait}
        ds_load_b64 v[6:7], v1 offset:512
        ds_load_2addr_stride64_b64 v[8:11], v1 offset0:2 offset1:1
        {wait}""",
        {"v1": 0, "v[2:3]": 7 << 32 | 9, "v[4:5]": 3 << 32 | 4, "exec": 1},
        {"v[6:7]": [7 << 32 | 9], "v[8:9]": [3 << 32 | 4], "v[10:11]": [7 << 32 | 9]}),
    # half a register
    *(Row("""ds_store_b16 v1, v2
        ds_store_b16_d16_hi v1, v2 offset:2
        {wait}
        ds_load_u16_d16_hi v3, v1
        ds_load_u8 v4, v1 offset:3
        ds_load_i8 v5, v1 offset:1
        {wait}""",
        {"v1": 0, "v2": 0x1234ABCD, "v3": 0x7777, "exec": 1},
        {"v3": [0xABCD0000 | 0x7777 & kept], "v4": [0x12], "v5": [0xFFFFFFAB]}, on=targets)
      for targets, kept in OTHER_HALF),
    *(Row("""global_store_b32 v250, v1, s[10:11]
        {wait}
        global_store_d16_hi_b16 v250, v2, s[10:11]
        {wait}
        global_load_b32 v3, v250, s[10:11]
        global_load_d16_hi_b16 v4, v250, s[10:11] offset:2
        {wait}""",
        {"v1": 0x11112222, "v2": 0xABCD0000, "v4": 0x3333}, {"v3": 0x1111ABCD, "v4": 0x11110000 | 0x3333 & kept},
        on=targets)
      for targets, kept in OTHER_HALF),
    # 5 is there and becomes 7 where 5 was expected, in the first lane; what was there is returned
    Row("""global_store_b32 v250, v1, s[10:11]
        {wait}
        global_atomic_cmpswap_b32 v4, v250, v[2:3], s[10:11] glc
        {wait}
        global_load_b32 v5, v250, s[10:11]
        {wait}""",
        {"v1": 5, "v2": 7, "v3": [5, 6]}, {"v4": 5, "v5": [7, 5]}, on=RDNA12 + GCN[:1] + RDNA34[:2]),
    # what was there is returned, and lanes come one after another
    Row("""ds_store_b32 v1, v2
        {wait}
        ds_add_rtn_u32 v3, v1, v2
        {wait}
        ds_load_b32 v4, v1
        {wait}""",
        {"v1": 0, "v2": 5, "exec": 1}, {"v3": [5], "v4": [10]}),
    # lane i sends to the lane whose number times four it has; who gets nothing gets 0
    Row("ds_permute_b32 v3, v1, v2\n{wait}",
        {"v1": [8, 12, 8, 0, *LANE4[4:]], "v2": [n + 50 for n in LANE], "exec": 0xF},
        {"v3": [53, 0, 52, 51]}),
)  # fmt: skip
