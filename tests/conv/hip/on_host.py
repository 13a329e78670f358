"""Kernels of engine hip as host code: compiled by the C++ compiler of this machine, a block's threads as fibers."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yolo_rocm.conv.hip.calls import HipCall

COMPILER = shutil.which("g++") or shutil.which("clang++")
_SOURCES = Path(__file__).parents[3] / "yolo_rocm" / "conv" / "hip"
_PRELUDE = Path(__file__).with_name("host_prelude.h")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="hip_on_host_")


@functools.cache
def compiled(source: Path, defines: tuple[tuple[str, int | str], ...]) -> dict[str, Any]:
    """Return the kernels of a source by name, as functions of grid, threads and their own arguments."""
    text = source.read_text(encoding="utf-8")
    plain = re.sub(r"//[^\n]*", "", text)
    kernels = dict(
        re.findall(r"^\w*KERNEL\w*(?:\([^)]*\))?\s+void\s+(\w+)\((.*?)\)\s*\{", plain, re.DOTALL | re.MULTILINE)
    )
    launchers = []
    for name, parameters in kernels.items():
        names = ", ".join(re.search(r"(\w+)$", one.strip()).group(1) for one in parameters.split(","))
        launchers.append(
            f'extern "C" void launch_{name}(u32 gx, u32 gy, u32 gz, u32 threads, {parameters}) {{\n'
            f"    run_blocks(gx, gy, gz, threads, [&] {{ {name}({names}); }});\n}}\n"
        )
    constants = "".join(f"#define {name} {value}\n" for name, value in defines)
    program = "\n".join((_PRELUDE.read_text(encoding="utf-8"), constants, text, *launchers))
    path = Path(_folder().name) / f"{hashlib.sha256(program.encode()).hexdigest()[:16]}.so"
    command = [COMPILER, "-x", "c++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input=program, text=True, check=True, timeout=120)
    library = ctypes.CDLL(str(path))
    return {name: getattr(library, f"launch_{name}") for name in kernels}


def bound(kernel, grid: tuple[int, int, int], threads: int, numbers: Sequence[int | float | None]):
    """Return a launch that takes addresses as those of engines.hip do, then a float's bits for each None."""
    sizes = [ctypes.c_uint32(size) for size in (*grid, threads)]
    late_ones = numbers.count(None)

    def run(*given: int) -> None:
        addresses, late = given[: len(given) - late_ones], iter(given[len(given) - late_ones :])
        filled = [struct.unpack("=f", struct.pack("=I", next(late)))[0] if n is None else n for n in numbers]
        rest = [ctypes.c_float(n) if isinstance(n, float) else ctypes.c_int32(n) for n in filled]
        kernel(*sizes, *(ctypes.c_void_p(address or None) for address in addresses), *rest)

    return run


def launch_of(call: HipCall, device: str):
    """Return a launch as `yolo_rocm.conv.hip.launching` does, which runs on the CPU."""
    assert device == "cpu"
    kernel = compiled(_SOURCES / f"{call.source}.hip.cpp", call.defines)[call.source]
    return bound(kernel, call.grid, call.threads, call.numbers)
