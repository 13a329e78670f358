"""Do variables of the environment break, hide or slow down anything?"""

from __future__ import annotations

import re

from ..hardware import HIDES_FIRST, HIDES_NEXT, OVERRIDE, family_of, overridden_gfx
from ..ultralytics_hooks import versions
from .context import Patient, at_least, install_command, miopen_filters
from .findings import Finding

TOPOLOGY = "https://github.com/ROCm/rocm-systems projects/rocr-runtime/libhsakmt/src/topology.c"
MIOPEN_DEBUG = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/how-to/debug-log.html"
# Variables that are switches (MIOpen docs, env_variables.rst); others hold numbers, names or paths.
_SWITCH = re.compile(
    r"MIOPEN_(?:DEBUG_CONV_(?:GEMM|DIRECT|WINOGRAD|IMPLICIT_GEMM|FFT|IMMED_FALLBACK|DIRECT_NAIVE_CONV_(?:FWD|BWD|WRW))"
    r"|DEBUG_(?:GCN_ASM|HIP)_KERNELS|DEBUG_OPENCL_CONVOLUTIONS|DEBUG_DISABLE_(?:FIND_DB|SYSTEM_DB|USER_DB)"
    r"|DEBUG_ENABLE_AI_IMMED_MODE_FALLBACK|DISABLE_CACHE|ENABLE_LOGGING|ENABLE_LOGGING_CMD)"
)
_SWITCH_VALUES = frozenset(
    {"0", "1", "on", "off", "yes", "no", "true", "false", "enable", "enabled", "disable", "disabled"}
)
_ON = frozenset({"1", "on", "yes", "true", "enable", "enabled"})


def override_on_windows(patient: Patient) -> Finding | None:
    """Windows does not go through HSA."""
    if patient.machine.system != "windows" or not patient.environ.get(OVERRIDE):
        return None
    return Finding(
        "override-on-windows",
        "warning",
        f"{OVERRIDE}={patient.environ[OVERRIDE]} has no effect on Windows, where HIP does not go through HSA",
        f"Unset it; a card the wheel lacks needs another wheel: {install_command(None)}",
        ("https://github.com/ROCm/TheRock/issues/1719", "https://github.com/ROCm/legacy-rocm-build/issues/2654"),
    )


def override_malformed(patient: Patient) -> Finding | None:
    """An override that is not three numbers is not read."""
    gpu = patient.gpu
    value = patient.override(gpu) if gpu else None
    if value is None or overridden_gfx(value) is not None:
        return None
    return Finding(
        "override-malformed",
        "error",
        f"{OVERRIDE}={value} is not of the form 10.3.0",
        f"Unset {OVERRIDE}, or write three numbers",
        (TOPOLOGY,),
    )


def override_rdna1(patient: Patient) -> Finding | None:
    """An RDNA1 card presented as RDNA2 runs on ROCm 5.2 only."""
    gpu = patient.gpu
    if gpu is None or gpu.family != "rdna1" or family_of(patient.target(gpu)) != "rdna2":
        return None
    if not at_least(patient.machine.hip, "5.3"):
        return None
    return Finding(
        "override-rdna1",
        "error",
        f"{gpu} is presented as {patient.target(gpu)} to ROCm {patient.machine.hip}: this crashes or hangs from 5.3 on",
        f"Unset {OVERRIDE} and install a build for the card: {install_command(gpu.gfx)}",
        (
            "https://github.com/ROCm/legacy-rocm-build/issues/2527",
            "https://github.com/ROCm/legacy-rocm-build/issues/887",
        ),
    )


def override_other_family(patient: Patient) -> Finding | None:
    """Code for another family is code for another instruction set."""
    gpu = patient.gpu
    family = family_of(patient.target(gpu)) if gpu else None
    if gpu is None or gpu.family is None or family in (None, gpu.family) or {gpu.family, family} == {"rdna1", "rdna2"}:
        return None
    return Finding(
        "override-other-family",
        "error",
        f"{gpu} ({gpu.family}) is presented as {patient.target(gpu)} ({family}), another instruction set",
        f"Unset {OVERRIDE}",
        ("https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/15434",),
    )


def override_hides_native(patient: Patient) -> Finding | None:
    """An override keeps the right kernels from being used where the wheel has them."""
    gpu = patient.gpu
    if gpu is None or gpu.gfx not in patient.machine.archs or patient.target(gpu) == gpu.gfx:
        return None
    return Finding(
        "override-hides-native",
        "warning",
        f"this torch has kernels for {gpu.gfx}, but {OVERRIDE}={patient.override(gpu)} makes it use those of "
        f"{patient.target(gpu)}",
        f"Unset {OVERRIDE}",
        (TOPOLOGY,),
    )


def override_fp16_overrun(patient: Patient) -> Finding | None:
    """gfx1102 and gfx1103 have fewer registers than gfx1100, whose fp16 kernels use them."""
    gpu = patient.gpu
    if gpu is None or gpu.gfx not in ("gfx1102", "gfx1103") or patient.target(gpu) != "gfx1100" or not patient.amp:
        return None
    return Finding(
        "override-fp16-overrun",
        "error",
        f"{gpu} is presented as gfx1100, which has more registers: fp16 kernels can overrun, and amp is on",
        f"amp=False, or a build for the card without {OVERRIDE}: {install_command(gpu.gfx)}",
        ("https://github.com/ROCm/legacy-rocm-build/issues/4557",),
    )


def override_active(patient: Patient) -> Finding | None:
    """What torch reports under an override is not the card."""
    gpu = patient.gpu
    if gpu is None or gpu.gfx is None or patient.target(gpu) == gpu.gfx:
        return None
    return Finding(
        "override-active",
        "info",
        f"torch and rocminfo will report {patient.target(gpu)}; the card is {gpu.gfx}, as the kernel driver says",
        "Nothing, where the override is meant",
        (TOPOLOGY,),
    )


def miopen_implicit_gemm(patient: Patient) -> Finding | None:
    """Switching on what is on."""
    if patient.environ.get("MIOPEN_DEBUG_CONV_IMPLICIT_GEMM", "").lower() not in _ON:
        return None
    return Finding(
        "miopen-implicit-gemm",
        "info",
        "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM=1 does nothing: implicit GEMM is on unless it is switched off",
        "Unset it. Only DIRECT, GEMM, WINOGRAD and FFT set to 0 would leave implicit GEMM alone",
        (MIOPEN_DEBUG,),
    )


def miopen_find_enforce(patient: Patient) -> Finding | None:
    """A left-over of tuning that tunes again in every run."""
    value = patient.environ.get("MIOPEN_FIND_ENFORCE", "")
    if value.upper() not in ("3", "4", "SEARCH", "SEARCH_DB_UPDATE"):
        return None
    return Finding(
        "miopen-find-enforce",
        "warning",
        f"MIOPEN_FIND_ENFORCE={value} makes MIOpen tune every convolution, for hours with a whole network",
        "Unset MIOPEN_FIND_ENFORCE",
        (
            "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/perfdb.html",
            "https://github.com/ROCm/pytorch/issues/328",
        ),
    )


def miopen_perf_vals(patient: Patient) -> Finding | None:
    """*_PERF_VALS hold text; a switch in them corrupts the configuration of a kernel."""
    wrong = [
        f"{name}={value}"
        for name, value in sorted(patient.environ.items())
        if re.fullmatch(r"MIOPEN_DEBUG_\w+_PERF_VALS", name) and value.lower() in _SWITCH_VALUES
    ]
    if not wrong:
        return None
    return Finding(
        "miopen-perf-vals",
        "error",
        f"{', '.join(wrong)}: these variables hold the parameters of a kernel and are no switches",
        f"Unset {', '.join(word.partition('=')[0] for word in wrong)}",
        ("https://github.com/vladmandic/sdnext scripts/rocm/rocm_mgr.py",),
    )


def miopen_switches(patient: Patient) -> Finding | None:
    """MIOpen throws where a switch holds anything else."""
    wrong = [
        f"{name}={value}"
        for name, value in sorted(patient.environ.items())
        if _SWITCH.fullmatch(name) and value.lower() not in _SWITCH_VALUES
    ]
    if not wrong:
        return None
    return Finding(
        "miopen-switches",
        "error",
        f"MIOpen stops at {', '.join(wrong)}: a switch is 0 or 1",
        "Set to 0 or 1, or unset",
        ("https://github.com/ROCm/rocm-libraries projects/miopen/src/include/miopen/env.hpp",),
    )


def miopen_filters_changed(patient: Patient) -> Finding | None:
    """MIOpen's database keeps what was chosen under other filters."""
    before, now = patient.filters_before, miopen_filters(patient.environ)
    if before is None or dict(before) == now or not patient.hip:
        return None
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return Finding(
        "miopen-filters-changed",
        "warning",
        f"{', '.join(names)} changed since the last look; MIOpen's database still holds what was chosen before",
        "Delete MIOpen's user database, ~/.config/miopen (Windows: %USERPROFILE%\\.miopen\\db)",
        (MIOPEN_DEBUG,),
    )


def expandable_segments(patient: Patient) -> Finding | None:
    """An allocator option that hangs copies on ROCm."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    wrong = [n for n in names if "expandable_segments:true" in patient.environ.get(n, "").lower().replace(" ", "")]
    if not patient.hip or not wrong:
        return None
    return Finding(
        "expandable-segments",
        "warning",
        f"{', '.join(wrong)} asks for expandable_segments, which hangs copies or leaks memory on ROCm",
        "Remove expandable_segments:True from it",
        ("https://github.com/pytorch/pytorch/issues/192259", "https://github.com/pytorch/pytorch/issues/123548"),
    )


def two_device_filters(patient: Patient) -> Finding | None:
    """ROCR filters first, and HIP counts what is left."""
    second = next((name for name in HIDES_NEXT if patient.environ.get(name)), None)
    if not patient.hip or second is None or not patient.environ.get(HIDES_FIRST):
        return None
    return Finding(
        "two-device-filters",
        "warning",
        f"{HIDES_FIRST} and {second} are both set: the second one counts what the first one leaves, from 0",
        f"Unset one of them: keep {HIDES_FIRST} on Linux",
        (
            "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html",
            "https://github.com/pytorch/pytorch torch/cuda/__init__.py",
        ),
    )


def hip_visible_with_old_ultralytics(patient: Patient) -> Finding | None:
    """Older Ultralytics chooses a device through a variable that HIP then ignores."""
    version = patient.machine.ultralytics
    if not patient.hip or not patient.environ.get("HIP_VISIBLE_DEVICES") or version is None:
        return None
    if versions.behaves(version, "GPU chosen by its number"):
        return None
    return Finding(
        "hip-visible-with-old-ultralytics",
        "warning",
        f"Ultralytics {version} chooses a GPU through CUDA_VISIBLE_DEVICES, which HIP ignores while "
        "HIP_VISIBLE_DEVICES is set: device=1 trains on another GPU",
        "Unset HIP_VISIBLE_DEVICES and give device=, or upgrade: pip install -U ultralytics",
        ("https://github.com/ROCm/clr rocclr/device/rocm/rocdevice.cpp",),
    )


CHECKS = (
    override_on_windows,
    override_malformed,
    override_rdna1,
    override_other_family,
    override_hides_native,
    override_fp16_overrun,
    override_active,
    miopen_implicit_gemm,
    miopen_find_enforce,
    miopen_perf_vals,
    miopen_switches,
    miopen_filters_changed,
    expandable_segments,
    two_device_filters,
    hip_visible_with_old_ultralytics,
)
