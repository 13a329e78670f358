"""Names and places of the libraries that compile and launch kernels, as data; and where they are on this machine.

What is mapped into the process already comes first: a second copy of the HIP runtime would know nothing of torch's
streams and memory. Windows was never run on: its rows are from AMD's and NVIDIA's documents and from the wheels.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True)
class Library:
    """One library on one system.

    Attributes:
        files: Patterns of its file's name, best first.
        by_name: Names to leave to the system's own search, after everything else.
    """

    files: tuple[str, ...]
    by_name: tuple[str, ...]


@dataclass(frozen=True)
class Stack:
    """What a family of GPUs needs on one system.

    Attributes:
        compiler: Compiles at run time.
        driver: Loads and launches.
        folders: Where they are, best first. `{torch}` is torch's package, `{site}` the folder it is in, other names
            are environment variables; a folder with one that is not set is left out.
    """

    compiler: Library
    driver: Library
    folders: tuple[str, ...]


_NOT_THESE: Final = ("*builtins*", "*.alt.*")  # what belongs to a compiler, and NVIDIA's second edition of it
# ROCm 5.2 has hiprtc inside libamdhip64, ROCm 5.4 and newer next to it. Wheels of TheRock have both in a package of
# their own.
STACKS: Final[Mapping[tuple[str, str], Stack]] = {
    ("hip", "linux"): Stack(
        Library(("libhiprtc.so*", "libamdhip64.so*"), ("libhiprtc.so", "libamdhip64.so")),
        Library(("libamdhip64.so*",), ("libamdhip64.so",)),
        ("{torch}/lib", "{site}/_rocm_sdk_*/lib", "{ROCM_PATH}/lib", "{HIP_PATH}/lib", "/opt/rocm/lib"),
    ),
    ("hip", "windows"): Stack(
        Library(("hiprtc*.dll", "amdhip64*.dll"), ("hiprtc.dll",)),
        # The driver of the card brings one too, in the system's folder.
        Library(("amdhip64*.dll",), ("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll")),
        ("{torch}/lib", "{site}/_rocm_sdk_*/bin", "{HIP_PATH}/bin", "{SystemRoot}/System32"),
    ),
    ("cuda", "linux"): Stack(
        Library(("libnvrtc.so*",), ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")),
        Library(("libcuda.so.1",), ("libcuda.so.1",)),
        ("{torch}/lib", "{site}/nvidia/*/lib", "{CUDA_HOME}/lib64", "{CUDA_PATH}/lib64", "/usr/local/cuda/lib64"),
    ),
    ("cuda", "windows"): Stack(
        Library(("nvrtc64_*.dll",), ("nvrtc64_130_0.dll", "nvrtc64_120_0.dll")),
        Library(("nvcuda.dll",), ("nvcuda.dll",)),
        ("{torch}/lib", "{site}/nvidia/*/bin", "{CUDA_PATH}/bin", "{SystemRoot}/System32"),
    ),
}


def stack_of(family: str) -> Stack:
    """Return the stack of `hip` or `cuda` on this system: WSL counts as Linux."""
    return STACKS[family, "windows" if sys.platform == "win32" else "linux"]


def torch_folder() -> Path | None:
    """Return where torch is, without importing it; None where it is not installed."""
    spec = find_spec("torch")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def mapped_files() -> list[str]:
    """Return the files that are mapped into this process, as far as the system tells."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            rows = (line.split(maxsplit=5) for line in maps)
            return list(dict.fromkeys(row[5].strip() for row in rows if len(row) == 6 and row[5].startswith("/")))
    except OSError:
        return []


def loaded_dll(name: str, kernel32: Any = None) -> str | None:
    """Return the path of a DLL that this process has loaded, by its file's name; None where it has not."""
    kernel32 = ctypes.windll.kernel32 if kernel32 is None else kernel32  # type: ignore[attr-defined,unused-ignore]
    kernel32.GetModuleHandleW.restype = ctypes.c_void_p
    handle = kernel32.GetModuleHandleW(ctypes.c_wchar_p(name))
    if not handle:
        return None
    path = ctypes.create_unicode_buffer(32768)
    return path.value if kernel32.GetModuleFileNameW(ctypes.c_void_p(handle), path, len(path)) else None


def folders(stack: Stack, torch: Path | None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders of a stack that exist, best first."""
    known = dict(environ) if torch is None else {**environ, "torch": str(torch), "site": str(torch.parent)}
    found: list[Path] = []
    for pattern in stack.folders:
        try:
            path = Path(pattern.format_map(known))
        except KeyError:
            continue
        wild = next((part for part in path.parts if "*" in part), None)
        if wild is None:
            found.append(path)
        else:
            at = path.parts.index(wild)
            found += sorted(Path(*path.parts[:at]).glob("/".join(path.parts[at:])))
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def candidates(
    library: Library, places: Iterable[Path], mapped: Iterable[str], loaded: Callable[[str], str | None] | None = None
) -> list[str]:
    """Return paths and names under which to load a library, best first.

    Args:
        library: The library.
        places: Folders to look in.
        mapped: Files that are in the process already.
        loaded: On Windows, returns the path of a loaded DLL by its file's name.
    """
    inside = [Path(file) for file in mapped]
    there = [file for place in places for file in sorted(place.iterdir(), reverse=True)]
    found: list[str] = []
    for pattern in library.files:
        own = [str(file) for file in inside if _fits(file.name, pattern)]
        near = [str(file) for file in there if _fits(file.name, pattern) and file.is_file()]
        if loaded is not None:
            own += [path for file in near if (path := loaded(Path(file).name)) is not None]
            own += [path for name in library.by_name if _fits(name, pattern) and (path := loaded(name)) is not None]
        found += own + near
    return list(dict.fromkeys([*found, *library.by_name]))


def find(library: Library, stack: Stack) -> list[str]:
    """Return paths and names under which to load a library of a stack on this machine, best first."""
    loaded = loaded_dll if sys.platform == "win32" else None
    return candidates(library, folders(stack, torch_folder()), mapped_files(), loaded)


def _fits(name: str, pattern: str) -> bool:
    lower = name.lower()  # Windows does not care
    return fnmatch(lower, pattern) and not any(fnmatch(lower, other) for other in _NOT_THESE)
