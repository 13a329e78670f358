"""Is the installed software right for the card?"""

from __future__ import annotations

from typing import Final

from ..hardware import at_least
from ..preset.step import layout_of
from ..ultralytics_hooks import versions
from ..ultralytics_hooks.probes import TRAINING
from .context import SETUP, THEROCK_RELEASES, Context
from .findings import Checks, Found

ULTRALYTICS_RELEASES: Final = "https://pypi.org/project/ultralytics/#history"
_NO_EXHAUSTIVE_SEARCH: Final = "2.7"  # first torch that does not make MIOpen search by default

CHECKS: Final = Checks()


@CHECKS.check("error", THEROCK_RELEASES)
def torch_missing(context: Context) -> Found:
    """Without torch nothing runs."""
    if context.machine.torch is not None:
        return None
    return "torch is not installed", context.install_command(context.amd[0]) if context.amd else f"{SETUP} --run"


@CHECKS.check("error", "https://docs.ultralytics.com/quickstart/")
def ultralytics_missing(context: Context) -> Found:
    """Without Ultralytics there is nothing to train."""
    if context.machine.ultralytics is not None:
        return None
    remedy = "pip install ultralytics, after torch and torchvision for the card are installed"
    return "Ultralytics is not installed", remedy


@CHECKS.check("error", ULTRALYTICS_RELEASES)
def ultralytics_too_old(context: Context) -> Found:
    """Older releases lack what this package builds on."""
    version = versions.version_of(context.machine.ultralytics)
    if version is None or version >= versions.OLDEST:
        return None
    told = f"Ultralytics {version} is too old, {versions.OLDEST} or newer is needed"
    return told, "pip install -U --no-deps ultralytics"


@CHECKS.check("error", ULTRALYTICS_RELEASES)
def ultralytics_lacks(context: Context) -> Found:
    """A release that has moved what training needs is refused when a run begins."""
    problems = context.lacks.get(TRAINING)
    if not problems:
        return None
    told = f"Ultralytics {context.machine.ultralytics} lacks what training needs: {'. '.join(problems)}"
    return told, f"{versions.advice()} {versions.ANY_VARIABLE}=1 goes on anyway"


@CHECKS.check("info", ULTRALYTICS_RELEASES)
def ultralytics_untested(context: Context) -> Found:
    """A release newer than any tested is used if its names are where they were."""
    version = versions.version_of(context.machine.ultralytics)
    if version is None or version <= versions.newest_tested() or context.lacks.get(TRAINING):
        return None
    told = f"Ultralytics {version} is newer than any that was tested ({versions.newest_tested()})"
    return told, f"Nothing, as long as it works; {versions.advice()}"


@CHECKS.check("info", ULTRALYTICS_RELEASES)
def ultralytics_leaves_off(context: Context) -> Found:
    """Some releases have no place for a feature; it is then left off."""
    lost = sorted(feature for feature in context.lacks if feature != TRAINING)
    if not lost:
        return None
    told = f"with Ultralytics {context.machine.ultralytics} these are left off: {', '.join(lost)}"
    return told, f"Nothing, unless you want them: {versions.advice()}"


@CHECKS.check("error", "https://github.com/ultralytics/ultralytics/issues/23379", THEROCK_RELEASES)
def torch_wrong_build(context: Context) -> Found:
    """Torch for CUDA or for the CPU does not see an AMD card."""
    cards = sorted(context.amd, key=lambda gpu: gpu.integrated)
    if not cards or context.machine.torch is None or context.hip or context.machine.gpu is not None:
        return None
    command = context.install_command(cards[0])
    kept = "" if command == SETUP else " and then pip install --no-deps ultralytics, so that pip does not put it back"
    return (
        f"{cards[0]} is here, but the installed torch {context.machine.torch} is a {context.machine.build} build",
        f"{command}{kept}",
        "warning" if cards[0].integrated else "error",
    )


@CHECKS.check("error", "https://github.com/ultralytics/ultralytics/issues/8296")
def torchvision_mismatch(context: Context) -> Found:
    """Torchvision must come from the same build as torch: validation needs its non-maximum suppression."""
    remedy = f"Install torch and torchvision together from one index: {context.install_command(context.gpu)}"
    if context.hip and not context.has_torchvision:
        return "torchvision is not installed next to torch", remedy
    torch, torchvision = context.build_tag("torch"), context.build_tag("torchvision")
    if not context.hip or torch is None or torchvision is None or torch == torchvision:
        return None
    both_rocm = torch.startswith("rocm") and torchvision.startswith("rocm")
    told = f"torch is a {torch} build and torchvision a {torchvision} build"
    return told, remedy, "warning" if both_rocm else "error"


@CHECKS.check("error", "https://github.com/pytorch/pytorch/issues/132570", THEROCK_RELEASES)
def arch_not_in_torch(context: Context) -> Found:
    """Torch must hold kernels for the card, or for what it presents as."""
    gpu, archs = context.gpu, context.machine.archs
    if gpu is None or gpu.gfx is None or not archs or context.target(gpu) in archs:
        return None
    target = context.target(gpu)
    presented = "" if target == gpu.gfx else f", presented as {target},"
    told = f"{gpu}{presented} is not among the targets of this torch: {', '.join(archs)}"
    return told, context.install_command(gpu)


@CHECKS.check(
    "error",
    "https://github.com/pytorch/pytorch/issues/179865",
    "https://github.com/ROCm/legacy-rocm-build/issues/4625",
)
def rocblas_kernels_missing(context: Context) -> Found:
    """Without rocBLAS kernels the first matrix product aborts the process, and with it every engine."""
    gpu, archs = context.gpu, context.machine.rocblas_archs
    if gpu is None or gpu.gfx is None or not archs or context.target(gpu) in archs:
        return None
    return (
        f"rocBLAS has no kernels for {context.target(gpu)}: matrix products would abort, those of this package's "
        "engines too",
        f"{context.install_command(gpu)}; gfx906 is also in rocm6.3 wheels of pytorch.org and older ones",
    )


@CHECKS.check(
    "info",
    "https://github.com/ultralytics/ultralytics/pull/26007",
    "https://github.com/lightvector/KataGo/pull/1237",
)
def channels_last_auto(context: Context) -> Found:
    """Newer Ultralytics turns channels_last on for every GPU that is not on Windows, and engine `vendor` follows it."""
    newer = versions.behaves(context.machine.ultralytics, "channels_last by itself")
    unset = layout_of(context.preset) is None
    if not (context.hip and newer and unset and context.machine.system != "windows"):
        return None
    return (
        f"Ultralytics {context.machine.ultralytics} turns channels_last on by itself, validated on NVIDIA only, and "
        "MIOpen computes in it",
        "channels_last=False, or rocm.conv.engine=auto rocm.conv.vendor=off: engines of ours are right in both, "
        "and take the faster one",
    )


@CHECKS.check(
    "warning", "https://github.com/pytorch/pytorch/pull/145294", "https://github.com/pytorch/pytorch/pull/82656"
)
def benchmark_default(context: Context) -> Found:
    """Torch up to 2.6 searches every new shape exhaustively on ROCm."""
    torch = context.machine.torch
    if not context.uses_miopen or torch is None or at_least(torch, _NO_EXHAUSTIVE_SEARCH):
        return None
    return (
        f"torch {torch} lets MIOpen search exhaustively at every new shape, which can take minutes",
        "rocm.conv.vendor=off rocm.conv.engine=auto, or torch.backends.cudnn.benchmark = False before training",
    )
