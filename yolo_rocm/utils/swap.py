"""The former name of `scoped_patch.attribute`, for who still uses it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .scoped_patch import attribute


class Swap:
    """One name of one module, replaced while somebody needs it; a module without it is left alone."""

    def __init__(self, module: str, name: str, make: Callable[[Any], Any]) -> None:
        self._module, self._name, self._make = module, name, make

    def on(self) -> AbstractContextManager[None]:
        """Keep the name replaced while the context is open."""
        if not hasattr(importlib.import_module(self._module), self._name):
            return nullcontext()
        return attribute(self._module, self._name).on(self._make)
