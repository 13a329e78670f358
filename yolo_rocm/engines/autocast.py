"""Computing as the dispatcher's kernels do: without mixed precision's casts, which end above them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, TypeVar

import torch

T = TypeVar("T")
is_on: Final[Callable[[], bool]] = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
)
_guard: Final[Any] = getattr(torch._C, "_ExcludeDispatchKeyGuard", None)


def _enabled_dtype(device_type: str) -> torch.dtype | None:
    if device_type == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def _enabled_dtype_of(device_type: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


# Takes a device type; None where autocast is off. torch >= 2.4 asks for each device alike.
autocast_dtype: Final = _enabled_dtype_of if hasattr(torch, "get_autocast_dtype") else _enabled_dtype


def _all_keys() -> Any:
    cuda, cpu = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{kind}")) for kind in ("CUDA", "CPU"))
    return cuda | cpu


_keys: Final[Any] = None if _guard is None else _all_keys()


def off() -> AbstractContextManager[Any]:
    """Return a context without autocast."""
    if _guard is not None:
        return _guard(_keys)  # type: ignore[no-any-return]
    with ExitStack() as stack:  # torch < 2.0, several times slower
        for kind in ("cuda", "cpu"):
            stack.enter_context(torch.autocast(kind, enabled=False))
        return stack.pop_all()


def without_autocast(function: Callable[..., T], *args: Any) -> T:
    """Call a function with autocast off: the same bits in forward, which runs under it, and in backward."""
    if not is_on():
        return function(*args)
    with off():
        return function(*args)
