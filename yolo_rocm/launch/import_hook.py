"""Below `yolo-rocm run`: whatever of Ultralytics a process imports follows the preset from its import on.

Nothing is imported for it ahead of time. A script without YOLO never loads torch or Ultralytics for us, and one that
sets variables before it imports torch still does so in time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session.session import Session

_followed = ExitStack()  # as long as the process


class AfterImport:
    """A finder that finds nothing itself, and calls a function when a module has been imported."""

    def __init__(self, actions: dict[str, Callable[[], None]]) -> None:
        self._actions = dict(actions)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, with the action at the end of the module's execution."""
        if name not in self._actions:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        # On the instance of the loader, not around it: the module's `__loader__` stays what it is without us.
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == spec.name:
                with suppress(AttributeError):
                    del loader.exec_module
                self._imported(spec.name)

        loader.exec_module = exec_module

    def _imported(self, name: str) -> None:
        action = self._actions.pop(name, None)
        if not self._actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        if action is not None:
            action()


@functools.cache
def session_of_run() -> Session:
    """Return the session that the environment describes, made at its first use."""
    from ..session.given import described

    return described()[0]


def _let_follow(name: str) -> None:
    from ..session.process_wide import one_follows

    _followed.enter_context(one_follows(name, session_of_run))


# The keys of `process_wide.FOLLOWERS`, which is not imported before it is needed.
_ENGINE = ("model", "trainer", "validator", "predictor")


def follow() -> None:
    """Let YOLO objects, trainers, validators and predictors of this process follow the preset, once imported."""
    actions: dict[str, Callable[[], None]] = {
        f"ultralytics.engine.{name}": functools.partial(_let_follow, name) for name in _ENGINE
    }
    for module in [module for module in actions if module in sys.modules]:
        actions.pop(module)()
    if actions:
        sys.meta_path.insert(0, AfterImport(actions))
