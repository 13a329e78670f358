"""Whether a device can use engine `hip`, and why not."""

from __future__ import annotations

from typing import Any

from ..device_state import STATE

# torch is imported only where a device is queried: the doctor does without it.
_asked: dict[str, str | None] = STATE.container({})


def device_reason(device: str) -> str | None:
    """Say why kernels cannot be compiled for a device and launched on it, None where they can.

    The first question about a target compiles a few lines, in another process, unless that was done before.
    """
    if device not in _asked:
        _asked[device] = _missing(device) or _uncompiled(device)
    return _asked[device]


def in_words(device: str) -> str:
    """Say whether the engine can be used on a device: what compiles for which target, or the reason against it."""
    reason = device_reason(device)
    if reason is not None:
        return reason
    from .compiler import compiler
    from .target import target_of

    target = target_of(device)
    found: Any = None if target is None else compiler(target)
    return f"available ({found.library} for {found.target.arch}, runtime {found.version.partition(' ')[0]})"


def in_words_so_far(device: str) -> str:
    """Say the same, without asking what nobody has asked in this process: a run that does without does not wait."""
    return in_words(device) if device in _asked else _missing(device) or "not a candidate"


def in_words_unasked(torch_version: str | None) -> str:
    """Say what is known without importing torch and without querying a device."""
    return "torch is not installed" if torch_version is None else "the device was not queried"


def _missing(device: str) -> str | None:
    import torch

    if not device.startswith("cuda"):
        return f"there are kernels for GPUs, and none for {device.partition(':')[0]}"
    if torch.version.hip is None and torch.version.cuda is None:
        return f"torch {torch.__version__} was built without GPUs"
    return None if torch.cuda.is_available() else "there is no GPU"


def _uncompiled(device: str) -> str | None:
    from .compiler import compiler
    from .target import target_of

    target = target_of(device)
    if target is None:
        return "neither torch nor the runtime says which gfx target the device is"
    found = compiler(target)
    return found if isinstance(found, str) else None
