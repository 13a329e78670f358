"""Launches: arguments, registers at the start, modes."""

from __future__ import annotations

import numpy as np
import pytest

from tools.emulator import Memory, MemoryFault, Program, UnknownInstruction, launch

from ...tables import each_row
from .assembled import GENERATIONS, numbers, run, text

pytestmark = pytest.mark.once

# A mask that leaves one lane, a store of a scalar register at 4 n, by generation.
OLD = ("gfx942", "gfx1030")


def stored(target: str, *registers: str) -> str:
    word = "dword" if target in OLD else "b32"
    lines = ["v_mov_b32_e32 v4, 0"]
    lines += ["s_mov_b64 exec, 1" if target == "gfx942" else "s_mov_b32 exec_lo, 1"]
    for place, register in enumerate(registers):
        lines += [f"v_mov_b32_e32 v5, {register}", f"global_store_{word} v4, v5, s[4:5] offset:{4 * place}"]
    return "\n".join(lines)


def launched(code: str, arguments: list, listed: str, size: int, target: str = "gfx1100", words: int = 16, **more: int):
    memory = Memory()
    out = memory.add("out", 4 * words)
    program = Program.parse(text(code, 1, target, listed, **{"kernarg_size": size, **more}))
    launch(program, memory, [out, *arguments], (3, 2, 1), 32, groups=[(2, 1, 0)])
    return memory.contents(out, np.uint32).tolist()


POINTER = "{.offset: 0, .size: 8, .value_kind: global_buffer}"


def test_arguments_of_mixed_sizes():
    listed = POINTER + "".join(
        f", {{.offset: {offset}, .size: {size}, .value_kind: by_value}}"
        for offset, size in ((8, 1), (10, 2), (12, 4), (16, 8), (24, 4), (28, 2))
    )
    code = "s_load_b128 s[8:11], s[0:1], 0x8\ns_load_b64 s[12:13], s[0:1], 0x18\ns_waitcnt lgkmcnt(0)\n"
    given = [np.int8(-2), 0x1234, -5, 0x123456789ABCDEF0, np.float32(1.5), np.float16(2.0)]
    words = launched(code + stored("gfx1100", *(f"s{n}" for n in range(8, 14))), given, listed, 30, words=6)
    assert words == [0x123400FE, 0xFFFFFFFB, 0x9ABCDEF0, 0x12345678, 0x3FC00000, 0x00004000]


def test_hidden_arguments():
    kinds = (
        "block_count_x",
        "block_count_y",
        "block_count_z",
        "group_size_x",
        "group_size_y",
        "remainder_x",
        "grid_dims",
    )
    sizes = (4, 4, 4, 2, 2, 2, 2)
    offsets = [8, 12, 16, 20, 22, 24, 26]
    listed = POINTER + "".join(
        f", {{.offset: {offset}, .size: {size}, .value_kind: hidden_{kind}}}"
        for kind, size, offset in zip(kinds, sizes, offsets, strict=True)
    )
    code = "s_load_b128 s[8:11], s[0:1], 0x8\ns_load_b32 s12, s[0:1], 0x18\ns_waitcnt lgkmcnt(0)\n"
    words = launched(code + stored("gfx1100", "s8", "s9", "s10", "s11", "s12"), [], listed, 32, words=5)
    assert words == [3, 2, 1, 32 | 1 << 16, 1 << 16]


def test_pointers_that_nobody_gives_are_null():
    """Triton adds some for itself."""
    code = "s_load_b64 s[8:9], s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\n"
    listed = POINTER + ", {.offset: 8, .size: 8, .value_kind: global_buffer}"
    assert launched(code + stored("gfx1100", "s8", "s9"), [], listed, 16, words=2) == [0, 0]
    with pytest.raises(MemoryFault, match="near no buffer"):
        launched(code + "v_mov_b32 v2, 0\nglobal_load_b32 v3, v2, s[8:9]", [], listed, 16)


def test_arguments_that_do_not_fit():
    listed = POINTER + ", {.offset: 8, .size: 4, .value_kind: by_value}"
    with pytest.raises(ValueError, match="k has 2 arguments, 1 were given"):
        launched("", [], listed, 12)
    with pytest.raises(ValueError, match="1 arguments too many for k"):
        launched("", [1, 2], listed, 12)
    with pytest.raises(ValueError, match="argument at 8 of k has 4 bytes"):
        launched("", [np.float64(1)], listed, 12)


def test_arguments_are_not_written():
    with pytest.raises(MemoryFault, match="only to be read"):
        run("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_store_b32 v2, v3, s[0:1]", 16)


@each_row("target", GENERATIONS)
def test_numbers_of_groups(target):
    """In registers that follow the arguments' address, on gfx12 in those of the trap handler."""
    own = ("ttmp9", "ttmp7") if target == "gfx1201" else ("s3", "s2")
    # The start of every kernel here takes the first: those behind it are read before.
    code = stored(target, own[0])
    assert launched(code, [], POINTER, 8, target, 1) == [2]
    if target == "gfx1201":
        assert launched(stored(target, "ttmp7"), [], POINTER, 8, target, 1) == [1]


def test_only_the_numbers_that_are_asked_for():
    kernel = text(
        stored("gfx1030", "s10", "s11", "s12"), 1, "gfx1030", system_sgpr_workgroup_id_y=1, system_sgpr_workgroup_id_z=1
    )
    kernel = kernel.replace("s_mov_b32 s3, s2", "s_mov_b32 s10, s2\ns_mov_b32 s11, s3\ns_mov_b32 s12, s4")
    memory = Memory()
    out = memory.add("out", 12)
    launch(Program.parse(kernel), memory, [out], (5, 6, 7), 32, groups=[(4, 3, 2)])
    assert memory.contents(out, np.uint32).tolist() == [4, 3, 2]


def test_every_group_runs_once():
    code = "v_mov_b32 v2, 1\nv_mov_b32 v4, 0\ns_mov_b32 exec_lo, 1\nv_mov_b32 v1, s3\nv_lshlrev_b32 v1, 2, v1\n"
    done = run(code + "global_atomic_add_u32 v1, v2, s[4:5]", np.zeros(7, np.uint32), groups=7)
    assert done.words() == [1] * 7


@each_row("target", ["gfx1030", "gfx1100"])
def test_numbers_of_threads(target):
    """One register for each dimension; from gfx11 on one for all, ten bits each."""
    word = "dword" if target == "gfx1030" else "b32"
    code = f"v_mov_b32_e32 v5, v1\nv_lshlrev_b32_e32 v4, 2, v0\nglobal_store_{word} v4, v0, s[4:5]"
    assert run(code, 128, target=target, system_vgpr_workitem_id=2).words() == list(range(32))


@each_row(("name", "value"), [
    ("float_round_mode_32", 1), ("float_denorm_mode_32", 0), ("float_denorm_mode_16_64", 0), ("fp16_overflow", 1),
])  # fmt: skip
def test_modes_that_are_not_known(name, value):
    with pytest.raises(UnknownInstruction, match=f"amdhsa_{name} {value}"):
        run("s_nop 0", **{name: value})


# Three registers with what is 8 bytes into the arguments, which the first lines load for firmware that does not.
PRELOADING = {"user_sgpr_count": 5, "user_sgpr_kernarg_preload_length": 3, "user_sgpr_kernarg_preload_offset": 2}
LISTED = POINTER + "".join(f", {{.offset: {offset}, .size: 4, .value_kind: by_value}}" for offset in (8, 12, 16, 20))


@each_row("preloaded", [False, True])
def test_arguments_in_registers(preloaded):
    loads = "s_load_dwordx2 s[2:3], s[0:1], 0x8\ns_load_dword s4, s[0:1], 0x10\ns_waitcnt lgkmcnt(0)\ns_branch .L0"
    start = f"k:\n{loads}\n.p2align 8\n.L0:\ns_mov_b64 s[12:13], s[2:3]\ns_mov_b32 s14, s4\ns_mov_b32 s2, s5\n"
    code = text(stored("gfx942", "s12", "s13", "s14", "s3"), 1, "gfx942", LISTED, kernarg_size=24, **PRELOADING)
    memory = Memory()
    out = memory.add("out", 16)
    program = Program.parse(code.replace("k:\n", start))
    counts = launch(program, memory, [out, 5, 6, 7, 8], (3, 1, 1), 64, groups=[(2, 0, 0)], preloaded=preloaded)
    assert memory.contents(out, np.uint32).tolist() == [5, 6, 7, 2]
    assert counts["s_branch"] == (not preloaded)


def test_no_entry_for_arguments_in_registers():
    with pytest.raises(ValueError, match="k has no entry for preloaded arguments"):
        launch(Program.parse(text("", target="gfx942")), Memory(), [], (1, 1, 1), 64, preloaded=True)


def test_registers_that_are_not_known():
    with pytest.raises(UnknownInstruction, match="wants its dispatch_ptr"):
        run("s_nop 0", user_sgpr_dispatch_ptr=1)


def test_lds_of_a_launch():
    """What the kernel declares and what the launch adds."""
    program = Program.parse(text("v_mov_b32 v2, 0\nds_store_b32 v1, v2 offset:128", group_segment_fixed_size=128))
    with pytest.raises(MemoryFault, match="LDS"):
        launch(program, Memory(), [], (1, 1, 1), 32)
    launch(program, Memory(), [], (1, 1, 1), 32, dynamic_lds=128)


def test_registers_that_nobody_set_are_no_numbers():
    done = run("global_store_b32 v1, v77, s[4:5]", 128)
    assert np.isnan(np.array(done.words(), np.uint32).view(np.float32)).all()


def test_what_is_counted():
    done = run("v_mov_b32 v2, 0\n" * 3 + "global_store_b32 v1, v2, s[4:5]", numbers(64), threads=64)
    assert (done.counts["v_mov_b32"], done.counts["global_store_b32"], done.counts["s_endpgm"]) == (6, 2, 2)
