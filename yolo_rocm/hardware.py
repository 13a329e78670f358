"""What this machine is, found without starting HIP and without importing torch."""

from __future__ import annotations

import importlib.util
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

AMD: Final = 0x1002
NVIDIA: Final = 0x10DE


@dataclass(frozen=True)
class Gpu:
    """One GPU. `gfx` is the true target, whatever `HSA_OVERRIDE_GFX_VERSION` makes torch report."""

    vendor: str
    gfx: str | None = None
    vram_gb: float | None = None

    def __str__(self) -> str:
        """Describe the card in a few words."""
        memory = f", {self.vram_gb:.0f} GB" if self.vram_gb else ""
        return f"{self.vendor.upper()} GPU{f' {self.gfx}' if self.gfx else ''}{memory}"


@dataclass(frozen=True)
class Machine:
    """Facts that choose a preset.

    Attributes:
        system: `linux`, `windows` or `macos`.
        overlays: Operating-system overlays that apply, e.g. `("linux", "wsl")`.
        gpus: GPUs found, the one to train on first.
        torch: Version of the installed torch, without its local part; None where there is none.
        build: What torch was built for: `hip`, `cuda` or `cpu`; None where there is no torch.
        hip: ROCm version of the torch build.
    """

    system: str = "linux"
    overlays: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    torch: str | None = None
    build: str | None = None
    hip: str | None = None

    @property
    def gpu(self) -> Gpu | None:
        """The GPU this torch build can train on, or None."""
        usable = {"hip": "amd", "cuda": "nvidia"}.get(self.build or "")
        return next((gpu for gpu in self.gpus if gpu.vendor == usable), None)

    @property
    def no_gpu_reason(self) -> str:
        """Why there is no GPU to train on."""
        if not self.gpus:
            return "no GPU found"
        have = f"the installed torch is a {self.build} build" if self.build else "torch is not installed"
        return f"{self.gpus[0]} found, but {have}"

    @property
    def warnings(self) -> list[str]:
        """What a user should know about this machine before training."""
        if self.gpus and self.gpu is None and self.gpus[0].vendor == "amd":
            return [f"{self.no_gpu_reason}; install torch and torchvision from a ROCm index to use it"]
        return []


def detect(root: Path = Path("/")) -> Machine:
    """Look at this machine, or at a recorded tree of one.

    Args:
        root: Top of the file system to read `sys` and `proc` from; tests hand in a made tree.
    """
    system = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}.get(platform.system(), "linux")
    version, build, hip = torch_build()
    return Machine(system, _overlays(system, root), _gpus(root), version, build, hip)


def torch_build() -> tuple[str | None, str | None, str | None]:
    """Return version, build (`hip`, `cuda`, `cpu`) and ROCm version of the installed torch; all None without torch.

    Read from torch's own `version.py`: importing torch takes seconds, and distributions build for ROCm without saying
    so in the package's version.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None, None
    facts: dict[str, str] = {}
    for line in _text(Path(spec.origin).with_name("version.py")).splitlines():
        match = re.match(r"""(__version__|cuda|hip)\b[^=]*=\s*['"]([^'"]+)['"]""", line)
        if match:
            facts[match.group(1)] = match.group(2)
    build = next((name for name in ("hip", "cuda") if name in facts), "cpu")
    version = facts.get("__version__", "").partition("+")[0]
    return version or None, build, _release(facts.get("hip"))


def _release(hip: str | None) -> str | None:
    """Keep the number of a ROCm version: 5.2.21151-afdc89f8 -> 5.2.21151."""
    match = re.match(r"\d+(?:\.\d+)*", hip or "")
    return match.group() if match else None


def gfx_name(target: int) -> str:
    """Turn KFD's decimal `gfx_target_version` into a name: 100100 -> gfx1010, 90402 -> gfx942, 90010 -> gfx90a."""
    major, minor, step = target // 10000, target // 100 % 100, target % 100
    return f"gfx{major}{minor}{step:x}"


def _overlays(system: str, root: Path) -> tuple[str, ...]:
    found = [system]
    kernel = _text(root / "proc/version").lower()
    if system == "linux" and "microsoft" in kernel:
        found.append("wsl")
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        found.append("container")
    return tuple(found)


def _gpus(root: Path) -> tuple[Gpu, ...]:
    found = []
    for node in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*")):
        properties = _properties(node / "properties")
        if properties.get("gfx_target_version") and properties.get("vendor_id", AMD) == AMD:
            banks = [_properties(bank) for bank in sorted((node / "mem_banks").glob("*/properties"))]
            # Heap types 1 and 2 are the card's own memory, visible to the CPU or not.
            vram = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))
            found.append(Gpu("amd", gfx_name(properties["gfx_target_version"]), vram / 2**30 or None))
    if (root / "proc/driver/nvidia/version").exists():
        found.append(Gpu("nvidia"))
    return tuple(sorted(found, key=lambda gpu: -(gpu.vram_gb or 0)))


def _properties(path: Path) -> dict[str, int]:
    """Read a `name value` file of KFD."""
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
