"""Waves that part and meet, barriers, ends, and what is not known."""

from __future__ import annotations

import pytest

from tools.emulator import (
    Deadlock,
    Endless,
    NotWaitedFor,
    Race,
    UnknownInstruction,
    machine,
)  # fmt: skip

from ...tables import each_row
from .assembled import TWO_WAVES, numbers, run

pytestmark = pytest.mark.once

STORE = "global_store_b32 v1, v2, s[4:5]"
# As often as the number of the wave says, and once more.
LOOP = """
    s_mov_b32 s20, s2
    v_mov_b32 v2, 0
again:
    v_add_nc_u32 v2, 1, v2
    {}
    s_sub_i32 s20, s20, 1
    s_cmp_ge_i32 s20, 0
    s_cbranch_scc1 again
"""


def test_waves_that_go_round_a_loop_unequally_often():
    done = run(LOOP.format("") + "v_add_nc_u32 v2, 10, v2\n" + STORE, 512, threads=128)
    assert done.words() == [10 + wave + 1 for wave in range(4) for _ in range(32)]
    assert done.counts["v_add_nc_u32"] == 1 + 2 + 3 + 4 + 4
    assert done.counts["global_store_b32"] == 4  # each wave once, together or not


def test_waves_meet_at_barriers_in_different_places():
    """The hardware counts arrivals, not instructions."""
    code = TWO_WAVES.format(
        first="v_mov_b32 v2, 7\nv_mov_b32 v1, 0\nds_store_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier",
        others="v_mov_b32 v1, 0\ns_barrier\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)",
        then="v_lshlrev_b32 v1, 2, v0\n" + STORE,
    )
    assert run(code, 256, threads=64, group_segment_fixed_size=16).words() == [7] * 64


@each_row(("code", "why"), [
    (TWO_WAVES.format(first="s_barrier", others="s_nop 0", then=""), "1 waves wait at a barrier for others that have"),
    (LOOP.format("s_barrier"), "waves wait at a barrier"),
])  # fmt: skip
def test_a_barrier_that_a_wave_never_reaches(code, why):
    with pytest.raises(Deadlock, match=why):
        run(code, threads=64)


def test_a_program_without_an_end(monkeypatch):
    monkeypatch.setattr(machine, "MOST_BLOCKS", 100)
    with pytest.raises(Endless, match=r"no end after 100 blocks, at line \d+, 's_branch again'"):
        run("again:\ns_branch again")
    # A wave that waits for it does not help.
    with pytest.raises(Endless):
        run("s_cmp_lg_u32 s2, 0\ns_cbranch_scc1 end\nagain:\ns_branch again\nend:\ns_barrier", threads=64)


# The two halves of a barrier on gfx12.
SIGNAL, WAIT = "s_barrier_signal -1\n", "s_barrier_wait -1\n"
SPLIT = TWO_WAVES.format(
    first="v_mov_b32 v1, 0\nv_mov_b32 v2, 7\n{}",
    others="v_mov_b32 v1, 0\n" + SIGNAL + WAIT + "ds_load_b32 v2, v1",
    then="",
)
WRITE = "ds_store_b32 v1, v2\ns_wait_dscnt 0x0\n"


def test_barriers_in_two_halves():
    def attempt(code: str) -> None:
        run(SPLIT.format(code), target="gfx1201", threads=64, group_segment_fixed_size=16)

    attempt(WRITE + SIGNAL + WAIT)
    attempt(WRITE + SIGNAL + "v_mov_b32 v3, 0\n" + WAIT)
    with pytest.raises(Race):  # the other wave may be past the barrier
        attempt(SIGNAL + WRITE + WAIT)
    with pytest.raises(Deadlock, match="has not signalled"):
        attempt(WRITE + WAIT)
    with pytest.raises(Deadlock, match="signals a barrier again"):
        attempt(WRITE + SIGNAL + SIGNAL + WAIT)
    with pytest.raises(NotWaitedFor, match="a barrier is reached"):
        attempt("ds_store_b32 v1, v2\n" + SIGNAL + WAIT)
    with pytest.raises(UnknownInstruction, match="another barrier"):
        attempt(WRITE + "s_barrier_signal 3\n" + WAIT)
    with pytest.raises(UnknownInstruction, match="another barrier"):
        attempt(WRITE + SIGNAL + "s_barrier_wait 3\n")


@each_row("target", ["gfx942", "gfx1100"])
def test_waves_of_64(target):
    """Masks take two registers, of which the upper one has the lanes from 32 on."""
    own = {} if target == "gfx942" else {"wavefront_size32": 0}
    word = "dword" if target == "gfx942" else "b32"
    code = "v_cmp_lt_u32_e64 s[20:21], 40, v0\nv_cndmask_b32_e64 v2, 1, 2, s[20:21]\ns_bcnt1_i32_b64 s22, s[20:21]\n"
    code += f"v_add_u32_e32 v2, s22, v2\nglobal_store_{word} v1, v2, s[4:5]"
    done = run(code, 256, target=target, threads=64, **own)
    assert done.words() == [23 + 1] * 41 + [23 + 2] * 23
    assert done.counts["s_bcnt1_i32_b64"] == 1
    code = "s_and_saveexec_b64 s[20:21], 0\ns_cbranch_execnz end\ns_mov_b64 exec, s[20:21]\n"
    code += f"global_store_{word} v1, v0, s[4:5]\nend:"
    assert run(code, 256, target=target, threads=64, **own).words() == list(range(64))


@each_row(("line", "named"), [
    ("v_frobnicate_b32 v0, v1", "unknown instruction v_frobnicate_b32"),
    ("ds_frobnicate_b32 v0, v1", "ds_frobnicate_b32"),
    ("global_frobnicate_b32 v0, v1, off", "unknown instruction global_frobnicate_b32"),
    ("image_load v0, v1, s[0:7]", "unknown instruction image_load"),
    ("v_add_f32 v0, v1, v2 frobnicate:1", "unknown modifiers frobnicate"),
    ("global_load_b32 v2, v1, s[4:5] frobnicate:1", "unknown modifiers frobnicate"),
    ("v_add_f32 v0, v1, frobnicate", "cannot read the operand 'frobnicate'"),
    ("s_add_u32 s8, s9, v0", "v0 is no scalar operand"),
    ("v_add_f32 v0, v1", "v_add_f32 with 2 operands"),
    ("global_load_b32 v2", "cannot read it"),
    ("s_branch nowhere", "no label nowhere"),
    ("s_sendmsg sendmsg(MSG_INTERRUPT)", "another message"),
    ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0", "s_setreg_imm32_b32"),
])  # fmt: skip
def test_what_is_not_known_ends_the_run_with_its_name(line, named):
    with pytest.raises(UnknownInstruction) as caught:
        run(line, numbers(32))
    assert named in str(caught.value)
    assert f"line 10, {line!r}" in str(caught.value)
