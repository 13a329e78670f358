"""Fixtures for algorithms and kernels, and for lean memory."""

from collections.abc import Iterator

import pytest

from yolo_rocm.norm import lean

from ..kernel_fixtures import engine, fresh, poisoned  # noqa: F401


@pytest.fixture
def lean_installed() -> Iterator[None]:
    """What a run has on all the time: additions are noted."""
    with lean.installed():
        yield
