"""What can compute a prediction: what each engine needs, how to install it, what is known to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ..hardware import Machine
from .vulkan import vulkan_devices

# As Ultralytics pins it: a newer one wrote models that crashed ncnn (pnnx#293).
PNNX: Final = "20260526"
_NCNN: Final = f"pip install --no-deps ncnn pnnx=={PNNX} portalocker tqdm"


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
        install: The command that installs what is missing.
        on_linux: What is added to it on Linux.
        faults: What is known to be wrong.
    """

    name: str
    title: str
    format: str = ""
    packages: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()
    install: str = ""
    on_linux: str = ""
    faults: tuple[KnownFault, ...] = field(default=())

    def install_line(self, system: str) -> str:
        """Return the command that installs it on a system."""
        return f"{self.install}{self.on_linux if system == 'linux' else ''}"

    def missing(self, machine: Machine) -> list[str]:
        """Return the packages that it, and the export for it, lack."""
        return [name for name in (*self.packages, *self.exporters) if machine.packages.version(name) is None]


_NCNN_FAULTS: Final = (
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
    KnownFault(
        f"a yolo26 written by pnnx 20260704 crashed ncnn 1.0.20260526: keep pnnx {PNNX}",
        "https://github.com/pnnx/pnnx/issues/293",
    ),
)
_ALL: Final = (
    PredictEngine("torch", "torch under the preset: GPU, CPU"),
    PredictEngine("torchscript", "a traced torch model: GPU, CPU", format="torchscript"),
    PredictEngine(
        "ncnn",
        "ncnn: every GPU with a Vulkan driver, no ROCm; CPU",
        format="ncnn",
        packages=("ncnn",),
        exporters=("pnnx",),
        install=_NCNN,
        on_linux="; the GPU's driver: apt install mesa-vulkan-drivers libvulkan1, "
        "dnf install mesa-vulkan-drivers vulkan-loader, or pacman -S vulkan-radeon vulkan-icd-loader",
        faults=_NCNN_FAULTS,
    ),
    PredictEngine(
        "onnx",
        "ONNX Runtime: CPU",
        format="onnx",
        packages=("onnxruntime",),
        exporters=("onnx",),
        install="pip install onnx onnxslim onnxruntime",
        faults=(
            KnownFault(
                "its ROCm provider no longer exists since 1.23",
                "https://onnxruntime.ai/docs/execution-providers/ROCm-ExecutionProvider.html",
            ),
        ),
    ),
    PredictEngine(
        "openvino",
        "OpenVINO: CPU",
        format="openvino",
        packages=("openvino",),
        install="pip install openvino",
        faults=(
            KnownFault(
                "its queue of requests can hang on AMD and Intel CPUs; Ultralytics 8.4.190 asks one by one",
                "https://github.com/ultralytics/ultralytics/issues/25923",
            ),
        ),
    ),
)
PREDICT_ENGINES: Final = {engine.name: engine for engine in _ALL}


def engine_facts(machine: Machine) -> list[dict[str, Any]]:
    """Return what is known of every engine of prediction on a machine; what it computes, `bench predict` compares.

    Returns:
        For each: `engine`, `title`, what is `missing` and how to `install` it, Vulkan `devices` that it can use, and
        `faults` that are known of it on such a machine, with their sources.
    """
    facts = []
    for name, engine in PREDICT_ENGINES.items():
        missing = engine.missing(machine)
        devices = vulkan_devices() if name == "ncnn" and not missing else ()
        facts.append(
            {
                "engine": name,
                "title": engine.title,
                "missing": missing,
                "install": engine.install_line(machine.system) if missing else "",
                "devices": [f"vulkan:{device.index} {device.name}, {device.kind}" for device in devices],
                "faults": [f"{each.what} ({each.source})" for each in engine.faults if machine.gpus or not each.gpu],
            }
        )
    return facts
