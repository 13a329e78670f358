"""From the description of a launch to the launch: its program, and the kernel on a device, found once."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.hip.program import Kernel, Launch, Program
from ...engines.kernel_errors import Spills
from .calls import HipCall

# How many tensors a kernel takes, which come before its numbers.
_TENSORS: Final = {
    "gather_gemm": 4,
    "pack_weight": 2,
    "weight_gemm": 3,
    "sum_partials": 2,
    "few_channels": 4,
    "winograd": 4,
    "winograd_weight": 2,
    "depthwise": 4,
    "depthwise_weight": 3,
}
# Bytes of a thread's memory beyond registers that a kernel may use: a few values that wait for the end cost nothing.
_FEW_BYTES: Final = 128
_launches: dict[tuple[HipCall, str], Launch] = STATE.container(Bounded())


@lru_cache(maxsize=64)
def source_text(source: str) -> str:
    """Return a source by its name."""
    return files(__package__).joinpath(f"{source}.hip.cpp").read_text(encoding="utf-8")


@lru_cache(maxsize=1024)
def program_of(source: str, defines: tuple[tuple[str, int | str], ...]) -> Program:
    """Return a source with its constants."""
    return Program(source_text(source), source, dict(defines))


def launch_of(call: HipCall, device: str) -> Launch:
    """Return a launch that waits for the addresses of its tensors, compiled and loaded on first sight."""
    key = (call, device)
    found = _launches.get(key)
    if found is None:
        tensors = (None,) * _TENSORS[call.source]
        found = _kernel(call, device).bound(call.grid, call.threads, *tensors, *call.numbers)
        _launches[key] = found
    return found


def prepare(call: HipCall, device: str) -> None:
    """Compile a call's kernel.

    Raises:
        CompilerError: It does not compile.
        Spills: It compiles, and needs more registers than there are.
    """
    spilled = _kernel(call, device).local_bytes
    if spilled > _FEW_BYTES:
        raise Spills(f"{call.source} spills {spilled} bytes of registers")


def _kernel(call: HipCall, device: str) -> Kernel:
    return program_of(call.source, call.defines).kernel(call.source, device)
