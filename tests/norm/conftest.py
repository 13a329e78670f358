"""Fixtures for algorithms and kernels."""

from ..kernel_fixtures import engine, fresh, poisoned  # noqa: F401
