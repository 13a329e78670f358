"""Registers are used after the load into them was waited for, by the counters of each generation."""

from __future__ import annotations

import pytest

from tools.emulator import NotWaitedFor, UnknownInstruction

from ...tables import each_row
from .assembled import GENERATIONS, numbers, run

pytestmark = pytest.mark.once

LDS = 1024
# By generation: a load, a store, an LDS read and a scalar load into v2 or s8, as they are called there.
NAMES = {
    "gfx942": ("global_load_dword", "global_store_dword", "ds_read_b32", "s_load_dword"),
    "gfx1030": ("global_load_dword", "global_store_dword", "ds_read_b32", "s_load_dword"),
    "gfx1100": ("global_load_b32", "global_store_b32", "ds_load_b32", "s_load_b32"),
    "gfx1201": ("global_load_b32", "global_store_b32", "ds_load_b32", "s_load_b32"),
}
# How they are waited for, so that a number of them are left.
VECTOR = {name: "s_waitcnt vmcnt({})" for name in NAMES} | {"gfx1201": "s_wait_loadcnt {}"}
LOCAL = {name: "s_waitcnt lgkmcnt({})" for name in NAMES} | {"gfx1201": "s_wait_dscnt {}"}
SCALAR = {name: "s_waitcnt lgkmcnt({})" for name in NAMES} | {"gfx1201": "s_wait_kmcnt {}"}


def lines(target: str, code: str) -> str:
    """Put the names of a generation into lines: LOAD, STORE, READ and SLOAD."""
    for word, name in zip(("LOAD", "STORE", "READ", "SLOAD"), NAMES[target], strict=True):
        code = code.replace(f"<{word}>", name)
    return code


def attempt(target: str, code: str) -> None:
    # Wave 64 reads more: room for all.
    start = "v_mov_b32_e32 v9, 0\nds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\n"
    if target in ("gfx1100", "gfx1201"):
        wait = "s_wait_dscnt 0x0" if target == "gfx1201" else "s_waitcnt lgkmcnt(0)"
        start = f"v_mov_b32_e32 v9, 0\nds_store_b32 v1, v9\n{wait}\n"
    run(start + lines(target, code), numbers(64), 256, target=target, group_segment_fixed_size=LDS)


GLOBAL_LOAD, LDS_READ = "<LOAD> {}, v1, s[4:5]\n", "<READ> {}, v1\n"
SCALAR_LOAD, STORE = "<SLOAD> {}, s[4:5], 0x0\n", "<STORE> v1, v9, s[6:7]\n"


@pytest.mark.parametrize("target", GENERATIONS)
@pytest.mark.parametrize(("load", "register", "use", "wait"), [
    (GLOBAL_LOAD, "v2", "v_mov_b32_e32 v3, v2", VECTOR), (LDS_READ, "v2", "v_mov_b32_e32 v3, v2", LOCAL),
    (SCALAR_LOAD, "s10", "s_mov_b32 s9, s10", SCALAR), (GLOBAL_LOAD, "v2", "v_mov_b32_e32 v2, 0", VECTOR),
    (GLOBAL_LOAD, "v2", "<STORE> v1, v2, s[6:7]", VECTOR), (GLOBAL_LOAD, "v2", "v_readfirstlane_b32 s9, v2", VECTOR),
    (SCALAR_LOAD, "s10", "v_mov_b32_e32 v3, s10", SCALAR), (SCALAR_LOAD, "vcc_lo", "s_and_b32 s9, vcc_lo, 1", SCALAR),
])  # fmt: skip
def test_a_register_is_waited_for(target, load, register, use, wait):
    attempt(target, load.format(register) + wait[target].format(0) + "\n" + use)
    with pytest.raises(NotWaitedFor, match="is used before the load into it was waited for"):
        attempt(target, load.format(register) + use)
    with pytest.raises(NotWaitedFor):
        attempt(target, load.format(register) + wait[target].format(1) + "\n" + use)


def test_lds_reads_are_unordered_next_to_scalar_loads():
    """One counter for both, before gfx12: any of them may be the one that is left."""
    code = LDS_READ.format("v2") + SCALAR_LOAD.format("s10") + "{}\nv_mov_b32_e32 v3, v2"
    for target in GENERATIONS[:3]:
        with pytest.raises(NotWaitedFor, match="v2 is used"):
            attempt(target, code.format("s_waitcnt lgkmcnt(1)"))
        attempt(target, code.format("s_waitcnt lgkmcnt(0)"))
    attempt("gfx1201", code.format("s_wait_dscnt 0x0"))


def test_stores_count_among_the_loads_of_gfx9_alone():
    code = GLOBAL_LOAD.format("v2") + STORE + "s_waitcnt vmcnt(1)\nv_mov_b32_e32 v3, v2"
    attempt("gfx942", code)  # the store is the one that is left
    for target in ("gfx1030", "gfx1100"):
        with pytest.raises(NotWaitedFor, match="v2 is used"):
            attempt(target, code)
        with pytest.raises(NotWaitedFor, match="v2 is used"):
            attempt(target, code.replace("s_waitcnt vmcnt(1)", "s_waitcnt_vscnt null, 0x0"))
    with pytest.raises(NotWaitedFor, match="v2 is used"):
        attempt("gfx1201", code.replace("s_waitcnt vmcnt(1)", "s_wait_storecnt 0x0"))


def test_a_load_after_another_kind_of_load_into_the_same_register():
    """They may come in any order; two of the same kind come in theirs, before gfx12."""
    for target in GENERATIONS:
        twice = GLOBAL_LOAD.format("v2") + "{}\n" + GLOBAL_LOAD.format("v2") + VECTOR[target].format(0)
        twice += "\nv_mov_b32_e32 v3, v2"
        attempt(target, twice.format(VECTOR[target].format(0)))
        if target == "gfx1201":
            with pytest.raises(NotWaitedFor, match="v2 is used"):
                attempt(target, twice.format("v_nop"))
        else:
            attempt(target, twice.format("v_nop"))
        with pytest.raises(NotWaitedFor, match="v2 is used"):
            attempt(target, GLOBAL_LOAD.format("v2") + LDS_READ.format("v2"))
        with pytest.raises(NotWaitedFor, match="s10 is used"):
            attempt(target, SCALAR_LOAD.format("s10") * 2)


@each_row(("target", "wait"), [
    ("gfx942", "s_waitcnt_vscnt null, 0x0"), ("gfx1100", "s_waitcnt loadcnt(0)"), ("gfx1100", "s_wait_loadcnt 0x0"),
    ("gfx1201", "s_waitcnt vmcnt(0)"), ("gfx1201", "s_wait_idle"), ("gfx1100", "s_waitcnt 0x70"),
    ("gfx1100", "s_waitcnt"), ("gfx1030", "s_waitcnt_vscnt s4, 0x0"),
])  # fmt: skip
def test_waits_that_are_not_known(target, wait):
    with pytest.raises(UnknownInstruction):
        run(wait, target=target)


@each_row("target", GENERATIONS)
def test_lanes_may_exchange_values_across_a_barrier_but_not_access_lds(target):
    """The one does not go through memory that others could write behind the barrier."""
    barrier = "s_barrier_signal -1\ns_barrier_wait 0xffff" if target == "gfx1201" else "s_barrier"
    for exchange in ("ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,16)", "ds_bpermute_b32 v2, v1, v9"):
        attempt(target, f"{exchange}\n{barrier}\n{LOCAL[target].format(0)}\nv_mov_b32_e32 v3, v2")
        with pytest.raises(NotWaitedFor, match="v2 is used"):
            attempt(target, f"{exchange}\n{barrier}\nv_mov_b32_e32 v3, v2")
    with pytest.raises(NotWaitedFor, match="a barrier is reached with accesses to LDS"):
        attempt(target, LDS_READ.format("v2") + barrier)


def test_two_counters_in_one_wait():
    code = GLOBAL_LOAD.format("v2") + LDS_READ.format("v3") + "{}\nv_add_f32_e32 v4, v2, v3"
    for target in GENERATIONS[:3]:
        attempt(target, code.format("s_waitcnt vmcnt(0) lgkmcnt(0)"))
        with pytest.raises(NotWaitedFor, match="v3 is used"):
            attempt(target, code.format("s_waitcnt vmcnt(0)"))
    attempt("gfx1201", code.format("s_wait_loadcnt_dscnt 0x0"))
    for wait, late in (("s_wait_loadcnt_dscnt 0x100", "v2"), ("s_wait_loadcnt_dscnt 0x1", "v3")):
        with pytest.raises(NotWaitedFor, match=f"{late} is used"):
            attempt("gfx1201", code.format(wait))
