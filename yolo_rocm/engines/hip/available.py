"""Whether a device can use engine `hip`, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device_state import STATE

if TYPE_CHECKING:
    from .compiler import Compiler

# torch is imported only where a device is queried: the doctor does without it.
_compilers: dict[str, Compiler | str] = STATE.container({})


def device_reason(device: str) -> str | None:
    """Say why kernels cannot be compiled for a device and launched on it, None where they can.

    The first question about a target compiles a few lines, in another process, unless that was done before.
    """
    compiler = _compilers.get(device)
    if compiler is None:
        compiler = _compilers[device] = _missing(device) or _compiler(device)
    return compiler if isinstance(compiler, str) else None


def in_words(device: str) -> str:
    """Say whether the engine can be used on a device: what compiles for which target, or the reason against it."""
    return device_reason(device) or in_words_so_far(device)


def in_words_so_far(device: str) -> str:
    """Say the same, without asking what nobody has asked in this process: a run that does without does not wait."""
    found = _compilers.get(device) or _missing(device) or "not a candidate"
    if isinstance(found, str):
        return found
    return f"available ({found.library} for {found.target.arch}, runtime {found.version.partition(' ')[0]})"


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


def _compiler(device: str) -> Compiler | str:
    from .compiler import compiler
    from .target import target_of

    target = target_of(device)
    unknown = "neither torch nor the runtime says which gfx target the device is"
    return unknown if target is None else compiler(target)
