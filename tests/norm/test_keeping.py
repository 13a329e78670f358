"""What is computed again: once for all that ask for it, and there no longer than until the last of them has it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch

from yolo_rocm.norm import lean
from yolo_rocm.norm.keeping import Activation, Derived, Kept, View

from .stand_in import offer


class Noted:
    """Computes a tensor, and notes each time weakly what it has returned."""

    def __init__(self, compute: Callable[..., torch.Tensor]) -> None:
        self._compute = compute
        self.returned: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, *parts: torch.Tensor) -> torch.Tensor:
        """Compute it."""
        value = self._compute(*parts)
        self.returned.append(weakref.ref(value))
        return value

    @property
    def alive(self) -> int:
        """How many of the returned ones are still there."""
        return sum(each() is not None for each in self.returned)


@pytest.fixture
def source() -> torch.Tensor:
    return torch.arange(8.0).reshape(2, 4)


@pytest.fixture
def twice(source: torch.Tensor) -> Noted:
    return Noted(lambda: source * 2)


@pytest.fixture
def activation(source: torch.Tensor, twice: Noted) -> Activation:
    return Activation(source * 2, twice, [source])


def used(recipe: Activation | View | Derived, times: int) -> None:
    for _ in range(times):
        recipe.use()


@pytest.mark.parametrize("uses", [0, 1, 2, 3])
def test_it_is_computed_for_the_first_and_gone_with_the_last(
    activation: Activation, source: torch.Tensor, twice: Noted, uses: int
) -> None:
    used(activation, uses)
    for backward in range(3):  # of a graph that is retained
        for number in range(max(uses, 1)):
            assert torch.equal(activation.value(), source * 2)
            assert len(twice.returned) == backward + 1
            assert twice.alive == (number + 1 < uses)


def test_whoever_changes_it_has_it_alone(activation: Activation, source: torch.Tensor, twice: Noted) -> None:
    used(activation, 3)
    activation.value().add_(1)
    assert torch.equal(activation.value(), source * 2)
    assert len(twice.returned) == 2
    assert torch.equal(activation.value(), source * 2)
    assert len(twice.returned) == 2
    assert twice.alive == 0


def test_a_source_that_was_changed_is_refused_until_it_was_read(activation: Activation, source: torch.Tensor) -> None:
    used(activation, 1)
    kept = Kept(source, source._version)
    source.add_(1)
    for each in (activation, kept):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            each.value()


def test_parts_are_computed_once_for_a_result_and_for_others(
    activation: Activation, source: torch.Tensor, twice: Noted
) -> None:
    """As in a network's block of two halves, one of which goes on: both are joined, and so is what came of the one."""
    whole = source * 2
    halves = [View(half, whole, activation) for half in whole.chunk(2, 1)]
    total, joined = Noted(torch.add), Noted(lambda *parts: torch.cat(parts, 1))
    summed = Derived(whole[:, :2] + 1, lambda part: total(part, torch.ones(())), [halves[0]])
    result = Derived(torch.cat([whole, whole[:, :2] + 1], 1), joined, [*halves, summed])
    used(result, 2)
    used(summed, 1)
    used(halves[0], 1)
    for _ in range(2):
        assert torch.equal(result.value(), torch.cat([whole, whole[:, :2] + 1], 1))
    assert (len(twice.returned), len(total.returned), len(joined.returned)) == (1, 1, 1)
    assert (twice.alive, total.alive, joined.alive) == (1, 1, 0)
    assert torch.equal(summed.value(), whole[:, :2] + 1)
    assert torch.equal(halves[0].value(), whole[:, :2])
    assert (len(twice.returned), len(total.returned)) == (1, 1)
    assert (twice.alive, total.alive) == (0, 0)


def branches(x: torch.Tensor, made: Noted) -> list[torch.Tensor]:
    """Return the squares of an activation, by three that read it."""
    with lean.on(0):
        y = x.exp()
        offer(y, made)
        return [(y * y).sum() for _ in range(3)]


def test_a_part_of_the_graph_and_then_the_rest() -> None:
    x = torch.linspace(0, 1, 5, requires_grad=True)
    made = Noted(lambda: x.detach().exp())
    first, *others = branches(x, made)
    (wanted,) = torch.autograd.grad((x.exp() * x.exp()).sum(), x)
    assert torch.equal(torch.autograd.grad(first, x, retain_graph=True)[0], wanted)
    for other in others:
        assert torch.equal(torch.autograd.grad(other, x, retain_graph=True)[0], wanted)
    assert torch.equal(torch.autograd.grad(first, x)[0], wanted)
    del first, other, others
    assert made.alive == 0
