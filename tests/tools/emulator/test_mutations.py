"""What a wrong kernel does is caught: mutations of the assembly that Triton makes, each a mistake of another kind.

A mutation is one change of one line that the kernel executes. The emulator ends the run, or the result is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import pytest

from tools.emulator import Deadlock, EmulationError, Endless, MemoryFault, NotWaitedFor, Race, machine
from yolo_rocm.engines.triton.available import missing_reason

from .compiled import Compiled, Wanted, compile_all

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

BASES = {
    "fma": Wanted("gfx1010", "fp32", (32, 16, 16, 2, 1)),
    "wmma": Wanted("gfx1100", "fp16", (32, 16, 16, 2, 1)),
    "mfma": Wanted("gfx942", "fp32", (32, 16, 16, 2, 2)),
    "rdna4": Wanted("gfx1201", "fp16", (32, 16, 16, 2, 1), "nchw"),
    "depthwise": Wanted("gfx1100", "fp16", (0, 0, 0, 0, 0), "nhwc", 12),
}
# No exception, but another result than in fp64.
WRONG = "wrong"
DROP = "; dropped"
# A register of each file, for patterns.
V, S, N = r"v\d+", r"s\d+", r"\d+"


@dataclass(frozen=True)
class Mutation:
    """A change of a line.

    Attributes:
        name: What it is.
        base: Of which kernel.
        pattern: The line, as a regular expression.
        change: What becomes of the match.
        caught: As what: exceptions, or a wrong result.
        number: Which of the executed lines that match; negative ones from the last.
        after: Only lines after the first that matches this.
    """

    name: str
    base: str
    pattern: str
    change: str | Callable[[re.Match[str]], str]
    caught: tuple[type[EmulationError] | str, ...]
    number: int = 0
    after: str = ""


def more(by: int) -> Callable[[re.Match[str]], str]:
    """Return a change of the number in the only group of a pattern."""

    def change(match: re.Match[str]) -> str:
        start, end = (match.start(1) - match.start(), match.end(1) - match.start())
        return match[0][:start] + str(int(match[1], 0) + by) + match[0][end:]

    return change


LOOP = r"s_waitcnt vmcnt\(0\)|s_wait_loadcnt 0x0"
MUTATIONS = (
    # Operands and registers.
    Mutation("factor and sum swapped", "fma", rf"(v_fmac_f32_e32) ({V}), ({V}), ", r"\1 \3, \2, ", (WRONG,)),
    Mutation("A and B of WMMA swapped", "wmma", r"(v_wmma\S+ v\S+), (v\S+), (v\S+), ", r"\1, \3, \2, ", (WRONG,)),
    Mutation(
        "next register", "fma", rf"(v_fmac_f32_e32 {V}, {V}, v)(\d+)",
        lambda m: m[1] + str(int(m[2]) + 1), (WRONG,),
    ),
    Mutation(
        "pixels outside are read", "wmma", rf"v_cndmask_b32_e64 ({V}), 0x80000000, ({V}), .*",
        r"v_mov_b32_e32 \1, \2", (WRONG, MemoryFault), -9,
    ),
    Mutation(
        "halves of VOPD swapped", "wmma", rf"(v_dual_cndmask_b32) ({V})(, .* :: v_dual_cndmask_b32) ({V})",
        r"\1 \4\3 \2", (WRONG, Race, MemoryFault),
    ),
    Mutation("upper half lost", "rdna4", r"ds_load_u16_d16_hi", "ds_load_u16_d16", (WRONG,)),
    Mutation("other type", "depthwise", r"(v_fma_mix_f32 .* op_sel_hi:\[)1", r"\g<1>0", (WRONG,), 4),
    # Constants.
    Mutation("one tap too few", "fma", rf"s_mul_i32 {S}, {S}, (6)$", more(-1), (WRONG,)),
    Mutation("shift", "fma", r"v_lshlrev_b64 \S+, (2),", more(-1), (WRONG, MemoryFault), 0, LOOP),
    Mutation("LDS offset", "fma", r"ds_read_b128 .* offset:(16)$", more(16), (WRONG,)),
    Mutation("second LDS offset", "mfma", r"ds_read2_b32 .* offset1:(8)$", more(1), (WRONG, MemoryFault)),
    Mutation(
        "offset of a load of a buffer", "wmma", r"(buffer_load_u16 .* offen)$",
        r"\1 offset:2", (WRONG, MemoryFault),
    ),
    Mutation("size of a buffer", "wmma", rf"(s_mov_b32 {S}), 0x7ffffffe$", r"\1, 0x40", (WRONG,)),
    # Masks and branches.
    Mutation(
        "edge of the image", "fma", rf"v_cmp_gt_i32_e(32|64) ({S}|vcc_lo), ({S}), ",
        r"v_cmp_ge_i32_e\1 \2, \3, ", (WRONG, MemoryFault), 0, LOOP,
    ),
    Mutation("all lanes load", "fma", r"s_and_saveexec_b32 .*", DROP, (MemoryFault, WRONG), 0, LOOP),
    Mutation(
        "loop never left", "wmma", r"s_cmp_lg_u32 (s\d+), 0",
        r"s_cmp_lg_u32 \1, -1", (MemoryFault, WRONG, Endless), -1,
    ),
    # Carries.
    Mutation(
        "carry lost", "fma", rf"v_add_co_ci_u32_e64 ({V}), {S}, (\S+), (\S+), {S}",
        r"v_add_nc_u32_e32 \1, \2, \3", (MemoryFault,), 0, LOOP,
    ),
    # Waits.
    Mutation("no wait for arguments", "fma", r"s_waitcnt lgkmcnt\(0\)", DROP, (NotWaitedFor,)),
    Mutation("no wait for loads", "fma", r"s_waitcnt vmcnt\(0\)", DROP, (NotWaitedFor,)),
    Mutation("wait for one LDS read less", "fma", r"s_waitcnt lgkmcnt\(([1-9])\)", more(1), (NotWaitedFor,)),
    Mutation("no wait for loads of gfx12", "rdna4", r"s_wait_loadcnt 0x0", DROP, (NotWaitedFor,)),
    Mutation("no wait for LDS of gfx12", "rdna4", r"s_wait_dscnt 0x0", DROP, (NotWaitedFor,), -1),
    Mutation("no wait before the barrier", "fma", r"s_waitcnt lgkmcnt\(0\)", DROP, (NotWaitedFor,), 0, "ds_write"),
    # Barriers.
    Mutation("no barrier before reads", "fma", r"s_barrier", DROP, (Race,), 0, "ds_write"),
    Mutation("barrier not signalled", "rdna4", r"s_barrier_signal -1", DROP, (Deadlock,)),
    Mutation("barrier not waited for", "rdna4", r"s_barrier_wait -1", DROP, (Deadlock, Race)),
)  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Compiled]:
    return dict(zip(BASES, compile_all(tmp_path_factory.mktemp("bases"), list(BASES.values())), strict=True))


@pytest.fixture(scope="module")
def executed(bases) -> dict[str, set[int]]:
    """Run every kernel as it is; return the lines that were executed."""
    lines: dict[str, set[int]] = {}
    for name, base in bases.items():
        ran: set[int] = set()
        counts = machine.Machine._counts

        def remember(self, ran=ran, counts=counts):
            pairs = zip(self._program.instructions, self._ran, strict=True)
            ran.update(instruction.line for instruction, times in pairs if times)
            return counts(self)

        with mock.patch.object(machine.Machine, "_counts", remember):
            assert base.error() <= base.allowed
        lines[name] = ran
    return lines


def mutated(text: str, executed: set[int], mutation: Mutation) -> str:
    """Return the text with the mutation in it."""
    lines = text.splitlines()
    first = next((number for number in sorted(executed) if re.search(mutation.after, lines[number - 1])), 0)
    code = [lines[number - 1].split(";")[0].rstrip() for number in range(1, len(lines) + 1)]
    sites = [
        n for n in sorted(executed) if n > first * bool(mutation.after) and re.search(mutation.pattern, code[n - 1])
    ]
    assert sites, f"nothing to mutate: {mutation.name}"
    site = sites[mutation.number] - 1
    lines[site] = re.sub(mutation.pattern, mutation.change, code[site], count=1)
    assert lines[site] != code[site]
    return "\n".join(lines)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_caught(bases, executed, mutation, monkeypatch):
    base = bases[mutation.base]
    text = mutated(base.text, executed[mutation.base], mutation)
    monkeypatch.setattr(machine, "MOST_BLOCKS", 5_000)
    caught: type[EmulationError] | str | None
    try:
        caught = None if base.error(text) <= base.allowed else WRONG
    except EmulationError as error:
        caught = type(error)
    assert caught in mutation.caught
