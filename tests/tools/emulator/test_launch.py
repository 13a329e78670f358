"""Launches: arguments, registers at the start, modes."""

from __future__ import annotations

import numpy as np
import pytest

from tools.emulator import Memory, Program, UnknownInstruction, launch

from ...tables import each_row
from .assembled import GENERATIONS, run, text

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


def test_arguments_that_do_not_fit():
    listed = POINTER + ", {.offset: 8, .size: 4, .value_kind: by_value}"
    with pytest.raises(ValueError, match="k has 2 arguments, 1 were given"):
        launched("", [], listed, 12)
    with pytest.raises(ValueError, match="1 arguments too many for k"):
        launched("", [1, 2], listed, 12)


@each_row("target", GENERATIONS)
def test_numbers_of_groups(target):
    """In registers that follow the arguments' address, on gfx12 in those of the trap handler."""
    own = ("ttmp9", "ttmp7") if target == "gfx1201" else ("s3", "s2")
    # The start of every kernel here takes the first: those behind it are read before.
    code = stored(target, own[0])
    assert launched(code, [], POINTER, 8, target, 1) == [2]
    if target == "gfx1201":
        assert launched(stored(target, "ttmp7"), [], POINTER, 8, target, 1) == [1]


@each_row(("name", "value"), [
    ("float_round_mode_32", 1), ("float_denorm_mode_32", 0), ("float_denorm_mode_16_64", 0), ("fp16_overflow", 1),
])  # fmt: skip
def test_modes_that_are_not_known(name, value):
    with pytest.raises(UnknownInstruction, match=f"amdhsa_{name} {value}"):
        run("s_nop 0", **{name: value})
