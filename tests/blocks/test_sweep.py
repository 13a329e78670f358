"""Random networks in random ways, against stock torch: outputs, gradients and running statistics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import pytest
import torch

from .sweep import WAYS, Program, Results, program, results

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2}
OURS = tuple(way for way in WAYS if way != "functorch" or hasattr(torch, "func"))
# Of the mistakes that this was made for: a strided and dilated convolution with pixels that no output sees (378, 866),
# lean memory that gives one channel back in other strides (612). Whoever changes `program` looks for others.
SHOWN = (378, 612, 866)


def departures(found: Results, native: Results, exact: Results, rounding: float) -> list[str]:
    """Return what departs from fp64 by more than a multiple of what torch's own results do."""
    if found.keys() != exact.keys():
        return [f"{sorted(found)} instead of {sorted(exact)}"]
    largest = max(float(each.norm()) for each in exact.values())
    wrong = []
    for name, right in exact.items():
        apart, theirs = (float((each[name].double() - right).norm()) for each in (found, native))
        theirs = 0.0 if math.isnan(theirs) else theirs  # as torch's own in bf16 sometimes are
        if not apart <= 4 * theirs + rounding * largest:  # some are zero but for rounding
            wrong.append(f"{name} by {apart / max(float(right.norm()), 1e-300):.1e} (torch's own: {theirs:.1e})")
    return wrong


def check(given: Program) -> None:
    """Run a program by torch alone and by us, in full memory and, where it says so, in lean memory."""
    exact = results(given, ours=False, dtype=torch.float64)
    native = exact if given.dtype == torch.float64 else results(given, ours=False)
    found = results(given, ours=True)
    wrong = departures(found, native, exact, ROUNDING[given.dtype])
    assert not wrong, f"{given}\ndeparts from torch: {wrong}"
    if given.lean:
        kept = results(given, ours=True, lean_on=True)
        other = [name for name, value in found.items() if not torch.equal(value, kept[name])]
        assert not other, f"{given}\nhas other bits in lean memory: {other}"


def sweep(seeds: Iterable[int]) -> None:
    for seed in seeds:
        given = program(seed, OURS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(given)
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(f"{given}\nraises {type(error).__name__}: {error}") from error


def test_a_sample():
    sweep((*range(60), *SHOWN))


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_many(first):
    sweep(range(first, first + 500))
