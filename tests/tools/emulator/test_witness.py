"""The emulator against CPUs: functions that are no convolutions, compiled by clang for AMD GPUs and by cc for the host.

Every result must have the same bits; which NaN an operation makes is left out of the comparison.
"""

from __future__ import annotations

import ctypes
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

from tools.emulator import Memory, Program, launch

from ...tables import each_row
from ...thinning import deep_but
from .witness import make
from .witness.cases import Array, Case, cases, outputs

pytestmark = pytest.mark.once
FUNCTIONS = tuple(cases(32))
# Instructions that a target does not have.
ABSENT = {
    "lanes_of_gfx9": ("gfx1010", "gfx1030", "gfx1030_wave64", "gfx1100", "gfx1151", "gfx1201"),
    "lanes_of_gfx10": ("gfx90a", "gfx942"),
    "byte_dots": ("gfx1010",),
}
EVERY = [(text, name) for text in make.TEXTS for name in FUNCTIONS if text not in ABSENT.get(name, ())]


@cache
def modules_of(text: str) -> dict[str, str]:
    return make.modules(make.stored(text))


@cache
def expected() -> Any:
    return np.load(make.FOLDER / "expected.npz")


@cache
def known(wave: int) -> dict[str, Case]:
    return cases(wave)


def emulated(text: str, name: str, case: Case) -> list[Array]:
    """Run a function's assembly in the emulator and return its results."""
    memory = Memory()
    arguments: list[Any] = []
    for index, argument in enumerate(case.arguments):
        if isinstance(argument, np.ndarray):
            arguments.append(memory.add(str(index), argument, constant=index not in case.results))
        else:
            arguments.append(argument)
    launch(Program.parse(text, name), memory, arguments, grid=case.groups, threads=case.threads)
    kinds = (np.asarray(case.arguments[index]).dtype for index in case.results)
    return outputs(case, [memory.contents(arguments[i], kind) for i, kind in zip(case.results, kinds, strict=True)])


def check(text: str, name: str, wave: int, wanted: list[Array]) -> None:
    case = known(wave)[name]
    for made, right in zip(emulated(text, name, case), wanted, strict=True):
        wrong = np.flatnonzero(made != right)
        first = wrong[0] if len(wrong) else 0
        assert not len(wrong), f"{name}: {len(wrong)} differ, first {first}: {made[first]:#x}, not {right[first]:#x}"


def stored_results(name: str, wave: int) -> list[Array]:
    return [expected()[make.key(name, wave, index)] for index in range(len(known(wave)[name].results))]


@pytest.mark.parametrize("text", deep_but(make.TEXTS, "gfx1010", "gfx942"))
def test_the_emulator_computes_what_a_cpu_does(text: str) -> None:
    _, wave = make.TEXTS[text]
    for name in (name for each, name in EVERY if each == text):
        check(modules_of(text)[name], name, wave, stored_results(name, wave))


def test_each_text_has_each_function_but_those_its_target_cannot_run() -> None:
    for text in make.TEXTS:
        assert set(modules_of(text)) == {name for each, name in EVERY if each == text}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")
    return make.host_library(compiler, tmp_path_factory.mktemp("host"))


@each_row("name", FUNCTIONS)
def test_what_is_stored_is_what_this_cpu_computes(library: ctypes.CDLL, name: str) -> None:
    for wave in (32, 64) if name == "shuffles" else (32,):
        made = make.on_host(library, name, known(wave)[name])
        for each, right in zip(made, stored_results(name, wave), strict=True):
            np.testing.assert_array_equal(each, right)


@pytest.fixture(scope="module")
def fresh() -> dict[str, dict[str, str]]:
    """Return assembly of the clang that is installed here, one target of each generation."""
    compiler = make.clang()
    if compiler is None:
        pytest.skip("needs a clang that compiles for amdgcn")
    return {text: make.modules(make.compiled(compiler, text)) for text in ("gfx1010", "gfx1100", "gfx1201", "gfx942")}


@pytest.mark.parametrize("text", ["gfx1010", "gfx1100", "gfx1201", "gfx942"])
def test_what_the_clang_of_this_machine_compiles_runs_too(fresh: dict[str, dict[str, str]], text: str) -> None:
    _, wave = make.TEXTS[text]
    for name in ("int32_bits", "fp32_divide", "fp16_packed", "reduce_tree", "nested_branches", "private_array"):
        check(fresh[text][name], name, wave, stored_results(name, wave))


def test_a_changed_instruction_is_seen() -> None:
    """A comparison that nothing can fail proves nothing."""
    changed = modules_of("gfx1030")["reduce_tree"].replace("v_add_f32_e32", "v_sub_f32_e32", 1)
    with pytest.raises(AssertionError, match="differ"):
        check(changed, "reduce_tree", 32, stored_results("reduce_tree", 32))


def test_a_host_function_is_compared_by_every_bit(library: ctypes.CDLL) -> None:
    case = known(32)["fp32_divide"]
    right = make.on_host(library, "fp32_divide", case)[0]
    assert right.dtype == np.uint32
    assert (right == 0x80000000).any(), "a negative zero is among the results"
    assert (right == 0x7FC00000).any(), "and a NaN"
