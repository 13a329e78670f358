"""What can compute a prediction: what each engine needs, and how to install it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..hardware import Machine

# As Ultralytics pins it: a newer one wrote models that crashed ncnn (pnnx#293).
PNNX: Final = "20260526"
_NCNN: Final = f"pip install --no-deps ncnn pnnx=={PNNX} portalocker tqdm"


@dataclass(frozen=True)
class PredictEngine:
    """One engine of `yolo-rocm predict engine=`.

    Attributes:
        name: As the user writes it.
        format: What the weights are exported to; empty where they are used as they are.
        packages: Distributions that it, and the export for it, need.
        install: The command that installs what is missing.
        on_linux: What is added to it on Linux.
    """

    name: str
    format: str = ""
    packages: tuple[str, ...] = ()
    install: str = ""
    on_linux: str = ""

    def install_line(self, system: str) -> str:
        """Return the command that installs it on a system."""
        return f"{self.install}{self.on_linux if system == 'linux' else ''}"

    def missing(self, machine: Machine) -> list[str]:
        """Return the packages it lacks."""
        return [name for name in self.packages if machine.packages.version(name) is None]


_ALL: Final = (
    PredictEngine("torch"),
    PredictEngine("torchscript", format="torchscript"),
    PredictEngine(
        "ncnn",
        format="ncnn",
        packages=("ncnn", "pnnx"),
        install=_NCNN,
        on_linux="; the GPU's driver: apt install mesa-vulkan-drivers libvulkan1, "
        "dnf install mesa-vulkan-drivers vulkan-loader, or pacman -S vulkan-radeon vulkan-icd-loader",
    ),
    PredictEngine(
        "onnx",
        format="onnx",
        packages=("onnxruntime", "onnx"),
        install="pip install onnx onnxslim onnxruntime",
    ),
    PredictEngine(
        "openvino",
        format="openvino",
        packages=("openvino",),
        install="pip install openvino",
    ),
)
PREDICT_ENGINES: Final = {engine.name: engine for engine in _ALL}
