"""What can compute a prediction: what each engine needs, on which cards and systems, and what is known to be wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from packaging.version import Version

from ..hardware import Machine

# As Ultralytics pins it: a newer one wrote models that crashed ncnn (pnnx#293).
PNNX: Final = "20260526"
_NCNN: Final = f"pip install --no-deps ncnn pnnx=={PNNX} portalocker tqdm"
# As Ultralytics 8.4.190 pins them; AMD's own index, Linux on x86-64, Python 3.11 or newer.
_MIGRAPHX: Final = (
    "pip install onnx onnxruntime onnxruntime-ep-migraphx==1.0.0+rocm10.0.0 migraphx-libs==2.17.0+rocm10.0.0 "
    "--extra-index-url https://stable.repo.amd.com/rocm/onnxruntime/whl-next/ "
    "--extra-index-url https://stable.repo.amd.com/rocm/migraphx/whl-next/"
)


@dataclass(frozen=True)
class KnownFault:
    """Something that is known to be wrong with an engine, and where that is known from; `gpu`: on a GPU alone."""

    what: str
    source: str
    gpu: bool = False


@dataclass(frozen=True)
class PredictEngine:
    """One engine of `yolo-rocm predict engine=`.

    Attributes:
        name: As the user writes it.
        title: What computes, on what.
        format: What the weights are exported to; empty where they are used as they are.
        packages: Distributions it needs.
        exporters: Distributions that the export needs besides.
        install: The command that installs what is missing, by system; `""` is any other.
        systems: Where it exists; nothing means everywhere.
        gfx: Targets it has kernels for; nothing means that no GPU or any GPU will do.
        python: The first Python it has wheels for.
        faults: What is known to be wrong.
    """

    name: str
    title: str
    format: str = ""
    packages: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()
    install: Mapping[str, str] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    gfx: tuple[str, ...] = ()
    python: str = ""
    faults: tuple[KnownFault, ...] = ()

    def install_line(self, system: str) -> str:
        """Return the command that installs it on a system."""
        return self.install.get(system, self.install.get("", ""))

    def unfit(self, machine: Machine) -> list[str]:
        """Return why it can never be used on a machine, whatever is installed."""
        reasons = []
        if self.systems and machine.system not in self.systems:
            reasons.append(f"it exists for {' and '.join(self.systems)} only")
        if self.python and Version(".".join(map(str, sys.version_info[:2]))) < Version(self.python):
            reasons.append(f"it needs Python {self.python} or newer")
        if self.gfx and not self.has_kernels_for(machine):
            reasons.append(f"it has kernels for {', '.join(self.gfx)} only")
        return reasons

    def not_installed(self, machine: Machine, exports: bool = True) -> list[str]:
        """Return the packages it lacks; with `exports` those that an export needs are among them."""
        needed = (*self.packages, *(self.exporters if exports else ()))
        return [name for name in needed if machine.packages.version(name) is None]

    def reasons_against(self, machine: Machine, exports: bool = True) -> list[str]:
        """Return why it cannot be used on a machine; nothing where it can.

        Args:
            machine: The machine.
            exports: Whether a model has to be exported too.
        """
        gone = self.not_installed(machine, exports)
        told = [f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} not installed"] if gone else []
        return [*self.unfit(machine), *told]

    def has_kernels_for(self, machine: Machine) -> bool:
        """Return whether one of the machine's GPUs is among its targets."""
        return any(gpu.gfx is not None and gpu.gfx.startswith(self.gfx) for gpu in machine.gpus)


_FP16_IN_VULKAN: Final = (
    KnownFault(
        "wrong boxes with Vulkan and fp16 on some drivers: fp16 and fp32 are two ways, each compared with the CPU",
        "https://github.com/Tencent/ncnn/issues/5990",
        gpu=True,
    ),
    KnownFault(
        "missing or shifted boxes of a YOLOv8 with ncnn's default fp16 on a Mali-G720, right on the CPU",
        "https://github.com/Tencent/ncnn/issues/6818",
        gpu=True,
    ),
)
PREDICT_ENGINES: Final = {
    engine.name: engine
    for engine in (
        PredictEngine("torch", "torch under the preset: GPU, CPU"),
        PredictEngine(
            "compile",
            "torch.compile: GPU, CPU",
            install={
                "linux": "apt install g++ (the compiler of your distribution)",
                "windows": "Visual Studio Build Tools, C++",
            },
            faults=(
                KnownFault(
                    "30 % slower than eager torch on a ResNet-18 and a 7900 XTX",
                    "https://github.com/pytorch/pytorch/issues/187065",
                    gpu=True,
                ),
            ),
        ),
        PredictEngine("torchscript", "a traced torch model: GPU, CPU", format="torchscript"),
        PredictEngine(
            "ncnn",
            "ncnn: every GPU with a Vulkan driver, no ROCm; CPU",
            format="ncnn",
            packages=("ncnn",),
            exporters=("pnnx",),
            install={
                "linux": f"{_NCNN}; the GPU's driver: apt install mesa-vulkan-drivers libvulkan1, "
                "dnf install mesa-vulkan-drivers vulkan-loader, or pacman -S vulkan-radeon vulkan-icd-loader",
                "": _NCNN,
            },
            faults=(
                *_FP16_IN_VULKAN,
                KnownFault(
                    f"a yolo26 written by pnnx 20260704 crashed ncnn 1.0.20260526: keep pnnx {PNNX}",
                    "https://github.com/pnnx/pnnx/issues/293",
                ),
            ),
        ),
        PredictEngine(
            "onnx",
            "ONNX Runtime: CPU",
            format="onnx",
            packages=("onnxruntime",),
            exporters=("onnx",),
            install={"": "pip install onnx onnxslim onnxruntime"},
            faults=(
                KnownFault(
                    "its ROCm provider no longer exists since 1.23: on a GPU it is engine migraphx",
                    "https://onnxruntime.ai/docs/execution-providers/ROCm-ExecutionProvider.html",
                ),
            ),
        ),
        PredictEngine(
            "migraphx",
            "ONNX Runtime with AMD's MIGraphX: GPU",
            format="onnx",
            packages=("onnxruntime", "onnxruntime-ep-migraphx", "migraphx-libs"),
            exporters=("onnx",),
            install={"linux": _MIGRAPHX},
            systems=("linux",),
            # rocm.docs.amd.com, ONNX Runtime for ROCm 10: neither RDNA1 nor RDNA2.
            gfx=(
                *("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102"),
                *("gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201"),
            ),
            python="3.11",
            faults=(
                KnownFault(
                    "compiles for 92 to 1014 s at the first start, from release to release",
                    "https://github.com/ROCm/AMDMIGraphX/issues/5234",
                ),
                KnownFault(
                    "does not ask pip for the library it needs",
                    "https://github.com/ROCm/AMDMIGraphX/issues/5235",
                ),
            ),
        ),
        PredictEngine(
            "openvino",
            "OpenVINO: CPU",
            format="openvino",
            packages=("openvino",),
            install={"": "pip install openvino"},
            faults=(
                KnownFault(
                    "its queue of requests can hang on AMD and Intel CPUs; Ultralytics 8.4.190 asks one by one",
                    "https://github.com/ultralytics/ultralytics/issues/25923",
                ),
            ),
        ),
    )
}
