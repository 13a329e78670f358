"""Compilers for the kernels of engine hip that need no card: clang, and the hiprtc inside a HIP runtime.

Either gives assembly that `tools/emulator` executes: clang prints it, objects of hiprtc are read back.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from tools.hip_objects import as_assembly
from yolo_rocm.conv.hip.launching import program_of
from yolo_rocm.engines.hip.rtc import Rtc
from yolo_rocm.engines.hip.target import Target

CLANGS: Final = ("clang-19", "clang-18", "clang-17", "clang-16", "clang")
# What code for gfx1030 must not have, because it runs on gfx1010 under an override.
FORBIDDEN: Final = re.compile(r"\bv_(?:dot\w+|wmma\w+|mfma\w+)|\bs_(?:gl1_inv|get_waveid)\w*")
# Vector registers of a SIMD for waves of 32 lanes, in blocks of how many, and the most waves: LLVM, AMDGPUBaseInfo.cpp.
_REGISTERS: Final = {
    "gfx1010": (1024, 8, 20), "gfx1030": (1024, 16, 16), "gfx1100": (1536, 24, 16), "gfx1201": (1536, 24, 16),
}  # fmt: skip
_LDS_BYTES: Final = 64 * 1024  # of a compute unit, which has two SIMDs; a workgroup processor is two of them
Defines = tuple[tuple[str, "int | str"], ...]


class Compiled(NamedTuple):
    """A kernel's assembly, and what its metadata says.

    Attributes:
        text: The assembly.
        registers: Vector registers.
        vgpr_spills: Vector registers that are kept in memory for a while.
        sgpr_spills: Scalar registers that are kept in vector registers, or in memory.
        private_bytes: Memory of a thread, for arrays that are in no registers, or for what is spilled.
        lds: Bytes of LDS that a workgroup has.
    """

    text: str
    registers: int
    vgpr_spills: int
    sgpr_spills: int
    private_bytes: int
    lds: int

    def waves(self, target: str, threads: int) -> int | None:
        """Return the waves that a SIMD of RDNA has registers and LDS for; None for other targets.

        Args:
            target: Such as `gfx1010`.
            threads: Of a workgroup.
        """
        if target not in _REGISTERS:
            return None
        every, block, most = _REGISTERS[target]
        by_registers = every // (-(-max(1, self.registers) // block) * block)
        # clang lets a workgroup spread over two compute units, the hiprtc of ROCm 5.2 does not.
        units = 1 if ".amdhsa_workgroup_processor_mode 0" in self.text else 2
        by_lds = units * _LDS_BYTES // self.lds * -(-threads // 32) // (2 * units) if self.lds else most
        return min(most, by_registers, by_lds)

    def forbidden(self, target: str) -> list[str]:
        """Return the instructions that code for a target must not have: for gfx1030 those that gfx1010 lacks."""
        return sorted(set(FORBIDDEN.findall(self.text))) if target == "gfx1030" else []


Compile = Callable[[str, Defines, str], Compiled]


def clang() -> str | None:
    """Return clang, None where there is none."""
    return next((found for name in CLANGS if (found := shutil.which(name))), None)


def clang_name() -> str:
    """Return clang with its version.

    Raises:
        OSError: There is no clang.
    """
    said = subprocess.run([clang() or "clang", "--version"], capture_output=True, text=True, check=True).stdout
    return f"clang {re.findall(r'version ([0-9.]+)', said)[0]}"


@cache
def by_clang(source: str, defines: Defines, target: str) -> Compiled:
    """Compile a kernel as hiprtc would.

    Raises:
        OSError: There is no clang.
        subprocess.CalledProcessError: It does not compile.
    """
    command = [
        clang() or "clang", "-x", "hip", "--offload-device-only", "-nogpulib", "-nogpuinc", f"--offload-arch={target}",
        "-O3", "-std=c++17", "-ffp-contract=on", "-S", "-o", "-", "-",
    ]  # fmt: skip
    text = program_of(source, defines).text()
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True, timeout=300)
    return read_needs(done.stdout)


def hiprtc_name(library: str) -> str:
    """Return hiprtc with the version in the name of its file; it calls itself 9.0 in every release."""
    version = re.search(r"\.so\.([0-9]+\.[0-9.]+)$", str(Path(library).resolve()))
    return f"hiprtc {version[1]}" if version else "hiprtc"


@cache
def by_hiprtc(library: str, source: str, defines: Defines, target: str) -> Compiled:
    """Compile a kernel by hiprtc, with the options that a training gives it.

    Raises:
        RtcError: It does not compile.
        subprocess.CalledProcessError: LLVM's tools cannot read the object.
    """
    options = Target("hip", target).options()
    code = _rtc(library).compile(program_of(source, defines).text(), source, options)
    return read_needs(as_assembly(code, target))


def chosen(library: str | None) -> tuple[Compile, str]:
    """Return the compiler of a command, and its name: the hiprtc in a library, or clang."""
    return (partial(by_hiprtc, library), hiprtc_name(library)) if library else (by_clang, clang_name())


@cache
def _rtc(library: str) -> Rtc:
    return Rtc(library, "hip")


def read_needs(text: str) -> Compiled:
    """Return a kernel's assembly with what the metadata in it says that it needs."""

    def said(word: str) -> int:
        return int(next(iter(re.findall(rf"\.{word}:\s+(\d+)", text)), 0))

    spills, sizes = (said("vgpr_spill_count"), said("sgpr_spill_count")), ("private", "group")
    return Compiled(text, said("vgpr_count"), *spills, *(said(f"{each}_segment_fixed_size") for each in sizes))
