"""Fixtures for algorithms and kernels."""

from ..kernel_fixtures import fresh, poisoned  # noqa: F401
