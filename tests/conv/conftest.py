"""Fixtures for kernels."""

from ..kernel_fixtures import engine, fresh, ieee, poisoned  # noqa: F401
from .hip_fixtures import host  # noqa: F401
