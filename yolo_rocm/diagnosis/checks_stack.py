"""Is the installed software right for the card?"""

from __future__ import annotations

from ..ultralytics_hooks import versions
from ..ultralytics_hooks.probes import TRAINING
from .context import THEROCK_RELEASES, Patient, at_least, install_command
from .findings import Finding

BENCHMARK_DEFAULT_UNTIL = "2.7"


def torch_missing(patient: Patient) -> Finding | None:
    """Without torch nothing runs."""
    if patient.machine.torch is not None:
        return None
    gpu = patient.amd[0] if patient.amd else None
    remedy = install_command(gpu.gfx) if gpu else "pip install torch torchvision"
    return Finding("torch-missing", "error", "torch is not installed", remedy, (THEROCK_RELEASES,))


def ultralytics_missing(patient: Patient) -> Finding | None:
    """Without Ultralytics there is nothing to train."""
    if patient.machine.ultralytics is not None:
        return None
    remedy = "pip install ultralytics, after torch and torchvision for the card are installed"
    return Finding(
        "ultralytics-missing",
        "error",
        "Ultralytics is not installed",
        remedy,
        ("https://docs.ultralytics.com/quickstart/",),
    )


def ultralytics_too_old(patient: Patient) -> Finding | None:
    """Older releases lack what this package holds on to."""
    version = versions.version_of(patient.machine.ultralytics)
    if version is None or version >= versions.OLDEST:
        return None
    return Finding(
        "ultralytics-too-old",
        "error",
        f"Ultralytics {version} is too old, {versions.OLDEST} or newer is needed",
        "pip install -U --no-deps ultralytics",
        ("https://pypi.org/project/ultralytics/#history",),
    )


def ultralytics_lacks(patient: Patient) -> Finding | None:
    """A release that has moved what training needs is refused when a run begins."""
    problems = patient.lacks.get(TRAINING)
    if not problems:
        return None
    return Finding(
        "ultralytics-lacks",
        "error",
        f"Ultralytics {patient.machine.ultralytics} lacks what training needs: {'. '.join(problems)}",
        f"{versions.advice()} {versions.ANY_VARIABLE}=1 goes on anyway",
        ("https://pypi.org/project/ultralytics/#history",),
    )


def ultralytics_untested(patient: Patient) -> Finding | None:
    """A release newer than any tested is used if its names are where they were."""
    version = versions.version_of(patient.machine.ultralytics)
    if version is None or version <= versions.newest_tested() or patient.lacks.get(TRAINING):
        return None
    return Finding(
        "ultralytics-untested",
        "info",
        f"Ultralytics {version} is newer than any that was tested ({versions.newest_tested()})",
        "Nothing, as long as it works; " + versions.advice(),
        ("https://pypi.org/project/ultralytics/#history",),
    )


def ultralytics_leaves_off(patient: Patient) -> Finding | None:
    """Some releases have no place for a feature; it is then left off."""
    lost = sorted(feature for feature in patient.lacks if feature != TRAINING)
    if not lost:
        return None
    return Finding(
        "ultralytics-leaves-off",
        "info",
        f"with Ultralytics {patient.machine.ultralytics} these are left off: {', '.join(lost)}",
        "Nothing, unless you want them: " + versions.advice(),
        ("https://pypi.org/project/ultralytics/#history",),
    )


def torch_wrong_build(patient: Patient) -> Finding | None:
    """Torch for CUDA or for the CPU does not see an AMD card."""
    cards = [gpu for gpu in patient.amd if not gpu.integrated] or list(patient.amd)
    if not cards or patient.machine.torch is None or patient.hip or patient.machine.gpu is not None:
        return None
    card = cards[0]
    return Finding(
        "torch-wrong-build",
        "warning" if card.integrated else "error",
        f"{card} is here, but the installed torch {patient.machine.torch} is a {patient.machine.build} build",
        f"{install_command(card.gfx)} and then pip install --no-deps ultralytics, so that pip does not put it back",
        ("https://github.com/ultralytics/ultralytics/issues/23379", THEROCK_RELEASES),
    )


def torchvision_mismatch(patient: Patient) -> Finding | None:
    """Torchvision must come from the same build as torch: validation needs its non-maximum suppression."""
    if not patient.hip:
        return None
    remedy = "Install torch and torchvision together from one index: " + install_command(
        patient.gpu.gfx if patient.gpu else None
    )
    source = ("https://github.com/ultralytics/ultralytics/issues/8296",)
    if not patient.has_torchvision:
        return Finding("torchvision-mismatch", "error", "torchvision is not installed beside torch", remedy, source)
    tags = patient.torch_tag, patient.torchvision_tag
    if None in tags or tags[0] == tags[1]:
        return None
    both_rocm = all((tag or "").startswith("rocm") for tag in tags)
    return Finding(
        "torchvision-mismatch",
        "warning" if both_rocm else "error",
        f"torch is a {tags[0]} build and torchvision a {tags[1]} build",
        remedy,
        source,
    )


def arch_not_in_torch(patient: Patient) -> Finding | None:
    """Torch must hold kernels for the card, or for what it presents as."""
    gpu = patient.gpu
    if gpu is None or not patient.machine.archs or gpu.gfx is None:
        return None
    target = patient.target(gpu)
    if target in patient.machine.archs:
        return None
    presented = "" if target == gpu.gfx else f", presented as {target},"
    return Finding(
        "arch-not-in-torch",
        "error",
        f"{gpu}{presented} is not among the targets of this torch: {', '.join(patient.machine.archs)}",
        install_command(gpu.gfx),
        ("https://github.com/pytorch/pytorch/issues/132570", THEROCK_RELEASES),
    )


def rocblas_kernels_missing(patient: Patient) -> Finding | None:
    """Without rocBLAS kernels the first matrix product aborts the process, and with it every engine."""
    gpu = patient.gpu
    if gpu is None or gpu.gfx is None or not patient.machine.rocblas_archs:
        return None
    target = patient.target(gpu)
    if target in patient.machine.rocblas_archs:
        return None
    return Finding(
        "rocblas-kernels-missing",
        "error",
        f"rocBLAS has no kernels for {target}: matrix products would abort, those of this package's engines too",
        f"{install_command(gpu.gfx)}; gfx906 is also in rocm6.3 wheels of pytorch.org and older ones",
        ("https://github.com/pytorch/pytorch/issues/179865", "https://github.com/ROCm/legacy-rocm-build/issues/4625"),
    )


def channels_last_auto(patient: Patient) -> Finding | None:
    """Newer Ultralytics switches channels_last on for every GPU that is not on Windows."""
    newer = versions.behaves(patient.machine.ultralytics, "channels_last by itself")
    if not patient.hip or patient.machine.system == "windows" or not newer:
        return None
    if patient.preset.train.get("channels_last") is not None:
        return None
    return Finding(
        "channels-last-auto",
        "info",
        f"Ultralytics {patient.machine.ultralytics} switches channels_last on by itself, validated on NVIDIA only",
        "channels_last=False, unless it has been measured to be faster here",
        ("https://github.com/ultralytics/ultralytics/pull/26007", "https://github.com/lightvector/KataGo/pull/1237"),
    )


def deterministic_default(patient: Patient) -> Finding | None:
    """Ultralytics' deterministic=True leaves MIOpen fewer solvers."""
    if not patient.hip or not patient.vendor_serves or patient.preset.train.get("deterministic", True) is False:
        return None
    return Finding(
        "deterministic-default",
        "info",
        "deterministic=True, Ultralytics' default, leaves MIOpen only its deterministic solvers",
        "deterministic=False if speed matters more than repeating a run exactly",
        ("https://github.com/pytorch/pytorch/pull/145294", "https://github.com/pytorch/pytorch/pull/158951"),
    )


def benchmark_default(patient: Patient) -> Finding | None:
    """Torch up to 2.6 searches every new shape exhaustively on ROCm."""
    old = patient.machine.torch is not None and not at_least(patient.machine.torch, BENCHMARK_DEFAULT_UNTIL)
    if not patient.hip or not patient.vendor_serves or not old:
        return None
    return Finding(
        "benchmark-default",
        "warning",
        f"torch {patient.machine.torch} lets MIOpen search exhaustively at every new shape, which can take minutes",
        "rocm.conv.vendor=off rocm.conv.engine=auto, or torch.backends.cudnn.benchmark = False before training",
        ("https://github.com/pytorch/pytorch/pull/145294", "https://github.com/pytorch/pytorch/pull/82656"),
    )


def python_forkserver(patient: Patient) -> Finding | None:
    """From Python 3.14 on, Linux starts processes by forkserver, unless told otherwise."""
    newer = at_least(patient.machine.python, "3.14")
    if patient.machine.system != "linux" or patient.preset.loader.context == "spawn" or not newer:
        return None
    return Finding(
        "python-forkserver",
        "info",
        f"Python {patient.machine.python} starts workers by forkserver: what they need must be picklable",
        "Define datasets and collate functions at the top of a module; call train() under if __name__ == '__main__':",
        ("https://github.com/pytorch/pytorch/issues/169252",),
    )


CHECKS = (
    torch_missing,
    ultralytics_missing,
    ultralytics_too_old,
    ultralytics_lacks,
    ultralytics_untested,
    ultralytics_leaves_off,
    torch_wrong_build,
    torchvision_mismatch,
    arch_not_in_torch,
    rocblas_kernels_missing,
    channels_last_auto,
    deterministic_default,
    benchmark_default,
    python_forkserver,
)
