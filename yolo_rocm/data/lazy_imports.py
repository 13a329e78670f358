"""Light imports for loading workers: parts of torch that no data set needs are loaded when they are first used."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

# Together a third of the time `import torch` takes (torch 2.10), for tracing and compiling models. A name that this
# torch does not have is never asked for; a module that is used after all is loaded then.
DEFERRED: Final = frozenset(
    {
        "torch._decomp",
        "torch._dynamo",
        "torch._export",
        "torch._inductor",
        "torch._meta_registrations",
        "torch._prims",
        "torch._refs",
        "torch.ao.quantization",
        "torch.export",
        "torch.fx.passes",
        "torch.masked",
        "torch.nn.intrinsic",
        "torch.nn.qat",
        "torch.nn.quantizable",
        "torch.nn.quantized",
        "torch.onnx",
        "torch.quantization",
        "torch.testing",
        "matplotlib",
        "matplotlib.pyplot",
        "pandas",
        "polars",
        "scipy",
        "seaborn",
    }
)


class _DeferredModule(ModuleType):
    """A module that runs when something in it is first asked for.

    The standard library's `LazyLoader` runs it already when its `__file__` is looked at, as `inspect` does with every
    module there is.
    """

    def __getattr__(self, name: str) -> Any:
        # `__path__` is asked for by the import of a submodule, which may need its package.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        spec = self.__spec__
        assert spec is not None
        self.__class__ = ModuleType  # type: ignore[assignment]
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        spec.loader_state.exec_module(self)
        return getattr(self, name)


class _Deferrer(importlib.abc.Loader):
    """Makes a `_DeferredModule`."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""
        vars(module).pop("__path__", None)
        module.__class__ = _DeferredModule


class _DeferringFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of `DEFERRED`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec whose module runs later."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name in DEFERRED else None
        if spec is None or spec.loader is None:
            return None
        spec.loader_state, spec.loader = spec.loader, _Deferrer()
        return spec


def defer_imports() -> None:
    """Defer the modules of `DEFERRED` in this process, which must be a loading worker's."""
    if not any(isinstance(finder, _DeferringFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeferringFinder())


def import_all(names: Sequence[str]) -> None:
    """Import modules that the worker will need; one that is missing is left to whoever needs it."""
    for name in names:
        try:
            __import__(name)
        except ImportError:
            continue
