"""Do variables of the environment break, hide or slow down anything?"""

from __future__ import annotations

import re
from typing import Final

from ..hardware import HIDES_FIRST, HIDES_NEXT, OVERRIDE, at_least, family_of, overridden_gfx
from ..ultralytics_hooks import versions
from .context import Context
from .findings import Checks, Found

TOPOLOGY: Final = "https://github.com/ROCm/rocm-systems projects/rocr-runtime/libhsakmt/src/topology.c"
_PARAMETERS: Final = r"MIOPEN_DEBUG_\w+_PERF_VALS"
# As MIOpen reads a switch (projects/miopen/src/include/miopen/env.hpp).
_SWITCH_VALUES: Final = (
    "0",
    "1",
    "on",
    "off",
    "yes",
    "no",
    "true",
    "false",
    "enable",
    "disable",
    "enabled",
    "disabled",
)

CHECKS: Final = Checks()


@CHECKS.check(
    "warning",
    "https://github.com/ROCm/TheRock/issues/1719",
    "https://github.com/ROCm/legacy-rocm-build/issues/2654",
)
def override_on_windows(context: Context) -> Found:
    """Windows does not go through HSA."""
    value = context.environ.get(OVERRIDE)
    if context.machine.system != "windows" or not value:
        return None
    return (
        f"{OVERRIDE}={value} has no effect on Windows, where HIP does not go through HSA",
        f"Unset it; a card the wheel lacks needs another wheel: {context.install_command(None)}",
    )


@CHECKS.check("error", TOPOLOGY)
def override_malformed(context: Context) -> Found:
    """An override that is not three numbers is not read."""
    value = context.override(context.gpu) if context.gpu else None
    if value is None or overridden_gfx(value) is not None:
        return None
    return f"{OVERRIDE}={value} is not of the form 10.3.0", f"Unset {OVERRIDE}, or write three numbers"


@CHECKS.check(
    "error",
    "https://github.com/ROCm/legacy-rocm-build/issues/2527",
    "https://github.com/ROCm/legacy-rocm-build/issues/887",
)
def override_rdna1(context: Context) -> Found:
    """An RDNA1 card presented as RDNA2 runs on ROCm 5.2 only."""
    gpu, hip = context.gpu, context.machine.hip
    if gpu is None or gpu.family != "rdna1" or family_of(context.target(gpu)) != "rdna2" or not at_least(hip, "5.3"):
        return None
    return (
        f"{gpu} is presented as {context.target(gpu)} to ROCm {hip}: this crashes or hangs from 5.3 on",
        f"Unset {OVERRIDE} and install a build for the card: {context.install_command(gpu)}",
    )


@CHECKS.check("error", "https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/15434")
def override_other_family(context: Context) -> Found:
    """Code for another family is code for another instruction set."""
    gpu = context.gpu
    family = family_of(context.target(gpu)) if gpu else None
    if gpu is None or gpu.family is None or family in (None, gpu.family) or {gpu.family, family} == {"rdna1", "rdna2"}:
        return None
    told = f"{gpu} ({gpu.family}) is presented as {context.target(gpu)} ({family}), another instruction set"
    return told, f"Unset {OVERRIDE}"


@CHECKS.check("warning", TOPOLOGY)
def override_hides_native(context: Context) -> Found:
    """An override keeps the right kernels from being used where the wheel has them."""
    gpu = context.gpu
    if gpu is None or gpu.gfx not in context.machine.archs or context.target(gpu) == gpu.gfx:
        return None
    return (
        f"this torch has kernels for {gpu.gfx}, but {OVERRIDE}={context.override(gpu)} makes it use those of "
        f"{context.target(gpu)}",
        f"Unset {OVERRIDE}",
    )


@CHECKS.check("error", "https://github.com/ROCm/legacy-rocm-build/issues/4557")
def override_fp16_overrun(context: Context) -> Found:
    """gfx1102 and gfx1103 have fewer registers than gfx1100, whose fp16 kernels use them."""
    gpu = context.gpu
    if gpu is None or gpu.gfx not in ("gfx1102", "gfx1103") or context.target(gpu) != "gfx1100" or not context.amp:
        return None
    return (
        f"{gpu} is presented as gfx1100, which has more registers: fp16 kernels can overrun, and amp is on",
        f"amp=False, or a build for the card without {OVERRIDE}: {context.install_command(gpu)}",
    )


@CHECKS.check(
    "warning",
    "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/perfdb.html",
    "https://github.com/ROCm/pytorch/issues/328",
)
def miopen_find_enforce(context: Context) -> Found:
    """A left-over of tuning that tunes again in every run."""
    value = context.environ.get("MIOPEN_FIND_ENFORCE", "")
    if context.gpu is None or value.upper() not in ("3", "4", "SEARCH", "SEARCH_DB_UPDATE"):
        return None
    told = f"MIOPEN_FIND_ENFORCE={value} makes MIOpen tune every convolution, for hours with a whole network"
    return told, "Unset MIOPEN_FIND_ENFORCE"


@CHECKS.check("error", "https://github.com/vladmandic/sdnext scripts/rocm/rocm_mgr.py")
def miopen_perf_vals(context: Context) -> Found:
    """*_PERF_VALS hold text; a switch in them corrupts the configuration of a kernel."""
    wrong = {
        name: value
        for name, value in sorted(context.environ.items())
        if context.gpu is not None and re.fullmatch(_PARAMETERS, name) and value.lower() in _SWITCH_VALUES
    }
    told = ", ".join(f"{name}={value}" for name, value in wrong.items())
    remedy = f"Unset {', '.join(wrong)}"
    return (f"{told}: these variables hold the parameters of a kernel and are no switches", remedy) if wrong else None


@CHECKS.check(
    "warning", "https://github.com/pytorch/pytorch/issues/192259", "https://github.com/pytorch/pytorch/issues/123548"
)
def expandable_segments(context: Context) -> Found:
    """An allocator option that hangs copies on ROCm."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    wrong = [n for n in names if "expandable_segments:true" in context.environ.get(n, "").lower().replace(" ", "")]
    if not context.hip or not wrong:
        return None
    told = f"{', '.join(wrong)} asks for expandable_segments, which hangs copies or leaks memory on ROCm"
    return told, "Remove expandable_segments:True from it"


@CHECKS.check(
    "warning",
    "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html",
    "https://github.com/pytorch/pytorch torch/cuda/__init__.py",
)
def two_device_filters(context: Context) -> Found:
    """ROCR filters first, and HIP counts what is left."""
    second = next((name for name in HIDES_NEXT if context.environ.get(name)), None)
    if not context.hip or second is None or not context.environ.get(HIDES_FIRST):
        return None
    return (
        f"{HIDES_FIRST} and {second} are both set: the second one counts what the first one leaves, from 0",
        f"Unset one of them: keep {HIDES_FIRST} on Linux",
    )


@CHECKS.check("warning", "https://github.com/ROCm/clr rocclr/device/rocm/rocdevice.cpp")
def hip_visible_with_old_ultralytics(context: Context) -> Found:
    """Older Ultralytics chooses a device through a variable that HIP then ignores."""
    version = context.machine.ultralytics
    if not context.hip or not context.environ.get("HIP_VISIBLE_DEVICES") or version is None:
        return None
    if versions.behaves(version, "GPU chosen by its number"):
        return None
    return (
        f"Ultralytics {version} chooses a GPU through CUDA_VISIBLE_DEVICES, which HIP ignores while "
        "HIP_VISIBLE_DEVICES is set: device=1 trains on another GPU",
        "Unset HIP_VISIBLE_DEVICES and give device=, or upgrade: pip install -U ultralytics",
    )
