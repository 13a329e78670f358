"""The installed software, read from its files: importing torch takes seconds and may start the GPU runtime."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .files import text

# torch compiles its list of targets into one string, with blanks or semicolons between them, which
# `torch.cuda.get_arch_list()` splits (torch/csrc/cuda/Module.cpp, THCPModule_getArchFlags; pytorch#61706).
_ARCH_LIST: Final = re.compile(rb"gfx[0-9a-f]{3,4}(?:[ ;]gfx[0-9a-f]{3,4})*")
_TENSILE: Final = re.compile(r"(?:Tensile|Kernels)\S*?[_-](gfx[0-9a-f]{3,4})\b")


def torch_folder() -> Path | None:
    """Return where torch is installed, without importing it."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def torch_build(folder: Path | None = None) -> tuple[str | None, str | None, str | None]:
    """Return version, build (`hip`, `cuda`, `cpu`) and ROCm version of the installed torch; all None without torch.

    Read from torch's own `version.py`: distributions build for ROCm without saying so in the package's version.
    """
    folder = folder or torch_folder()
    if folder is None:
        return None, None, None
    facts: dict[str, str] = {}
    for line in text(folder / "version.py").splitlines():
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


def torch_archs(folder: Path | None) -> tuple[str, ...]:
    """Return the targets torch has kernels for, as far as its files tell; empty means not known.

    AMD's multi-arch wheels are built for every target and then split: the compiled-in list names them all, the kernels
    come in packages of their own, `amd-torch-device-gfx1010` and the like (ROCm/TheRock RELEASES.md), which count then.
    """
    if folder is None:
        return ()
    names = (package.name.replace("_", "-") for package in folder.parent.glob("amd[-_]torch[-_]device[-_]*.dist-info"))
    packages = {match.group(1) for name in names if (match := re.search(r"device-(gfx[0-9a-f]{3,4})-\d", name))}
    return tuple(sorted(packages or _compiled_archs(folder)))


def _compiled_archs(folder: Path) -> list[str]:
    for name in ("lib/libtorch_python.so", "lib/torch_python.dll"):
        try:
            with (folder / name).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                lists = [match.group() for match in _ARCH_LIST.finditer(view)]
        except (OSError, ValueError):
            continue
        # Single names are also in messages and tables; the list is the longest run, or the only name there is.
        longest = max(lists, key=len, default=b"")
        names = re.split(r"[ ;]", longest.decode())
        if len(names) > 1 or (longest and len(set(lists)) == 1):
            return names
    return []


def rocblas_archs(folder: Path | None, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the targets the rocBLAS that torch will load has kernels for; empty where none is found.

    Without them the first matrix product aborts the process (pytorch#179865), and no Python code can catch that.
    """
    for library in _rocblas_folders(folder, root):
        found: set[str] = set()
        for path in library.rglob("*gfx*"):
            match = _TENSILE.search(path.name)
            if match:
                found.add(match.group(1))
        if found:
            return tuple(sorted(found))
    return ()


def _rocblas_folders(folder: Path | None, root: Path) -> Iterator[Path]:
    if folder is not None:
        yield folder / "lib/rocblas/library"
        for package in sorted(folder.parent.glob("_rocm_sdk_libraries*")):
            yield from (package / "lib/rocblas/library", package / "bin/rocblas/library")
    yield from (root / "opt/rocm/lib/rocblas/library", root / "usr/lib/rocblas/library")


def rocm_version(root: Path = Path("/")) -> str | None:
    """Return the version of the ROCm installed in the system; wheels bring their own and need none."""
    for place in ("opt/rocm/.info/version", "opt/rocm/.info/version-dev", "usr/share/rocm/.info/version"):
        match = re.match(r"\d+(?:\.\d+)*", text(root / place))
        if match:
            return match.group()
    return None


def package_version(name: str) -> str | None:
    """Return the version of a package, without importing it: as it is installed, or of a checkout on the path."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        spec = importlib.util.find_spec(name)
        source = text(Path(spec.origin)) if spec is not None and spec.origin else ""
        match = re.search(r"""^__version__\s*=\s*['"]([^'"]+)""", source, re.MULTILINE)
        return match[1] if match else None
