"""Memory instructions: what they move, and where to."""

from __future__ import annotations

import numpy as np
import pytest

from tools.emulator import Memory, MemoryFault, NotWaitedFor, Program, launch

from ...tables import each_row
from .assembled import numbers, run, text

pytestmark = pytest.mark.once

STORE = "global_store_b32 v1, v2, s[4:5]"
BYTES = np.arange(128, dtype=np.uint8) + 100  # from 100 to 227: negative ones among them


def loaded(load: str, contents, before: int = 0) -> list[int]:
    code = f"v_mov_b32 v2, {before:#x}\n{load}\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_b32 v1, v2, s[6:7]"
    return run(code, contents, 128).words(1)


@each_row(("name", "size", "dtype"), [
    ("u8", 1, np.uint8), ("i8", 1, np.int8), ("u16", 2, np.uint16), ("i16", 2, np.int16), ("b32", 4, np.uint32),
])  # fmt: skip
def test_sizes_of_loads(name, size, dtype):
    values = BYTES.view(dtype)[: 32 * 4 // size]
    got = loaded(f"global_load_{name} v2, v1, s[4:5]", BYTES)
    assert got == values[:: 4 // size].astype(np.int64).astype(np.uint32).tolist()


@each_row("load", ["global_load_short_d16{} v2, v1, s[4:5]", "ds_read_u16_d16{} v2, v1"])
def test_what_becomes_of_the_other_half(load):
    """It is kept, but zero on CDNA, whose registers have ECC; two loads in order fill a register."""
    start = "v_mov_b32_e32 v2, 1\nds_write_b32 v1, v2\nv_mov_b32_e32 v2, 0x12345678\n"
    end = "s_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]"

    def first(target: str, *halves: str) -> int:
        code = start + "".join(f"{load.format(half)}\n" for half in halves) + end
        return run(code, np.ones(64, np.uint32), 256, target=target, group_segment_fixed_size=512).words(1)[0]

    assert [first("gfx1030", half) for half in ("", "_hi")] == [0x12340001, 0x00015678]
    assert first("gfx1030", "", "_hi") == 0x00010001
    for target in ("gfx90a", "gfx942"):
        assert [first(target, half) for half in ("", "_hi")] == [0x00000001, 0x00010000]
        assert first(target, "", "_hi") == 0x00010000


def test_scalar_loads():
    code = "s_mov_b32 s20, 8\ns_load_b32 s21, s[4:5], s20 offset:0x4\ns_load_b128 s[24:27], s[4:5], 0x10\n"
    code += "s_waitcnt lgkmcnt(0)\ns_add_u32 s21, s21, s27\nv_mov_b32 v2, s21\nglobal_store_b32 v1, v2, s[6:7]"
    assert run(code, numbers(32), 128).words(1) == [3 + 7] * 32


@each_row(("store", "load"), [
    ("ds_store_b32 v1, v0", "ds_load_b32 v2, v1"),
    ("ds_store_2addr_b32 v1, v0, v0 offset0:0 offset1:64", "ds_load_2addr_b32 v[2:3], v1 offset0:64 offset1:0"),
    ("ds_store_2addr_stride64_b32 v1, v0, v0 offset1:1", "ds_load_b32 v2, v1 offset:256"),
    ("ds_store_b32 v1, v0 offset:512", "ds_load_2addr_stride64_b32 v[2:3], v1 offset0:2 offset1:2"),
])  # fmt: skip
def test_lds(store, load):
    code = f"{store}\n{load}\ns_waitcnt lgkmcnt(0)\n{STORE}"
    assert run(code, 128, group_segment_fixed_size=1024).words() == list(range(32))


# Scratch, by its own instructions and by a buffer's descriptor.
def test_scratch():
    code = "v_mov_b32 v2, v0\nscratch_store_b32 off, v2, off offset:4\nv_mov_b32 v2, 0\nv_mov_b32 v3, 4\n"
    code += "{}\ns_waitcnt vmcnt(0)\n" + STORE
    for load in ("scratch_load_b32 v2, off, off offset:4", "scratch_load_b32 v2, v3, off",
                 "s_mov_b32 s20, 4\nscratch_load_b32 v2, off, s20"):  # fmt: skip
        assert run(code.format(load), 256, threads=64, private_segment_fixed_size=16).words() == list(range(64))
    with pytest.raises(MemoryFault, match="out of bounds: 4 bytes at scratch"):
        run(code.format("scratch_load_b32 v2, off, off offset:16"), 256, private_segment_fixed_size=16)
    with pytest.raises(MemoryFault, match="which nobody has written"):
        run(code.format("scratch_load_b32 v2, off, off offset:8"), 256, private_segment_fixed_size=16)
    with pytest.raises(NotWaitedFor):
        run(code.format("scratch_load_b32 v2, off, off offset:4").replace("s_waitcnt vmcnt(0)", ""), 256,
            private_segment_fixed_size=16)  # fmt: skip


def test_scratch_by_a_buffer():
    """The first four registers describe it, and the address of the arguments follows."""
    code = "v_mov_b32_e32 v2, v0\nbuffer_store_dword v2, off, s[40:43], 0 offset:4\nv_mov_b32_e32 v3, 4\n{}\n"
    code += "s_waitcnt vmcnt(0)\nglobal_store_dword v1, v2, s[4:5]"

    def words(load: str) -> list[int]:
        wanted = {"user_sgpr_private_segment_buffer": 1, "system_sgpr_private_segment_wavefront_offset": 1}
        kernel = text(code.format(load), 1, "gfx1030", private_segment_fixed_size=16, **wanted)
        start = "s_mov_b64 s[40:41], s[0:1]\ns_mov_b64 s[42:43], s[2:3]\ns_mov_b64 s[0:1], s[4:5]\ns_mov_b32 s3, s6"
        memory = Memory()
        out = memory.add("out", 256)
        launch(Program.parse(kernel.replace("s_mov_b32 s3, s2", start)), memory, [out], (1, 1, 1), 64)
        return memory.contents(out, np.uint32).tolist()

    assert words("buffer_load_dword v2, off, s[40:43], 0 offset:4") == list(range(64))
    assert words("buffer_load_dword v2, v3, s[40:43], 0 offen") == list(range(64))
    with pytest.raises(MemoryFault, match="out of bounds: 4 bytes at scratch"):
        words("buffer_load_dword v2, off, s[40:43], 0 offset:16")


# A buffer of 64 bytes at the first address, as each generation describes one without a stride.
DESCRIPTORS = {"gfx942": 0x27000, "gfx1030": 0x31027000, "gfx1100": 0x31027000, "gfx1201": 0x31027000}
DESCRIBED = "s_mov_b64 s[20:21], s[4:5]\ns_and_b32 s21, s21, 0xffff\ns_mov_b32 s22, {}\ns_mov_b32 s23, {:#x}\n"


def described(target: str, code: str, size: int = 64, word: int | None = None) -> str:
    old = target in ("gfx942", "gfx1030")
    code = code.replace("<b32>", "dword" if old else "b32")
    code = code.replace("<wait>", "s_wait_loadcnt 0x0" if target == "gfx1201" else "s_waitcnt vmcnt(0)")
    return DESCRIBED.format(size, DESCRIPTORS[target] if word is None else word) + code


READ_BUFFER = "buffer_load_<b32> v2, v1, s[20:23], 0 offen{}\n<wait>\nglobal_store_<b32> v1, v2, s[6:7]"


@each_row("target", DESCRIPTORS)
def test_behind_the_end_of_a_buffer(target):
    """Loads give 0 and stores do nothing: masks are made that way."""
    lanes = 64 if target == "gfx942" else 32
    read = described(target, READ_BUFFER.format(""))
    words = run(read, numbers(lanes), 4 * lanes, target=target, threads=lanes).words(1)
    assert words == list(range(16)) + [0] * (lanes - 16)
    read = described(target, READ_BUFFER.format(" offset:8"))
    words = run(read, numbers(lanes), 4 * lanes, target=target, threads=lanes).words(1)
    assert words == list(range(2, 16)) + [0] * (lanes - 14)
    write = described(target, "v_mov_b32_e32 v2, 7\nbuffer_store_<b32> v2, v1, s[20:23], 0 offen")
    words = run(write, np.zeros(lanes, np.uint32), target=target, threads=lanes).words()
    assert words == [7] * 16 + [0] * (lanes - 16)


@each_row("target", DESCRIPTORS)
def test_a_scalar_offset_counts_in_the_check(target):
    """On RDNA it shortens the buffer. On CDNA AMD's document and AMD's simulator differ: nothing may depend on it."""
    lanes = 64 if target == "gfx942" else 32
    read = described(target, READ_BUFFER.format("").replace("s[20:23], 0", "s[20:23], s24"))
    read = f"s_mov_b32 s24, {{}}\n{read}"

    def words(offset: int, size: int) -> list[int]:
        code = read.format(offset).replace("s_mov_b32 s22, 64", f"s_mov_b32 s22, {size}")
        return run(code, numbers(2 * lanes), 4 * lanes, target=target, threads=lanes).words(1)

    assert words(8, 4 * lanes + 8) == list(range(2, lanes + 2))
    if target == "gfx942":
        with pytest.raises(MemoryFault, match="a scalar offset takes an access beyond the buffer's size"):
            words(8, 64)
        assert words(8, 0) == [0] * lanes  # outside either way
    else:
        assert words(8, 64) == list(range(2, 16)) + [0] * (lanes - 14)
        assert words(1 << 31, 64) == [0] * lanes


@each_row("target", DESCRIPTORS)
def test_an_offset_beyond_32_bits(target):
    """It wraps on CDNA, where nothing may depend on it; on RDNA it is outside."""
    lanes = 64 if target == "gfx942" else 32
    far = READ_BUFFER.replace("v1, s[20:23]", "v3, s[20:23]").format(" offset:8")
    read = described(target, f"v_mov_b32_e32 v3, -4\n{far}")
    if target == "gfx942":
        with pytest.raises(MemoryFault, match="the offset into a buffer is beyond 32 bits"):
            run(read, numbers(lanes), 4 * lanes, target=target, threads=lanes)
    else:
        assert run(read, numbers(lanes), 4 * lanes, target=target, threads=lanes).words(1) == [0] * lanes


def test_buffers_that_are_larger_than_they_say():
    """A descriptor that ends behind its memory is no licence."""
    with pytest.raises(MemoryFault, match=r"out of bounds: reads 4 bytes at b0\+0x40"):
        run(described("gfx1100", READ_BUFFER.format(""), 128), numbers(16), 128)
    with pytest.raises(MemoryFault, match="across the end of a buffer's descriptor"):
        run(described("gfx1100", READ_BUFFER.format(""), 62), numbers(32), 128)


def test_buffers_by_a_stride_of_zero_have_nothing_inside():
    """What descriptors of CDNA mean on RDNA: every load gives 0."""
    for target in ("gfx1030", "gfx1100", "gfx1201"):
        code = described(target, READ_BUFFER.format(""), word=DESCRIPTORS["gfx942"])
        assert run(code, numbers(32), 128, target=target).words(1) == [0] * 32


def test_lanes_change_places():
    rotate = "v_add_nc_u32 v3, 4, v1\nds_bpermute_b32 v2, v3, v0\ns_waitcnt lgkmcnt(0)\n" + STORE
    assert run(rotate, 128).words() == [*range(1, 32), 0]
    swap = "ds_swizzle_b32 v2, v0 offset:swizzle(SWAP,16)\ns_waitcnt lgkmcnt(0)\n" + STORE
    assert run(swap, 128).words() == [*range(16, 32), *range(16)]
