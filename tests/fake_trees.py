"""Made file systems of machines with AMD GPUs: what the kernel writes for them, and a torch to go with it.

No AMD card was available. Names and shapes of the files follow the kernel's `kfd_topology.c` and libhsakmt's
`topology.c`, PCI ids and revisions libdrm's `amdgpu.ids`, sizes the makers' data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GIB = 2**30


@dataclass(frozen=True)
class Card:
    """A GPU as the kernel describes it. `gtt_gb` is the system memory its driver may use."""

    target: int
    device: int
    revision: int
    vram_gb: float
    simds: int
    wave: int = 32
    gtt_gb: float = 15.6
    unique_id: int = 0
    apu: bool = False


RX5500XT = Card(100102, 0x7340, 0xC5, 8, 44)
RX5600XT = Card(100100, 0x731F, 0xCA, 6, 72)
RX5700XT = Card(100100, 0x731F, 0xC1, 8, 80)
RX6600 = Card(100302, 0x73FF, 0xC7, 8, 56)
RX6700XT = Card(100301, 0x73DF, 0xC1, 12, 80)
RX6900XT = Card(100300, 0x73BF, 0xC0, 16, 160, unique_id=0x1B2C3D4E5F607182)
RX7600 = Card(110002, 0x7480, 0xCF, 8, 64)
RX7800XT = Card(110001, 0x747E, 0xC8, 16, 120)
RX7900XTX = Card(110000, 0x744C, 0xC8, 24, 192, unique_id=0x9A8B7C6D5E4F3021)
RX9070XT = Card(120001, 0x7550, 0xC0, 15.9, 128)
VEGA64 = Card(90000, 0x687F, 0xC1, 8, 256, 64)
MI50 = Card(90006, 0x66A1, 0x02, 16, 240, 64)
MI100 = Card(90008, 0x738C, 0x01, 32, 480, 64)
MI250 = Card(90010, 0x740C, 0x01, 64, 416, 64)
MI300X = Card(90402, 0x74A1, 0x00, 192, 1216, 64)
RADEON780M = Card(110003, 0x15BF, 0xC1, 4, 24, apu=True)
STRIX_HALO = Card(110501, 0x1586, 0xC1, 0.5, 80, gtt_gb=62, apu=True)
RAPHAEL = Card(100306, 0x164E, 0xC1, 0.5, 4, apu=True)

TREES: dict[str, tuple[Card, ...]] = {
    "rx5500xt": (RX5500XT,),
    "rx5600xt": (RX5600XT,),
    "rx5700xt": (RX5700XT,),
    "rx6600": (RX6600,),
    "rx6700xt": (RX6700XT,),
    "rx6900xt": (RX6900XT,),
    "rx7600": (RX7600,),
    "rx7800xt": (RX7800XT,),
    "rx7900xtx": (RX7900XTX,),
    "rx9070xt": (RX9070XT,),
    "vega64": (VEGA64,),
    "mi50": (MI50,),
    "mi100": (MI100,),
    "mi250": (MI250, MI250),
    "mi300x": (MI300X,),
    "780m": (RADEON780M,),
    "strix-halo": (STRIX_HALO,),
    "raphael-beside-rx7900xtx": (RAPHAEL, RX7900XTX),
    "none": (),
}


def write(path: Path, content: str | bytes) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_kfd_node(root: Path, node: int, **facts: int) -> Path:
    """Write a KFD node's properties as the kernel does: one `name value` per line."""
    folder = root / "sys/class/kfd/kfd/topology/nodes" / str(node)
    write(folder / "properties", "".join(f"{name} {value}\n" for name, value in facts.items()))
    return folder


def add_card(root: Path, card: Card, node: int, bus: int, kfd: bool = True) -> None:
    """Write a GPU's KFD node, its PCI folder and its DRM entry."""
    address, index = f"0000:{bus:02x}:00.0", node - 1
    pci = root / "sys/bus/pci/devices" / address
    write(pci / "vendor", "0x1002\n")
    write(pci / "device", f"0x{card.device:04x}\n")
    write(pci / "revision", f"0x{card.revision:02x}\n")
    write(pci / "class", "0x030000\n")
    write(pci / "mem_info_vram_total", f"{int(card.vram_gb * GIB)}\n")
    write(pci / "mem_info_gtt_total", f"{int(card.gtt_gb * GIB)}\n")
    write(pci / "uevent", f"DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_SLOT_NAME={address}\n")
    drm = root / "sys/class/drm"
    (drm / f"card{index}").mkdir(parents=True)
    (drm / f"card{index}/device").symlink_to(pci)
    (drm / f"card{index}-DP-1").mkdir()
    write(root / f"dev/dri/renderD{128 + index}", "")
    if not kfd:
        return
    folder = write_kfd_node(
        root,
        node,
        cpu_cores_count=0,
        simd_count=card.simds,
        mem_banks_count=1,
        caches_count=80,
        io_links_count=1,
        max_waves_per_simd=16,
        lds_size_in_kb=64,
        wave_front_size=card.wave,
        array_count=4,
        simd_per_cu=2 if card.wave == 32 else 4,
        gfx_target_version=card.target,
        vendor_id=0x1002,
        device_id=card.device,
        location_id=bus << 8,
        domain=0,
        drm_render_minor=128 + index,
        hive_id=0,
        max_engine_clk_fcompute=2000,
        local_mem_size=0,
        fw_version=140,
        unique_id=card.unique_id,
        num_xcc=1,
        max_engine_clk_ccompute=4500,
    )
    heap = f"heap_type {2 if card.apu else 1}\nsize_in_bytes {int(card.vram_gb * GIB)}\nflags 0\nwidth 256\n"
    write(folder / "mem_banks/0/properties", heap)


def make_tree(root: Path, *cards: Card, kfd: bool = True, wsl: bool = False, container: bool = False) -> Path:
    """Write the files of a Linux machine: two processors of eight cores, 32 GiB, and the cards given."""
    release = "5.15.90.1-microsoft-standard-WSL2" if wsl else "6.8.0-45-generic"
    write(root / "proc/version", f"Linux version {release} (builder@host) (gcc 13.2.0) #45 SMP\n")
    write(root / "proc/sys/kernel/osrelease", f"{release}\n")
    write(root / "proc/meminfo", f"MemTotal:       {32 * 2**20} kB\nMemAvailable:   {24 * 2**20} kB\n")
    write(root / "proc/self/cgroup", "0::/\n")
    write(root / "proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0\n")
    write(root / "sys/devices/system/cpu/online", "0-15\n")
    write(root / "etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n')
    write(root / "etc/group", "root:x:0:\nvideo:x:44:\nrender:x:110:\n")
    if container:
        write(root / ".dockerenv", "")
    if cards and kfd:
        write(root / "sys/module/amdgpu/version", "6.8.5\n")
        write(root / "dev/kfd", "")
        write_kfd_node(root, 0, cpu_cores_count=16, simd_count=0, gfx_target_version=0, vendor_id=0, device_id=0)
    for node, card in enumerate(cards, start=1):
        add_card(root, card, node, bus=2 + node, kfd=kfd)
    return root


# What torch.cuda.get_arch_list() says with pytorch.org's rocm7.2 wheel (astral-sh/uv#18730).
PYTORCH_ORG_ARCHS = [
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"),
]


def make_torch(
    site: Path, version: str = "2.10.0", hip: str | None = "7.0.51831", archs: list[str] | None = None
) -> Path:
    """Write as much of an installed torch as is read: version, compiled-in targets, rocBLAS kernels."""
    archs = PYTORCH_ORG_ARCHS if archs is None else archs
    folder = site / "torch"
    write(folder / "__init__.py", "raise ImportError('must not be imported')\n")
    local = f"+rocm{'.'.join(hip.split('.')[:2])}" if hip else "+cpu"
    lines = (f"__version__ = '{version}{local}'", "cuda: Optional[str] = None", f"hip: Optional[str] = {hip!r}")
    write(folder / "version.py", "\n".join(lines) + "\n")
    noise = b"\x7fELF\x00gfx942\x00no kernel for gfx90a here\x00" + bytes(4096)
    write(folder / "lib/libtorch_python.so", noise + " ".join(archs).encode() + b"\x00" + noise)
    for arch in archs:
        write(folder / f"lib/rocblas/library/TensileLibrary_lazy_{arch}.dat", "")
        write(folder / f"lib/rocblas/library/Kernels.so-000-{arch}.hsaco", "")
    return folder


def old_torch(site: Path) -> Path:
    """Write torch 1.13.1+rocm5.2, the last one that ran on RDNA1 under the override."""
    return make_torch(site, "1.13.1", "5.2.21151-afdc89f8", ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"])


def add_package(site: Path, name: str, version: str, *requires: str) -> None:
    """Write what pip records about an installed package."""
    wanted = (f"Requires-Dist: {each}" for each in requires)
    lines = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *wanted)
    write(site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
