"""A machine: everything that chooses a preset, found without starting HIP and without importing torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from . import stack, system
from .gpus import Adapters, Gpu, linux_gpus, windows_gpus, wsl_gpus
from .packages import Packages
from .system import DeviceNode

# A batch of 16 at 640 px is 20 MB, and eight workers of Ultralytics hold four each.
_LEAST_SHM_GB: Final = 1.0
_VENDORS: Final = {"hip": "amd", "cuda": "nvidia"}  # whose GPUs a build of torch uses


@dataclass(frozen=True)
class Machine:
    """Facts about a machine. What takes longer than a few milliseconds is read when first asked for.

    Attributes:
        system: `linux`, `windows` or `macos`.
        overlays: Operating-system overlays that apply, e.g. `("linux", "wsl")`.
        gpus: GPUs found: AMD ones in torch's order, then those torch cannot see, then NVIDIA ones.
        torch: Version of the installed torch, without its local part; None where there is none.
        build: What torch was built for: `hip`, `cuda` or `cpu`; None where there is no torch.
        hip: ROCm version of the torch build.
        torch_folder: Where torch is installed.
        root: Top of the file system the facts were read from.
    """

    system: str = "linux"
    overlays: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    torch: str | None = None
    build: str | None = None
    hip: str | None = None
    torch_folder: Path | None = field(default=None, compare=False)
    root: Path = field(default=Path("/"), compare=False)

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """GPUs this torch build would list, in its order."""
        own = [gpu for gpu in self.gpus if gpu.vendor == _VENDORS.get(self.build or "") and not gpu.hidden_by]
        if self.build == "hip" and self.system == "linux":
            # There torch goes through KFD; a card that is only on the PCI bus has no compute driver.
            own = [gpu for gpu in own if gpu.node is not None or gpu.bus is None]
        return tuple(own)

    @property
    def gpu(self) -> Gpu | None:
        """The GPU to train on: torch's first discrete one, an integrated one only where there is no other."""
        return min(self.visible, key=lambda gpu: gpu.integrated, default=None)

    @property
    def clashing(self) -> tuple[Gpu, ...]:
        """Integrated GPUs that torch lists next to a discrete one; trainings have crashed then (ROCm/pytorch#2241)."""
        if self.gpu is None or self.gpu.integrated:
            return ()
        return tuple(gpu for gpu in self.visible if gpu.integrated)

    @property
    def no_gpu_reason(self) -> str:
        """Why there is no GPU to train on."""
        if not self.gpus:
            return "no GPU found"
        first = self.gpus[0]
        if _VENDORS.get(self.build or "") != first.vendor:
            have = f"the installed torch is a {self.build} build" if self.build else "torch is not installed"
            return f"{first} found, but {have}"
        if first.hidden_by:
            return f"{first} found, but {first.hidden_by} hides it"
        return f"{first} found, but the kernel's compute driver (amdgpu with KFD) does not list it"

    @property
    def warnings(self) -> list[str]:
        """What a user should know about this machine before training."""
        found = []
        if self.clashing and self.system != "linux":  # on Linux the environment hides it
            found.append(
                f"{self.clashing[0]} is listed next to {self.gpu}, and trainings that touch both have crashed: set "
                "HIP_VISIBLE_DEVICES to the number of the card before Python starts"
            )
        elif self.gpu is None and self.gpus and self.gpus[0].vendor == "amd":
            remedy = "install torch and torchvision for ROCm, with the commands that `yolo-rocm setup` prints"
            advice = "`yolo-rocm doctor` looks for the cause" if self.build == "hip" else remedy
            found.append(f"{self.no_gpu_reason}; {advice}")
        if "container" in self.overlays and self.shm_gb is not None and self.shm_gb < _LEAST_SHM_GB:
            found.append(
                f"this container has {self.shm_gb * 1024:.0f} MB of /dev/shm, through which workers hand over batches, "
                "and a full one kills them (pytorch#5040): start it with --ipc=host or --shm-size 8g, or train with "
                "workers=0"
            )
        return found

    @cached_property
    def kernel(self) -> str | None:
        """Release of the Linux kernel, or the version of Windows or macOS."""
        return system.kernel(self.root) if self.system == "linux" else platform.version()

    @cached_property
    def distribution(self) -> str | None:
        """Name of the Linux distribution."""
        return system.distribution(self.root)

    @cached_property
    def amdgpu(self) -> str | None:
        """Version of the amdgpu kernel module; None where it is not loaded."""
        return system.amdgpu_driver(self.root)

    @cached_property
    def nvidia(self) -> str | None:
        """Version of NVIDIA's kernel module; None where it is not loaded."""
        return system.nvidia_driver(self.root)

    @cached_property
    def archs(self) -> tuple[str, ...]:
        """Targets torch has kernels for; empty where that is not known."""
        return stack.torch_archs(self.torch_folder) if self.build == "hip" else ()

    @cached_property
    def rocblas_archs(self) -> tuple[str, ...]:
        """Targets rocBLAS has kernels for; empty where that is not known."""
        return stack.rocblas_archs(self.torch_folder, self.root) if self.build == "hip" else ()

    @cached_property
    def rocm(self) -> str | None:
        """Version of the ROCm installed in the system, in addition to the one inside torch."""
        return stack.rocm_version(self.root)

    @cached_property
    def ultralytics(self) -> str | None:
        """Version of the installed Ultralytics."""
        return stack.package_version("ultralytics")

    @cached_property
    def packages(self) -> Packages:
        """The packages that would be imported with this torch."""
        folder = self.torch_folder
        site = None if folder in (None, stack.torch_folder()) else folder
        return Packages(self.torch, folder, self.system, site and site.parent)

    @cached_property
    def python(self) -> str:
        """Version of this Python."""
        return platform.python_version()

    @cached_property
    def cores(self) -> int:
        """Processors this process may use, by affinity and control group."""
        return system.cores(self.root)

    @cached_property
    def _memory(self) -> tuple[float | None, float | None]:
        return system.memory_gb(self.root)

    @property
    def ram_gb(self) -> float | None:
        """Memory this process may use, GiB, by control group."""
        return self._memory[0]

    @property
    def ram_available_gb(self) -> float | None:
        """Memory that is free now, GiB, by control group."""
        return self._memory[1]

    @cached_property
    def shm_gb(self) -> float | None:
        """Size of `/dev/shm`, GiB, through which workers hand over batches."""
        return system.shm_gb(self.root, self.ram_gb)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Groups of this process."""
        return system.group_names(self.root)

    @cached_property
    def devices(self) -> tuple[DeviceNode, ...]:
        """Device files ROCm opens, with their permissions."""
        return system.device_nodes(self.root)


def detect(
    root: Path = Path("/"),
    *,
    os_name: str | None = None,
    torch_folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    adapters: Adapters | None = None,
) -> Machine:
    """Look at this machine, or at a recorded tree of one.

    Args:
        root: Top of the file system to read `sys`, `proc` and the like from; tests hand in a made tree.
        os_name: `linux`, `windows` or `macos`; this system by default.
        torch_folder: Where torch is installed; found by default.
        environ: Environment variables; those of this process by default.
        adapters: Returns the display adapters of a Windows registry; those of this one by default.
    """
    name = os_name or {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}.get(platform.system(), "linux")
    folder = torch_folder or stack.torch_folder()
    version, build, hip = stack.torch_build(folder)
    layers = system.overlays(name, root)
    gpus: tuple[Gpu, ...] = ()
    if name == "linux":
        gpus = linux_gpus(root, os.environ if environ is None else environ)
        if "wsl" in layers and not gpus:
            gpus = wsl_gpus(root, build)
    elif name == "windows":
        gpus = windows_gpus(adapters)
    return Machine(name, layers, gpus, version, build, hip, folder, root)
