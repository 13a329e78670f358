"""Which cases of a grid run by default."""

from __future__ import annotations

from itertools import product

import pytest

from .thinning import sample

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.once


def test_a_sample_has_every_value_and_no_value_always_beside_the_same():
    grid = list(product(range(12), "ab", "xyz"))
    kept = [grid[place] for place in sample(grid)]
    assert len(kept) == 12
    assert [len({values[axis] for values in kept}) for axis in range(3)] == [12, 2, 3]
    assert len({values[1:] for values in kept}) == 6
    assert len(sample(list(product(range(3), range(4), "ab", "cd", "efgh")))) == 14
    assert len(sample([(number,) for number in range(30)])) == 30


CASES = """
import pytest

@pytest.fixture(params=["cpu", "cuda"])
def device(request): ...

@pytest.mark.parametrize("size", range(5))
@pytest.mark.parametrize("kind", ["a", "b", pytest.param("skipped", marks=pytest.mark.skipif(True, reason="x"))])
def test_grid(kind, size, device): ...

@pytest.mark.whole_grid
@pytest.mark.parametrize("size", range(5))
@pytest.mark.parametrize("kind", "ab")
def test_whole(kind, size): ...

@pytest.mark.parametrize("size", range(20))
def test_list(size): ...

@pytest.mark.parametrize("size", range(2))
@pytest.mark.parametrize("kind", "ab")
def test_small(kind, size): ...
"""
CONFTEST = """
from tests.thinning import mark_deep

def pytest_collection_modifyitems(config, items):
    mark_deep(items, named=lambda nodeid: any(each.endswith(nodeid) for each in config.args))
    for item in items:
        print(item.name, "deep" if item.get_closest_marker("deep") else "kept")
"""


@pytest.fixture
def marked(pytester):
    def collect(*words):
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_cases=CASES)
        result = pytester.runpytest_inprocess("--collect-only", "-q", "-W", "ignore", *words)
        return [line.split() for line in result.outlines if line.endswith((" kept", " deep"))]

    return collect


def test_products_are_thinned_on_each_machine_and_lists_are_not(marked):
    found = marked()
    kept = [name for name, mark in found if mark == "kept"]
    grid = [name for name in kept if name.startswith("test_grid") and "skipped" not in name]
    assert len(grid) == 10
    for device in ("cpu", "cuda"):
        assert {name.split("-")[-1] for name in grid if device in name} == {f"{size}]" for size in range(5)}
    assert sum(name.startswith("test_whole") for name in kept) == 10
    assert sum(name.startswith("test_list") for name in kept) == 20
    assert sum(name.startswith("test_small") for name in kept) == 4
