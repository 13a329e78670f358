"""Make the witness: `functions.c` as assembly of each target, and what the host's CPU computes.

    python -m tests.tools.emulator.witness.make

writes `TARGET.s.gz` by clang (Debian's has the AMDGPU target) and `expected.npz` by the host's compiler, next to this
file. The tests read those, so that they need neither compiler; where one is installed they use it as well.
"""

from __future__ import annotations

import ctypes
import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from tests.tools.emulator.witness.cases import Array, Case, cases, outputs

FOLDER: Final = Path(__file__).parent
# Target, wave size, and the name of its text.
TEXTS: Final = {
    "gfx1010": ("gfx1010", 32),
    "gfx1030": ("gfx1030", 32),
    "gfx1030_wave64": ("gfx1030", 64),
    "gfx1100": ("gfx1100", 32),
    "gfx1151": ("gfx1151", 32),
    "gfx1201": ("gfx1201", 32),
    "gfx90a": ("gfx90a", 64),
    "gfx942": ("gfx942", 64),
}
_EXACT: Final = ("-fno-fast-math", "-ffp-contract=off", "functions.c")
_FOR_GPU: Final = ("--target=amdgcn-amd-amdhsa", "-std=c11", "-O2", "-S", "-nogpulib", "-ffreestanding",
                   "-fno-jump-tables", "-fno-ident", *_EXACT, "-o", "-")  # fmt: skip
_FOR_HOST: Final = ("-shared", "-fPIC", "-std=gnu11", "-O1", *_EXACT, "-lm")


def clang() -> str | None:
    """Return a clang that compiles for AMD GPUs, or None."""
    names = ("clang", *(f"clang-{version}" for version in range(25, 16, -1)))
    for found in filter(None, map(shutil.which, names)):
        known = subprocess.run([found, "--print-targets"], capture_output=True, text=True)
        if "amdgcn" in known.stdout:
            return found
    return None


def compiled(compiler: str, name: str) -> str:
    """Return clang's assembly for a text of `TEXTS`, less what only people read."""
    target, wave = TEXTS[name]
    more = ["-mwavefrontsize64"] if target.startswith("gfx1") and wave == 64 else []
    made = subprocess.run(
        [compiler, f"-mcpu={target}", *more, *_FOR_GPU], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    return stripped(made.stdout)


def stripped(text: str) -> str:
    """Drop comments, empty lines and directives about the object file; keep the metadata, which has the arguments."""
    code, mark, metadata = text.partition("\t.amdgpu_metadata")
    lines = (re.sub(r"\s*;.*", "", line).rstrip() for line in code.splitlines())
    dropped = (".p2align", ".globl", ".type", ".size", ".section", ".text", ".protected", ".hidden", ".set", ".ident")
    kept = "\n".join(line for line in lines if line.strip() and not line.strip().startswith(dropped))
    return f"{kept}\n{mark}{metadata}"


def stored(name: str) -> str:
    """Return the assembly kept in the repository."""
    return gzip.decompress((FOLDER / f"{name}.s.gz").read_bytes()).decode()


def modules(text: str) -> dict[str, str]:
    """Return each function of a text as a module of its own."""
    code, mark, metadata = text.partition("\t.amdgpu_metadata\n")
    target = re.search(r"^\s*\.amdgcn_target.*\n", code, re.MULTILINE)
    bodies = re.findall(r"^(\w+):\n(.*?\.end_amdhsa_kernel\n)", code, re.MULTILINE | re.DOTALL)
    described = yaml.safe_load(metadata.partition("\t.end_amdgpu_metadata")[0])["amdhsa.kernels"]
    entries = {kernel[".name"]: yaml.safe_dump({"amdhsa.kernels": [kernel]}) for kernel in described}
    assert target is not None
    return {
        name: f"{target[0]}{name}:\n{body}{mark}---\n{entries[name]}...\n\t.end_amdgpu_metadata\n"
        for name, body in bodies
    }


def host_library(compiler: str, folder: Path) -> ctypes.CDLL:
    """Compile the functions for this machine's CPU and load them."""
    library = folder / "functions.so"
    subprocess.run([compiler, *_FOR_HOST, "-o", str(library)], cwd=FOLDER, check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def on_host(library: ctypes.CDLL, name: str, case: Case) -> list[Array]:
    """Run a function group by group on the CPU."""
    copies = [each.copy() if isinstance(each, np.ndarray) else each for each in case.arguments]
    function = getattr(library, name)
    function.restype = None
    function.argtypes = [_type_of(each) for each in copies]
    arguments = [each.ctypes.data if isinstance(each, np.ndarray) else each.item() for each in copies]
    places = [ctypes.c_uint.in_dll(library, f"group_{axis}") for axis in "xyz"]
    for group in product(*map(range, case.groups)):
        for place, index in zip(places, group, strict=True):
            place.value = index
        function(*arguments)
    return outputs(case, (np.asarray(copies[index]) for index in case.results))


def _type_of(argument: Array | np.generic) -> Any:
    return ctypes.c_void_p if isinstance(argument, np.ndarray) else np.ctypeslib.as_ctypes_type(argument.dtype)


def all_on_host(library: ctypes.CDLL) -> Iterator[tuple[str, Array]]:
    """Yield every result under the name it is stored by."""
    for name, case in cases().items():
        for index, made in enumerate(on_host(library, name, case)):
            yield f"{name}.{index}", made


def main() -> int:
    """Write the assembly and the expected results."""
    compiler, host = clang(), shutil.which("cc")
    if compiler is None or host is None:
        sys.stderr.write("needs a clang with the target amdgcn, and cc\n")
        return 1
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    for name in TEXTS:
        text = f"; functions.c by {version}: make.py has the command line\n{compiled(compiler, name)}"
        (FOLDER / f"{name}.s.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    with tempfile.TemporaryDirectory() as folder:
        results = dict(all_on_host(host_library(host, Path(folder))))
    np.savez_compressed(FOLDER / "expected.npz", **results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
