"""Weights that are packed once: what makes them stale, and what is let go."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from yolo_rocm.conv.fused.weights import Made, Weights


def _got(weights: Weights, *sources: torch.Tensor) -> Made:
    return weights.get(sources, "copied", lambda: (sources[0].detach().clone(), None))


def test_they_are_made_once() -> None:
    weights, source, other = Weights(), nn.Parameter(torch.ones(3)), torch.zeros(2)
    first = _got(weights, source, other)
    assert _got(weights, source, other) is first
    with torch.no_grad():
        other.add_(1)
    assert _got(weights, source, other) is not first


def test_memory_that_is_assigned_anew_is_seen_also_where_the_old_lay() -> None:
    """After two assignments the third tensor may lie where the first did, which has been freed in between."""
    for size in (100, 1000) * 30:
        weights, source = Weights(), nn.Parameter(torch.ones(size))
        _got(weights, source)
        for _ in range(2):
            source.data = source.data * 2
        assert float(_got(weights, source)[0][0].detach()) == 4.0


def test_what_is_made_of_a_tensor_goes_with_it() -> None:
    """With the memory that is held; not when the garbage collector comes."""
    gc.disable()
    try:
        weights, kept = Weights(), nn.Parameter(torch.ones(3))
        for _ in range(5):
            _got(weights, nn.Parameter(torch.ones(3)), kept)
        assert len(weights._kept) == 0
        _got(weights, kept)
        assert len(weights._kept) == 1
    finally:
        gc.enable()


def test_memory_that_a_model_has_left_goes_when_one_of_its_weights_is_used_again() -> None:
    """As after `model.half()`: what is held would stand beside what it has now."""
    weights, first, second, other = Weights(), *(nn.Parameter(torch.ones(3)) for _ in range(3))
    made = _got(weights, other)
    _got(weights, first)
    held = weakref.ref(_got(weights, second)[0])
    first.data, second.data = first.data.half(), second.data.half()
    _got(weights, first)
    assert held() is None
    assert _got(weights, other) is made
