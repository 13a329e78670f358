"""Single instructions against values that were worked out from AMD's ISA documents by hand, not by the emulator."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.emulator import floats as float_tables
from tools.emulator import integers, lanes

from ...tables import each_row
from .instructions import floats, memory, scalar, seldom, vector
from .instructions.row import NAN, Row
from .single import EVERY, Kernel, Value, kernel, run, words
from .witness import make

pytestmark = pytest.mark.once
ROWS = (*scalar.ROWS, *vector.ROWS, *floats.ROWS, *memory.ROWS, *seldom.ROWS)


def names() -> list[str]:
    """Name each row by its last instruction, and number those with the same."""
    firsts = [row.text.split()[0] for row in ROWS]
    return [f"{name}-{firsts[:place].count(name)}" for place, name in enumerate(firsts)]


def single_words(values: Any) -> dict[str, Any]:
    """Spread values of 64 bits over their two registers."""
    spread: dict[str, Any] = {}
    for name, value in values.items():
        for place, word in enumerate(words(name)):
            shift = 32 * place
            if isinstance(value, int):
                spread[word] = value >> shift & 0xFFFFFFFF if "[" in name else value
            elif isinstance(value, str):
                spread[word] = value
            else:
                spread[word] = [each if isinstance(each, str) else each >> shift & 0xFFFFFFFF for each in value]
    return spread


def made(row: Row, target: str) -> tuple[Kernel, dict[str, Value], dict[str, Any]]:
    given, wanted = single_words(row.given), single_words(row.wanted)
    stored = [name.removesuffix(".l") for name in wanted]
    return kernel(target, row.text, given, stored), given, wanted


def check(row: Row, target: str) -> None:
    each, given, wanted = made(row, target)
    lanes = np.zeros((1, len(each.loaded), each.wave), np.uint32)
    for place, name in enumerate(each.loaded):
        listed = np.resize(np.array(given[name], np.uint32), each.wave)
        lanes[0, place] = listed
    found = run(each, lanes, 1)[0]
    for (name, value), register in zip(wanted.items(), found, strict=True):
        got = register & 0xFFFF if name.endswith(".l") else register
        right = value if isinstance(value, list) else [value] * (each.wave if name[0] == "v" and "_" not in name else 1)
        for lane, want in enumerate(right):
            where = f"{target}: {row.text}: {name}, lane {lane}"
            if want == NAN:
                assert np.isnan(got[lane : lane + 1].view(np.float32)[0]), where
            else:
                assert got[lane] == want, f"{where}: {got[lane]:#x}, not {want:#x}"


@each_row("row", ROWS, ids=names())
def test_an_instruction_does_what_the_manual_says(row: Row) -> None:
    for target in row.on:
        check(row, target)


def test_the_table_is_as_large_as_it_claims() -> None:
    """Formats: SOP2, SOPK, SOP1, SOPC, VOP1, VOP2, VOP3, VOP3P, VOPC, VOPD, SDWA, DPP, DS."""
    assert len(ROWS) > 200
    assert all(any(target in row.on for row in ROWS) for target in EVERY)


@pytest.mark.parametrize("target", EVERY)
def test_an_assembler_takes_every_text(target: str, tmp_path: Path) -> None:
    """A row that no assembler takes tests nothing."""
    compiler = make.clang()
    if compiler is None:
        pytest.skip("needs a clang that assembles for amdgcn")
    codes = [made(row, target)[0].code for row in ROWS if target in row.on]
    (tmp_path / "every.s").write_text("\n".join(codes) + "\n")
    command = [compiler, "--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-c", "every.s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def test_a_wrong_value_is_seen() -> None:
    with pytest.raises(AssertionError, match="v3, lane 0"):
        check(Row("v_add_f32_e32 v3, v1, v2", {"v1": 0, "v2": 0}, {"v3": 1}, on=("gfx1100",)), "gfx1100")


# In the tables, and in no text of a target that is run here.
UNWITNESSED = {
    "v_dot2c_f32_bf16": "gfx950",
    "v_permlane64_b32": "waves of 64 threads on gfx11",
}


def mnemonics(text: str) -> set[str]:
    """Return the instructions of a text, without their encodings."""
    found = re.findall(r"(?:^|::)\s*((?:v|s|ds|global|buffer|scratch)_\w+)", text, re.MULTILINE)
    return {re.sub(r"(_e64_dpp|_e32|_e64|_dpp|_sdwa)$", "", name).replace("v_dual_", "v_") for name in found}


def test_every_instruction_of_the_vector_tables_has_a_witness() -> None:
    texts = [make.stored(text) for text in make.TEXTS]
    texts += [made(row, target)[0].code for row in ROWS for target in row.on]
    seen = set().union(*map(mnemonics, texts))
    aliases = {**integers.ALIASES, **float_tables.ALIASES}
    seen |= {aliases[name] for name in seen if name in aliases}
    known = {*integers.TABLE, *float_tables.TABLE, *lanes.STEPS}
    assert known - seen - set(UNWITNESSED) == set()
