"""What a device is compiled for: its gfx target as the runtime reports it, or its compute capability."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..device_state import STATE
from .driver import Driver, driver


@dataclass(frozen=True)
class Target:
    """A target.

    Attributes:
        family: `hip` or `cuda`.
        arch: As the compiler takes it, features included: `gfx1010`, `gfx90a:sramecc+:xnack-`, `sm_90`.
    """

    family: str
    arch: str

    @property
    def gfx(self) -> str:
        """The target without its features."""
        return self.arch.partition(":")[0]

    def options(self) -> list[str]:
        """Return the compiler's options.

        A product and a sum become one instruction within an expression alone: beyond that clang makes v_dot2c_f32_f16
        of two of them for gfx1030, which gfx1010 lacks, and RX 5000 cards run code for gfx1030 under an override.
        """
        if self.family == "cuda":
            return [f"--gpu-architecture={self.arch}", "--std=c++17"]
        return [f"--offload-arch={self.arch}", "-O3", "-std=c++17", "-ffp-contract=on"]


@STATE.cached(64)
def target_of(device: str) -> Target | None:
    """Return the target of a GPU, None where neither torch nor the runtime says.

    It is the one that the runtime will accept code for: under `HSA_OVERRIDE_GFX_VERSION` that of the override.
    """
    place = torch.device(device)
    if torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(place)
        return Target("cuda", f"sm_{major}{minor}")
    name = getattr(torch.cuda.get_device_properties(place), "gcnArchName", "")
    if not str(name).startswith("gfx"):  # before torch 2.2
        runtime = driver("hip")
        number = torch.cuda.current_device() if place.index is None else place.index
        name = runtime.architecture(number) if isinstance(runtime, Driver) else None
    return Target("hip", str(name)) if name else None
