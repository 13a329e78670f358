"""Kernels written by hand, for the emulator's own tests.

Before the lines of a test, every kernel puts the addresses of its buffers into s[4:5], s[6:7] and so on, the number of
its group into s3, that of its wave in the group into s2, and four times the number of the thread into v1; v0 has the
number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.emulator import Buffer, Memory, Program, launch

NEWEST = "gfx1100"
# One of each generation, with the words of its own.
GENERATIONS = ("gfx942", "gfx1030", "gfx1100", "gfx1201")
# The parts of a kernel that take part by the number of the wave: those of wave 0 and those of the others.
TWO_WAVES = """
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 others
    {first}
    s_branch together
others:
    {others}
together:
    {then}
"""


@dataclass(frozen=True)
class Ran:
    """What is left after a launch."""

    memory: Memory
    buffers: list[Buffer]
    counts: Counter[str]

    def words(self, number: int = 0, dtype: Any = np.uint32) -> list[int]:
        """Return the contents of a buffer."""
        return list(self.memory.contents(self.buffers[number], dtype).tolist())


def text(code: str, buffers: int = 0, target: str = NEWEST, arguments: str | None = None, **descriptor: int) -> str:
    """Return the assembly of a kernel that does some lines."""
    wave32 = not target.startswith("gfx9") and descriptor.get("wavefront_size32", 1)
    words = {
        "user_sgpr_kernarg_segment_ptr": 1, "kernarg_size": 8 * buffers, "system_sgpr_workgroup_id_x": 1,
        **({} if target.startswith("gfx9") else {"wavefront_size32": 1}), **descriptor,
    }  # fmt: skip
    one = "{.offset: %d, .size: 8, .value_kind: global_buffer}"
    listed = arguments if arguments is not None else ", ".join(one % (8 * number) for number in range(buffers))
    return "\n".join([
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"', "\t.text", "k:",
        *_start(buffers, target, 5 if wave32 else 6), code, "\ts_endpgm", "\t.section .rodata", "\t.amdhsa_kernel k",
        *(f"\t\t.amdhsa_{name} {value}" for name, value in words.items()), "\t.end_amdhsa_kernel", "\t.amdgpu_metadata",
        "---", "amdhsa.kernels:", f"  - {{.name: k, .args: [{listed}]}}", "...", "\t.end_amdgpu_metadata",
    ])  # fmt: skip


def _start(buffers: int, target: str, log_wave: int) -> list[str]:
    old = target.startswith(("gfx9", "gfx10"))
    load = "s_load_dwordx2" if old else "s_load_b64"
    return [
        f"s_mov_b32 s3, {'ttmp9' if target.startswith('gfx12') else 's2'}",
        *(f"{load} s[{4 + 2 * number}:{5 + 2 * number}], s[0:1], {8 * number:#x}" for number in range(buffers)),
        "v_readfirstlane_b32 s2, v0",
        f"s_lshr_b32 s2, s2, {log_wave}",
        "v_lshlrev_b32_e32 v1, 2, v0",
        "s_wait_kmcnt 0x0" if target.startswith("gfx12") else "s_waitcnt lgkmcnt(0)",
    ]


def run(
    code: str,
    *buffers: Any,
    target: str = NEWEST,
    threads: int = 32,
    groups: int = 1,
    constant: tuple[int, ...] = (),
    **descriptor: int,
) -> Ran:
    """Run lines of assembly.

    Args:
        code: The lines.
        buffers: Contents of each buffer, or its size in bytes where nobody has written it.
        target: For which GPU.
        threads: Work items of a group.
        groups: How many groups.
        constant: Numbers of the buffers that must not be written.
        descriptor: `.amdhsa_*` directives.
    """
    memory = Memory()
    added = [memory.add(f"b{n}", contents, constant=n in constant) for n, contents in enumerate(buffers)]
    program = Program.parse(text(code, len(buffers), target, **descriptor))
    return Ran(memory, added, launch(program, memory, added, (groups, 1, 1), threads))


def numbers(count: int) -> Any:
    """Return a buffer of the first numbers."""
    return np.arange(count, dtype=np.uint32)
