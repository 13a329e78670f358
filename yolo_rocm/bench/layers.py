"""The convolutions of a model as problems, found by running it once, small, on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from ..conv.names import PASSES
from ..conv.patch import Patch
from ..conv.plan import Planner
from ..conv.problem import ConvProblem
from ..conv.seam import installed
from ..engines.names import Pass
from ..errors import ConfigError, nearest
from ..ultralytics_hooks import models
from ..utils.progress import progress
from .checks import check, loaded

T = TypeVar("T")
# The engines that a benchmark takes where `engine=` is not given. Files in docs/benchmarks were measured so: their
# commands do not name an engine.
OURS = "gemm+triton"
LAYOUTS = {"nchw": False, "nhwc": True}  # name on the command line -> channels_last
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


@dataclass(frozen=True)
class ModelLayer:
    """A distinct convolution of a model."""

    problem: ConvProblem
    names: tuple[str, ...]  # the layers that have it
    needs_grad_input: bool  # False for the first layer, whose input is the image

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes a training step runs."""
        return tuple(which for which in PASSES if self.needs_grad_input or which != Pass.GRAD_INPUT)


def named(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return what the command line calls by a short name.

    Raises:
        ConfigError: There is none of that name.
    """
    if str(name) not in known:
        raise ConfigError(f"unknown {kind} {name!r}{nearest(name, known)} Allowed: {', '.join(known)}.")
    return known[str(name)]


def default_device() -> str:
    """Return the device to measure on: the GPU where there is one."""
    return "cuda:0" if torch.cuda.is_available() else "cpu"


def model_layers(
    model: str, imgsz: int, batch: int, dtype: torch.dtype, device: str, channels_last: bool = False
) -> list[ModelLayer]:
    """Return the distinct convolutions of a model's training step, as they are at another batch, dtype and device.

    Args:
        model: Weights or model YAML.
        imgsz: Image size.
        batch: Images per batch.
        dtype: Data type of the convolutions.
        device: Device they run on.
        channels_last: Whether activations are channels_last.
    """
    module = loaded(models.torch_module, model, imgsz).train()
    patch = Patch(["cpu"], Planner("vendor", remember=False))
    with installed(patch), patch.report.naming(module), torch.no_grad():
        module(torch.zeros(2, 3, imgsz, imgsz))  # two, because BatchNorm cannot train on a single pixel
    names: dict[ConvProblem, list[str]] = {}
    for row in patch.report.layers():
        if row.served is not None:
            names.setdefault(row.served.problem, []).append(row.name)
    layers = []
    for problem, own in names.items():
        shape = (batch, *problem.input_shape[1:])
        moved = replace(problem, input_shape=shape, dtype=dtype, device=device, channels_last=channels_last)
        layers.append(ModelLayer(moved, tuple(own), needs_grad_input=problem.input_shape[1:] != (3, imgsz, imgsz)))
    return layers


@contextmanager
def threads_of_a_training(device: str) -> Iterator[None]:
    """Compute on the CPU with as many threads as a training on `device` has.

    Ultralytics asks for one by `OMP_NUM_THREADS` before it imports torch, unless the user has asked for another number,
    and for all again where the device is a CPU. A benchmark that has imported torch first would measure the GPU next to
    a pool of threads that no training has.
    """
    before = torch.get_num_threads()
    if not device.startswith("cpu") and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def layers_of(given: Mapping[str, Any]) -> Iterator[tuple[str, list[ModelLayer]]]:
    """Yield the device and the convolutions that `model= imgsz= batch= dtype= layout=` of a command describe.

    While the context is open, torch computes with the threads of a training.

    Raises:
        ConfigError: One of them is wrong.
    """
    dtype, channels_last = named("dtype", given["dtype"], DTYPES), named("layout", given["layout"], LAYOUTS)
    check({key: given[key] for key in ("imgsz", "batch")})
    device = default_device()
    with threads_of_a_training(device):
        with progress(f"reading {given['model']}"):
            layers = model_layers(given["model"], given["imgsz"], given["batch"], dtype, device, channels_last)
        yield device, layers
