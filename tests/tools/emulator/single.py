"""A few instructions as a kernel: registers are loaded before them and stored after them, for any target.

Each lane has a value of its own in every register that is loaded. `v250` is four times the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.emulator import Memory, Program, launch

from .assembled import text

Array = np.ndarray[Any, Any]
# Until loads are done.
_WAITS: Final = {9: "s_waitcnt vmcnt(0)", 10: "s_waitcnt vmcnt(0)", 11: "s_waitcnt vmcnt(0)", 12: "s_wait_loadcnt 0x0"}


@dataclass(frozen=True)
class Kernel:
    """A kernel, which registers it loads per group, and which it stores."""

    program: Program
    loaded: tuple[str, ...]
    stored: tuple[str, ...]
    wave: int


def kernel(target: str, body: str, loaded: Sequence[str], stored: Sequence[str]) -> Kernel:
    """Return a kernel that loads vector registers, runs `body` and stores registers, vector or scalar ones."""
    generation, wave = int(target[3:-2]), 32 if target.startswith("gfx1") else 64
    word, add, carry = (
        "b32" if generation > 10 else "dword",
        "s_add_co_u32" if generation == 12 else "s_add_u32",
        "s_add_co_ci_u32" if generation == 12 else "s_addc_u32",
    )

    def moved(pointer: int, by: str) -> list[str]:
        return [f"{add} s{pointer}, s{pointer}, {by}", f"{carry} s{pointer + 1}, s{pointer + 1}, 0"]

    lines = ["v_mov_b32_e32 v250, v1"]
    for pointer, count in ((4, len(loaded)), (6, len(stored))):
        lines += [f"s_mul_i32 s12, s3, {4 * wave * count:#x}", *moved(pointer, "s12")]
    for name in loaded:
        lines += [f"global_load_{word} {name}, v250, s[4:5]", *moved(4, hex(4 * wave))]
    lines += [_WAITS[generation], *(line.strip() for line in body.strip().splitlines())]
    lines += ["s_mov_b64 exec, -1" if wave == 64 else "s_mov_b32 exec_lo, -1"]
    for name in stored:
        lines += [f"v_mov_b32_e32 v251, {name}", f"global_store_{word} v250, v251, s[6:7]", *moved(6, hex(4 * wave))]
    code = text("\n".join(lines), 2, target, group_segment_fixed_size=4096)
    return Kernel(Program.parse(code), tuple(loaded), tuple(stored), wave)


def run(made: Kernel, given: Array, groups: int) -> Array:
    """Run a kernel; `given` is groups x registers x lanes, and so is what it returns."""
    memory = Memory()
    source = memory.add("given", np.ascontiguousarray(given, np.uint32).ravel())
    result = memory.add("result", np.zeros(groups * len(made.stored) * made.wave, np.uint32))
    launch(made.program, memory, [source, result], grid=(groups, 1, 1), threads=made.wave)
    after: Array = memory.contents(result, np.uint32)
    return after.reshape(groups, len(made.stored), made.wave)
