"""Memory that checks itself: bounds, contents, races."""

from __future__ import annotations

import numpy as np
import pytest

from tools.emulator import MemoryFault, NotWaitedFor, Race

from ...tables import each_row
from .assembled import TWO_WAVES, numbers, run

pytestmark = pytest.mark.once

LOAD, STORE, WAIT = "global_load_b32 v2, v1, s[4:5]", "global_store_b32 v1, v2, s[4:5]", "s_waitcnt vmcnt(0)"
LDS = 1024


@each_row(("code", "where"), [
    (LOAD + " offset:4", r"b0\+0x80 \(of 0x80 bytes\)"),
    (LOAD + " offset:-4", r"b0-0x4 "),
    (LOAD + " offset:2044", "near no buffer"),
    ("v_mov_b32 v2, 0\n" + STORE + " offset:128", r"writes 4 bytes at b0\+0x80"),
    ("s_mov_b32 s5, 0\n" + LOAD, "near no buffer"),
    ("s_add_u32 s5, s5, 1\n" + LOAD, "near no buffer"),
    ("global_load_b64 v[2:3], v1, s[4:5]", r"reads 8 bytes at b0\+0x7c"),
    ("s_load_b64 s[8:9], s[4:5], 0x7c", r"b0\+0x7c"),
    ("v_mov_b32 v2, 0\nds_store_b32 v1, v2 offset:65532", "4 bytes at LDS"),
])  # fmt: skip
def test_out_of_bounds(code, where):
    with pytest.raises(MemoryFault, match=rf"line \d+, .*out of bounds: .*{where}"):
        run(code, numbers(32), 4096)


def test_a_buffer_ends_where_it_ends():
    """Its last two bytes are no word, whatever is there in the end."""
    code = "v_cmpx_eq_u32 0, v0\nglobal_load_b32 v2, v1, s[4:5] offset:4"
    with pytest.raises(MemoryFault, match="out of bounds"):
        run(code, np.zeros(3, np.uint16))
    run(code.replace("offset:4", ""), np.zeros(3, np.uint16))
    run(code.replace("offset:4", "offset:2"), np.zeros(3, np.uint16))
    run(code.replace("load_b32", "load_u16"), np.zeros(3, np.uint16))


@each_row(("code", "to"), [
    ("s_load_b32 s8, s[4:5], 0x2", 4),
    ("ds_load_b32 v2, v0", 4),  # some of the lanes
    ("ds_load_b32 v2, v1 offset:2", 4), ("ds_load_b64 v[2:3], v1 offset:2", 4), ("ds_load_u16 v2, v1 offset:1", 2),
])  # fmt: skip
def test_unaligned(code, to):
    with pytest.raises(MemoryFault, match=f"unaligned: .* is not a multiple of {to}"):
        run(code, numbers(64), group_segment_fixed_size=LDS)


@each_row("code", [LOAD, "ds_load_b32 v2, v1", "s_load_b32 s8, s[4:5], 0x0"])
def test_what_nobody_has_written_is_not_read(code):
    with pytest.raises(MemoryFault, match="which nobody has written"):
        run(code, 128, group_segment_fixed_size=LDS)


def test_what_is_constant_is_not_written():
    code = "v_mov_b32 v2, 0\n" + STORE
    run(code, numbers(32))
    with pytest.raises(MemoryFault, match=r"b0\+0x0 .* which is only to be read"):
        run(code, numbers(32), constant=(0,))


# What two waves of a group do to the same word of LDS, with a barrier between and without.
FIRST, SECOND = "v_mov_b32 v2, 1\nv_mov_b32 v1, 0", "v_mov_b32 v2, 2\nv_mov_b32 v1, 0"
BARRIER = "s_waitcnt lgkmcnt(0)\ns_barrier"


@each_row(("first", "second"), [
    ("ds_store_b32 v1, v2", "ds_store_b32 v1, v2"),
    ("ds_store_b32 v1, v2", "ds_load_b32 v3, v1"),
    ("ds_load_b32 v3, v1", "ds_store_b32 v1, v2"),
])  # fmt: skip
def test_races_between_two_waves(first, second):
    clear = f"v_mov_b32 v4, 0\nv_mov_b32 v5, 0\nds_store_b32 v4, v5\n{BARRIER}\n"
    code = clear + TWO_WAVES.format(
        first=f"{FIRST}\n{first}\n{BARRIER}", others=f"{SECOND}\n{BARRIER}\n{second}", then=BARRIER
    )
    run(code, threads=64, group_segment_fixed_size=LDS)
    without = clear + TWO_WAVES.format(first=f"{FIRST}\n{first}", others=f"{SECOND}\n{second}", then=BARRIER)
    with pytest.raises(Race, match=r"wave [01] .* with no barrier between"):
        run(without, threads=64, group_segment_fixed_size=LDS)


def test_waves_may_write_the_same_value():
    same = "v_mov_b32 v1, 0\nv_mov_b32 v2, 5\nds_store_b32 v1, v2"
    run(same, threads=128, group_segment_fixed_size=LDS)
    with pytest.raises(Race, match="waves 0 and 1 write"):
        run(same.replace("v2, 5", "v2, s2"), threads=128, group_segment_fixed_size=LDS)


def test_writes_that_overlap_in_part():
    """Eight bytes of one wave, and eight of another four bytes further on, by one instruction."""
    code = "v_mov_b32 v2, s2\nv_mov_b32 v3, s2\nv_lshlrev_b32 v1, 2, v2\ns_mov_b32 exec_lo, 1\nds_store_b64 v1, v[2:3]"
    with pytest.raises(Race, match="waves 0 and 1 write"):
        run(code, threads=64, group_segment_fixed_size=LDS)


def test_groups_at_one_address():
    at_once = "v_mov_b32 v2, s3\n" + STORE
    run("v_mov_b32 v2, 1\n" + STORE, 128, groups=2)
    with pytest.raises(Race, match="waves 0 and 1 write"):
        run(at_once, 128, groups=2)
    # A barrier is none between groups.
    first = f"{STORE}\ns_waitcnt_vscnt null, 0x0\ns_barrier"
    code = "v_mov_b32 v2, s3\n" + TWO_WAVES.replace("s2", "s3").format(
        first=first, others=f"s_barrier\n{LOAD}", then=""
    )
    with pytest.raises(Race, match=r"wave 1 reads .* written by wave 0"):
        run(code, 128, groups=2)


# How each generation waits for its stores, and what a barrier is.
STORES_FINISHED = {
    "gfx942": "s_waitcnt vmcnt(0)", "gfx1030": "s_waitcnt_vscnt null, 0x0", "gfx1100": "s_waitcnt_vscnt null, 0x0",
    "gfx1201": "s_wait_storecnt 0x0",
}  # fmt: skip


@each_row("target", STORES_FINISHED)
def test_a_store_that_was_not_waited_for_is_not_seen_behind_a_barrier(target):
    word = "dword" if target in ("gfx942", "gfx1030") else "b32"
    barrier = "s_barrier_signal -1\ns_barrier_wait -1" if target == "gfx1201" else "s_barrier"
    first = f"v_mov_b32 v1, 0\nv_mov_b32 v2, 1\nglobal_store_{word} v1, v2, s[4:5]\n"
    code = TWO_WAVES.format(
        first=first + "{}\n" + barrier, others=f"v_mov_b32 v1, 0\n{barrier}\nglobal_load_{word} v2, v1, s[4:5]", then=""
    )
    run(code.format(STORES_FINISHED[target]), 4, target=target, threads=128 if target == "gfx942" else 64)
    with pytest.raises(Race, match="a store that was not waited for"):
        run(code.format(""), 4, target=target, threads=128 if target == "gfx942" else 64)


def test_lds_is_waited_for_at_barriers():
    for access in ("ds_store_b32 v1, v0", "ds_store_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_load_b32 v2, v1"):
        with pytest.raises(NotWaitedFor, match="a barrier is reached"):
            run(f"{access}\ns_barrier", group_segment_fixed_size=LDS)
        run(f"{access}\ns_waitcnt lgkmcnt(0)\ns_barrier", group_segment_fixed_size=LDS)
