"""The GPUs of a machine, from KFD, DRM, PCI and the Windows registry: true targets, in the order torch counts them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from .catalogue import AMD, INTEGRATED, NVIDIA, family_of, gfx_name, marketing_name, overridden_gfx, target_of, wave_of
from .files import in_order, number, properties, text, whole

OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"
# In the order they take effect: ROCR hides first, HIP counts what is left (ROCm docs, gpu_isolation_hip_env.rst).
HIDES_FIRST: Final = "ROCR_VISIBLE_DEVICES"
HIDES_NEXT: Final = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_DISPLAY_ADAPTERS: Final = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"

Adapters = Callable[[], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class Gpu:
    """One GPU. `gfx` is the true target, whatever `HSA_OVERRIDE_GFX_VERSION` makes torch report.

    Attributes:
        vendor: `amd` or `nvidia`.
        gfx: True target, e.g. `gfx1010`.
        vram_gb: Memory of its own, GiB; of an integrated GPU the part the firmware sets aside.
        name: The name under which it is sold, where the PCI ids say it.
        family: `gcn`, `rdna1` ... `rdna4`, `rdna3.5`, `cdna1` ... `cdna4`.
        wave: Native wave size.
        integrated: Built into a processor.
        gtt_gb: System memory the driver lets it use, GiB.
        device: PCI device id.
        revision: PCI revision.
        bus: PCI address, e.g. `0000:03:00.0`.
        node: KFD node; None for a card that the compute driver does not list.
        card: DRM name, e.g. `card0`.
        render: Render node, e.g. `renderD128`.
        unique_id: What `ROCR_VISIBLE_DEVICES=GPU-...` names.
        presents_as: Target torch reports under an override; None without one.
        hidden_by: The environment variable, with its value, that keeps torch from seeing it.
        driver: Version of its Windows driver.
    """

    vendor: str
    gfx: str | None = None
    vram_gb: float | None = None
    name: str | None = None
    family: str | None = None
    wave: int | None = None
    integrated: bool = False
    gtt_gb: float | None = None
    device: int | None = None
    revision: int | None = None
    bus: str | None = None
    node: int | None = None
    card: str | None = None
    render: str | None = None
    unique_id: int | None = None
    presents_as: str | None = None
    hidden_by: str | None = None
    driver: str | None = None

    @property
    def memory_gb(self) -> float | None:
        """Memory a training can use, GiB: an integrated GPU takes it from the system."""
        if self.integrated:
            return max(self.vram_gb or 0, self.gtt_gb or 0) or None
        return self.vram_gb

    def __str__(self) -> str:
        """Describe the card in a few words."""
        maker = self.vendor.upper()
        size = "integrated" if self.integrated else f"{self.vram_gb:.0f} GB" if self.vram_gb else None
        name = self.name.removeprefix(f"{maker} ") if self.name else f"GPU {self.gfx or ''}".strip()
        details = ", ".join(word for word in (self.name and self.gfx, size) if word)
        return f"{maker} {name}{f' ({details})' if details else ''}"


def _known(gfx: str | None, device: int | None, revision: int | None, **facts: Any) -> Gpu:
    """Return an AMD GPU with everything that follows from its ids."""
    facts = {"wave": wave_of(gfx), "integrated": gfx in INTEGRATED, **facts}
    facts["name"] = facts.get("name") or marketing_name(device, revision)
    return Gpu("amd", gfx, family=family_of(gfx), device=device, revision=revision, **facts)


def linux_gpus(root: Path, environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return AMD GPUs in torch's order, then those the compute driver does not list, then NVIDIA ones."""
    cards = _drm_cards(root)
    computing = tuple(_kfd_gpus(root, cards, environ))
    listed = {gpu.bus for gpu in computing}
    others = ((card, _pci_gpu(folder)) for card, folder in cards.items())
    idle = (replace(gpu, card=card) for card, gpu in others if gpu and gpu.bus not in listed)
    return (*_hidden(computing, environ), *idle, *_nvidia(root))


def _drm_cards(root: Path) -> dict[str, Path]:
    folders = {path.name: path / "device" for path in in_order(root / "sys/class/drm", "card*")}
    return {name: folder for name, folder in folders.items() if re.fullmatch(r"card\d+", name)}


def _address(folder: Path) -> str | None:
    match = re.search(r"^PCI_SLOT_NAME=(\S+)$", text(folder / "uevent"), re.MULTILINE)
    return match.group(1) if match else None


def _pci_gpu(folder: Path) -> Gpu | None:
    """Return an AMD GPU from its PCI files alone: no KFD, so torch will not see it."""
    if number(folder / "vendor") != AMD:
        return None
    device, revision = number(folder / "device"), number(folder / "revision")
    return _known(target_of(device), device, revision, bus=_address(folder), vram_gb=_gib(folder, "vram"))


def _gib(folder: Path, kind: str) -> float | None:
    size = number(folder / f"mem_info_{kind}_total")
    return size / 2**30 if size else None


def _kfd_gpus(root: Path, cards: Mapping[str, Path], environ: Mapping[str, str]) -> Iterator[Gpu]:
    addresses = {_address(folder): name for name, folder in cards.items()}
    for folder in in_order(root / "sys/class/kfd/kfd/topology/nodes"):
        facts = properties(folder / "properties")
        if not facts.get("gfx_target_version") and not (facts.get("simd_count") and facts.get("device_id")):
            continue  # a processor
        if facts.get("vendor_id", AMD) != AMD:
            continue
        node, at, device = whole(folder.name), facts.get("location_id"), facts.get("device_id")
        bus = None
        if at is not None:
            bus = f"{facts.get('domain', 0):04x}:{at >> 8 & 0xFF:02x}:{at >> 3 & 0x1F:02x}.{at & 7}"
        pci = root / "sys/bus/pci/devices" / (bus or "none")
        banks = [properties(bank) for bank in sorted((folder / "mem_banks").glob("*/properties"))]
        # Heap types 1 and 2 are the card's own memory, visible to the CPU or not.
        vram = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2)) / 2**30
        target = facts.get("gfx_target_version")
        revision = number(pci / "revision")
        # Kernels before 5.13 do not have the target; the driver's own library then goes by the device id.
        gfx = gfx_name(target) if target else target_of(device)
        minor = facts.get("drm_render_minor")
        yield _known(
            gfx,
            device,
            revision,
            name=marketing_name(device, revision) or text(pci / "product_name"),  # as the board's maker has it
            vram_gb=vram or _gib(pci, "vram"),
            gtt_gb=_gib(pci, "gtt"),
            wave=facts.get("wave_front_size") or wave_of(gfx),
            integrated=gfx in INTEGRATED or facts.get("cpu_cores_count", 0) > 0,
            bus=bus,
            node=node,
            card=addresses.get(bus) if bus else None,
            render=f"renderD{minor}" if minor and minor > 0 else None,
            unique_id=facts.get("unique_id") or None,
            presents_as=overridden_gfx(environ.get(f"{OVERRIDE}_{node}") or environ.get(OVERRIDE)),
        )


def _hidden(gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Mark what `*_VISIBLE_DEVICES` hides and put the rest in the order the variables ask for, hidden ones last."""
    shown = list(gpus)
    hidden: list[Gpu] = []
    for name in (HIDES_FIRST, next((name for name in HIDES_NEXT if environ.get(name)), "")):
        wanted = environ.get(name, "")
        if not wanted.strip():
            continue
        named = takewhile(bool, (_named(word.strip(), shown) for word in wanted.split(",")))
        chosen = [gpu for gpu in dict.fromkeys(named) if gpu]  # HIP stops at the first entry it cannot find
        hidden += [replace(gpu, hidden_by=f"{name}={wanted}") for gpu in shown if gpu not in chosen]
        shown = chosen
    return (*shown, *hidden)


def _named(word: str, gpus: list[Gpu]) -> Gpu | None:
    if word.upper().startswith("GPU-"):
        wanted = whole(f"0x{word[4:]}")
        return next((gpu for gpu in gpus if gpu.unique_id is not None and gpu.unique_id == wanted), None)
    index = whole(word)
    return gpus[index] if index is not None and 0 <= index < len(gpus) else None


def _nvidia(root: Path) -> Iterator[Gpu]:
    boards = in_order(root / "proc/driver/nvidia/gpus")
    for board in boards:
        match = re.search(r"^Model:\s*(?:NVIDIA )?(.+)$", text(board / "information"), re.MULTILINE)
        yield Gpu("nvidia", name=match.group(1).strip() if match else None, bus=board.name)
    wsl = root / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    if not boards and ((root / "proc/driver/nvidia/version").exists() or wsl.exists()):
        yield Gpu("nvidia")


def wsl_gpus(root: Path, build: str | None) -> tuple[Gpu, ...]:
    """Return the GPU behind `/dev/dxg`: Windows keeps its ids to itself, so only the maker is known, from torch."""
    return (Gpu("amd"),) if build == "hip" and (root / "dev/dxg").exists() else ()


def windows_gpus(adapters: Adapters | None = None) -> tuple[Gpu, ...]:
    """Return the display adapters of the Windows registry, discrete ones first: HIP's own order is not recorded there.

    Args:
        adapters: Returns the registry's entries; tests hand in their own.
    """
    found = [gpu for gpu in map(_windows_gpu, (adapters or registry_adapters)()) if gpu is not None]
    return tuple(sorted(found, key=lambda gpu: gpu.integrated))


def _windows_gpu(entry: Mapping[str, Any]) -> Gpu | None:
    ids = r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})(?:.*REV_([0-9A-F]{2}))?"
    match = re.search(ids, str(entry.get("MatchingDeviceId", "")), re.IGNORECASE)
    if match is None:
        return None
    vendor, device, revision = (int(part, 16) if part else None for part in match.groups())
    size = entry.get("HardwareInformation.qwMemorySize")
    if isinstance(size, bytes):
        size = int.from_bytes(size, "little")
    facts: dict[str, Any] = {
        "vram_gb": size / 2**30 if isinstance(size, int) and size else None,
        "name": re.sub(r"^(AMD|NVIDIA) ", "", str(entry.get("DriverDesc") or "")) or None,
        "driver": entry.get("DriverVersion"),
    }
    if vendor == AMD:
        return _known(target_of(device), device, revision, **facts)
    return Gpu("nvidia", device=device, **facts) if vendor == NVIDIA else None


def registry_adapters() -> Iterator[dict[str, Any]]:
    """Yield the display adapters of this Windows; nothing elsewhere."""
    try:
        winreg: Any = importlib.import_module("winreg")
        parent = winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _DISPLAY_ADAPTERS)
    except (ImportError, OSError):
        return
    with parent:
        for index in range(winreg.QueryInfoKey(parent)[0]):
            try:
                with winreg.OpenKey(parent, winreg.EnumKey(parent, index)) as key:
                    values = (winreg.EnumValue(key, each) for each in range(winreg.QueryInfoKey(key)[1]))
                    yield {name: value for name, value, _ in values}
            except OSError:  # `Properties` is closed to users
                continue
