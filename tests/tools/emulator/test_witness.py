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

from ...thinning import deep_but
from .witness import make
from .witness.cases import Array, Case, cases, outputs

pytestmark = pytest.mark.once
CASES = cases()


@cache
def modules_of(text: str) -> dict[str, str]:
    return make.modules(make.stored(text))


@cache
def expected() -> Any:
    return np.load(make.FOLDER / "expected.npz")


def emulated(text: str, case: Case) -> list[Array]:
    """Run a function's assembly in the emulator and return its results."""
    memory = Memory()
    arguments: list[Any] = []
    for index, argument in enumerate(case.arguments):
        if isinstance(argument, np.ndarray):
            argument = memory.add(str(index), argument, constant=index not in case.results)
        arguments.append(argument)
    launch(Program.parse(text), memory, arguments, grid=case.groups, threads=case.threads)
    kinds = (np.asarray(case.arguments[index]).dtype for index in case.results)
    return outputs(case, [memory.contents(arguments[i], kind) for i, kind in zip(case.results, kinds, strict=True)])


def check(name: str, results: list[Array]) -> None:
    for index, made in enumerate(results):
        np.testing.assert_array_equal(made, expected()[f"{name}.{index}"], err_msg=name)


@pytest.mark.parametrize("text", deep_but(make.TEXTS, "gfx1010", "gfx942"))
def test_the_emulator_computes_what_a_cpu_does(text: str) -> None:
    """And a changed instruction is seen: a comparison that nothing can fail proves nothing."""
    modules = modules_of(text)
    assert CASES.keys() - modules.keys() <= {"lanes_of_gfx9"}
    for name, module in modules.items():
        check(name, emulated(module, CASES[name]))
    changed = modules["reduce_tree"].replace("v_add_f32_e32", "v_sub_f32_e32", 1)
    with pytest.raises(AssertionError, match="reduce_tree"):
        check("reduce_tree", emulated(changed, CASES["reduce_tree"]))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")
    return make.host_library(compiler, tmp_path_factory.mktemp("host"))


def test_what_is_stored_is_what_this_cpu_computes_to_the_last_bit(library: ctypes.CDLL) -> None:
    for name, case in CASES.items():
        check(name, make.on_host(library, name, case))
    quotients = make.on_host(library, "fp32_divide", CASES["fp32_divide"])[0]
    assert {0x80000000, 0x7FC00000} <= set(quotients.tolist())  # a negative zero and a NaN are among the results


@pytest.mark.parametrize("text", ["gfx1010", "gfx1100", "gfx1201", "gfx942"])
def test_what_the_clang_of_this_machine_compiles_runs_too(text: str) -> None:
    compiler = make.clang()
    if compiler is None:
        pytest.skip("needs a clang that compiles for amdgcn")
    modules = make.modules(make.compiled(compiler, text))
    for name in ("int32_bits", "fp32_divide", "reduce_tree", "nested_branches", "private_array"):
        check(name, emulated(modules[name], CASES[name]))
