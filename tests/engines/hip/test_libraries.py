"""Where the libraries are looked for, on both systems, with files of the right names. Windows was never run on."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from yolo_rocm.engines.hip.libraries import STACKS, candidates, folders, loaded_dll


def files(site: Path, *names: str) -> Path:
    """Make empty files below a `site-packages` and return its torch."""
    for name in names:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    (site / "torch").mkdir(parents=True, exist_ok=True)
    return site / "torch"


def found(family: str, system: str, which: str, site: Path, torch: Path, environ=None, mapped=(), loaded=None):
    """Return the candidates below a `site-packages`, as relative paths."""
    stack = STACKS[family, system]
    places = [place for place in folders(stack, torch, environ or {}) if place.is_relative_to(site)]
    rows = candidates(getattr(stack, which), places, mapped, loaded)
    return [row.removeprefix(f"{site}/").replace("\\", "/") for row in rows]


@pytest.mark.parametrize(
    ("family", "system", "which", "there", "expected"),
    [
        # torch 1.13.1+rocm5.2: hiprtc is inside the runtime
        ("hip", "linux", "compiler", ["torch/lib/libamdhip64.so"], ["torch/lib/libamdhip64.so"]),
        # from ROCm 5.4 on next to it, with something that is no compiler
        (
            "hip", "linux", "compiler",
            ["torch/lib/libamdhip64.so", "torch/lib/libhiprtc-builtins.so", "torch/lib/libhiprtc.so"],
            ["torch/lib/libhiprtc.so", "torch/lib/libamdhip64.so"],
        ),
        # TheRock: a package of their own, and no file without a number
        (
            "hip", "linux", "driver",
            ["_rocm_sdk_core/lib/libhiprtc.so.7", "_rocm_sdk_core/lib/libamdhip64.so.7"],
            ["_rocm_sdk_core/lib/libamdhip64.so.7"],
        ),
        (
            "hip", "windows", "compiler",
            ["_rocm_sdk_core/bin/hiprtc0701.dll", "_rocm_sdk_core/bin/hiprtc-builtins0701.dll"],
            ["_rocm_sdk_core/bin/hiprtc0701.dll"],
        ),
        ("hip", "windows", "driver", ["torch/lib/amdhip64_7.dll"], ["torch/lib/amdhip64_7.dll"]),
        (
            "cuda", "linux", "compiler",
            ["nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12"],
            ["nvidia/cuda_nvrtc/lib/libnvrtc.so.12"],
        ),
        ("cuda", "windows", "compiler", ["torch/lib/nvrtc64_120_0.dll"], ["torch/lib/nvrtc64_120_0.dll"]),
        ("cuda", "windows", "driver", ["torch/lib/nvrtc64_120_0.dll"], []),
    ],
)  # fmt: skip
def test_files_of_wheels_are_found_and_best_ones_come_first(tmp_path, family, system, which, there, expected):
    names = found(family, system, which, tmp_path, files(tmp_path, *there))
    last = STACKS[family, system]
    assert names == [*expected, *getattr(last, which).by_name]


def test_what_is_in_the_process_already_comes_first_and_folders_of_variables_last(tmp_path):
    torch = files(tmp_path, "torch/lib/libamdhip64.so", "rocm/lib/libamdhip64.so.6")
    environ = {"ROCM_PATH": str(tmp_path / "rocm"), "HIP_PATH": str(tmp_path / "gone")}
    mapped = ["/usr/lib/libc.so.6", "/opt/rocm-5.2/lib/libamdhip64.so.5.2.50201"]
    names = found("hip", "linux", "driver", tmp_path, torch, environ, mapped)
    assert names[:3] == [mapped[1], "torch/lib/libamdhip64.so", "rocm/lib/libamdhip64.so.6"]
    site = tmp_path / "w"
    dll, environ = files(site, "torch/lib/amdhip64_7.dll", "System32/amdhip64_6.dll"), {"SystemRoot": str(site)}
    names = found("hip", "windows", "driver", site, dll, environ, loaded={"amdhip64_7.dll": "C:/a.dll"}.get)
    assert names[:3] == ["C:/a.dll", "torch/lib/amdhip64_7.dll", "System32/amdhip64_6.dll"]
    names = found("hip", "windows", "driver", tmp_path, torch, loaded=lambda name: "C:/b.dll" if "_6" in name else None)
    assert names[0] == "C:/b.dll"  # the one of the card's driver, which is in none of the folders


def test_a_loaded_dll_is_asked_for_by_name():
    asked = []

    def handle(name):
        asked.append(name.value)
        return 0x7FF812340000 if name.value == "amdhip64_6.dll" else None

    def path_of(module, buffer, size):
        assert (module.value, size) == (0x7FF812340000, 32768)  # a whole pointer
        buffer.value = r"C:\Windows\System32\amdhip64_6.dll"
        return len(buffer.value)

    kernel32 = SimpleNamespace(GetModuleHandleW=handle, GetModuleFileNameW=path_of)
    assert loaded_dll("amdhip64_6.dll", kernel32) == r"C:\Windows\System32\amdhip64_6.dll"
    assert loaded_dll("hiprtc.dll", kernel32) is None
    assert asked == ["amdhip64_6.dll", "hiprtc.dll"]
    assert handle.restype is ctypes.c_void_p
