"""Seeds for reproducible batches, and the states of the generators."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch

_MASK: Final = 2**64 - 1


def seed_everything(seed: int, deterministic: bool = False) -> torch.Generator:
    """Seed `random`, numpy and torch on every device, without starting the GPU runtime.

    The order of sets of strings is not covered: Python takes `PYTHONHASHSEED` from the environment when it starts, so
    set it in the shell if a data set depends on that order.

    Args:
        seed: Any integer.
        deterministic: Also make torch choose deterministic kernels where it has them (it warns where it has none).

    Returns:
        A generator with this seed, for the `generator` of a loader or sampler.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed & _MASK)
    if deterministic:
        # cuBLAS reads it when it starts; a user's own value is kept.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return torch.Generator().manual_seed(seed & _MASK)


def seed_worker(worker_id: int) -> None:
    """Seed `random` and numpy of a worker from the seed that torch has given it."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def seed_sample(seed: int, *position: int) -> None:
    """Seed `random`, numpy and torch's CPU generator for one sample or batch, whoever loads it.

    12 microseconds on a 2-core aarch64 machine, where `torch.manual_seed` alone takes 60 (torch 1.13) to 240 (2.10),
    nearly all of it for the seeds of devices, which a worker does not use.

    Args:
        seed: The seed of the run.
        position: Which sample it is: epoch and index, or one running number.
    """
    mixed = mix(seed, *position)
    random.seed(mixed)
    np.random.seed(mixed >> 32)
    torch.default_generator.manual_seed(mixed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put the states of Python's, numpy's and torch's generators on the CPU back at the end."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def mix(*numbers: int) -> int:
    """Fold integers into 64 well-mixed bits (splitmix64, https://prng.di.unimi.it/splitmix64.c); order matters."""
    state = 0
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state
