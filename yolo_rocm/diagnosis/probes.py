"""Which probes there are, and how exact each has to be. Known to the parent and to the child, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# vendor: MIOpen, cuDNN or oneDNN. off: torch's own kernels. The others are engines of this package, through its seam.
CONV_WAYS: Final = ("vendor", "off", "aten", "gemm", "triton", "hip", "auto")
COMPILED_WAYS: Final = ("triton", "hip")
NORM_WAYS: Final = ("vendor", "off")
DTYPES: Final = ("fp32", "fp16", "bf16")
TORCH_NAMES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
LAYOUTS: Final = ("nchw", "nhwc")
# Relative distance from the fp64 result. Rounding to the dtype alone gives about 6e-8, 3e-4 and 2e-3; a healthy kernel
# adds little to that, and the faults known are far above (fp16 Winograd on gfx12: 1000 times a matrix product's error).
LIMITS: Final = {"fp32": 1e-4, "fp16": 5e-3, "bf16": 4e-2}


@dataclass(frozen=True)
class ProbeShape:
    """A convolution to probe."""

    batch: int
    channels: int
    out: int
    kernel: int
    stride: int
    size: int
    groups: int = 1


# Rows of a long product: all pixels of 6 images of 320 x 320 are more. gfx1201 leaves those beyond 2^19 unwritten.
LONG_ROWS: Final = 2**19 + 4096

# The kinds YOLO is made of. Sizes above 42 are there because hangs were reported from there on (hkevin01/rocm-patch).
SHAPES: Final = {
    "1x1": ProbeShape(2, 32, 64, 1, 1, 40),
    "3x3": ProbeShape(2, 16, 32, 3, 1, 48),
    "3x3-stride2": ProbeShape(2, 3, 16, 3, 2, 128),
    "3x3-deep": ProbeShape(2, 128, 64, 3, 1, 20),
    "depthwise": ProbeShape(2, 32, 32, 3, 1, 40, 32),
}
_FEW: Final = ("1x1", "3x3")  # for all but fp32 NCHW: a vendor library may search for seconds at every new problem


@dataclass(frozen=True)
class DeviceProbe:
    """One question to the device.

    Attributes:
        kind: `device`, `gemm`, `long_gemm`, `pinned`, `norm` or `conv`.
        way: Who computes: one of `CONV_WAYS` or `NORM_WAYS`; empty where there is no choice.
        dtype: One of `DTYPES`, or empty.
        layout: One of `LAYOUTS`, or empty.
        shape: A key of `SHAPES`, or empty.
    """

    kind: str
    way: str = ""
    dtype: str = ""
    layout: str = ""
    shape: str = ""

    @property
    def name(self) -> str:
        """The probe as one word, e.g. `conv/vendor/fp16/nhwc/3x3`."""
        return "/".join(part for part in (self.kind, self.way, self.dtype, self.layout, self.shape) if part)

    @property
    def compiles(self) -> bool:
        """Whether kernels are compiled before there is an answer; `auto` does so only when it measures."""
        return self.way in COMPILED_WAYS

    @property
    def group(self) -> str:
        """Probes that are expected to fail together."""
        return "/".join(part for part in (self.kind, self.way, self.dtype) if part)

    @property
    def limit(self) -> float:
        """Largest relative error of a healthy answer."""
        return LIMITS.get(self.dtype, 0.0)


def all_probes() -> tuple[DeviceProbe, ...]:
    """Return every probe, in the order in which a failure says most about those after it."""
    probes = [
        DeviceProbe("device"),
        *(DeviceProbe("gemm", dtype=dtype) for dtype in DTYPES),
        *(DeviceProbe("long_gemm", dtype=dtype) for dtype in DTYPES),
        DeviceProbe("pinned"),
    ]
    # The vendor library last: it is the one that brings cards down.
    for way in ("gemm", "off", "aten", "auto", *COMPILED_WAYS, "vendor"):
        for dtype in DTYPES:
            if way in NORM_WAYS:
                probes += [DeviceProbe("norm", way, dtype, layout) for layout in LAYOUTS]
            for layout in LAYOUTS:
                shapes = SHAPES if (dtype, layout) == ("fp32", "nchw") else _FEW
                probes += [DeviceProbe("conv", way, dtype, layout, shape) for shape in shapes]
    return tuple(probes)
