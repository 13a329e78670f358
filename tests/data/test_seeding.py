"""Seeds of runs, workers and samples."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

from yolo_rocm.data.seeding import mix, seed_everything, seed_sample, seed_worker


def draw() -> tuple:
    """Draw from every generator, with a normal number each, of which the generators keep a second one."""
    return (
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.randn(),
        torch.rand(1).item(),
        torch.randn(1).item(),
    )


pytestmark = pytest.mark.usefixtures("generators_as_found")


@pytest.mark.parametrize("seed", [0, 2**64 - 1, -1])
def test_everything_is_seeded(seed):
    generator = seed_everything(seed)
    first, permutation = draw(), torch.randperm(9, generator=generator)
    draw()
    again = seed_everything(seed)
    assert draw() == first
    assert torch.equal(torch.randperm(9, generator=again), permutation)
    seed_everything(seed ^ 5)
    assert all(a != b for a, b in zip(draw(), first, strict=True))
    assert not torch.cuda.is_initialized()


def test_deterministic_kernels_only_if_asked(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seed_everything(1)
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    torch.backends.cudnn.benchmark = True
    seed_everything(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_worker_is_seeded_as_by_ultralytics():
    from ultralytics.data.build import seed_worker as theirs

    torch.manual_seed(2**40 + 7)
    theirs(3)
    expected = random.random(), np.random.rand()
    seed_worker(3)
    assert (random.random(), np.random.rand()) == expected


def test_a_sample_has_the_same_numbers_whatever_was_drawn_before():
    seed_sample(7, 2, 30)
    first = draw()
    random.gauss(0, 1), np.random.randn(), torch.randn(1)
    seed_sample(7, 2, 30)
    assert draw() == first
    seen = {first}
    for position in ((7, 2, 31), (7, 3, 30), (8, 2, 30), (7, 30, 2), (7, 2), (7, 32)):
        seed_sample(*position)
        seen.add(draw())
    assert len({value for numbers in seen for value in numbers}) == 7 * 6  # no two generators of any two agree


def test_the_mix_is_splitmix64_and_does_not_collide():
    # The first outputs of the reference program for the states 0 and 1234567.
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(1234567) == 6457827717110365317
    assert len({mix(seed, epoch, index) for seed in range(8) for epoch in range(8) for index in range(64)}) == 2**12
