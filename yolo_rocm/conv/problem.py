"""One convolution as plain data: everything that decides which algorithm supports it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch

from ..engines.activations import IDENTITY, LEAKY_RELU
from ..engines.layout import laid_out, suggests_channels_last

__all__ = ["ConvProblem", "cdiv", "laid_out", "results_channels_last", "suggests_channels_last"]


@dataclass(frozen=True)
class ConvProblem:
    """The shape of one convolution call, as `aten::convolution` receives it.

    Attributes:
        input_shape: Batch, channels and one, two or three spatial sizes.
        weight_shape: As torch stores it: (out, in / groups, *kernel), or (in, out / groups, *kernel) when transposed.
        stride: One value per spatial dimension; so are `padding`, `dilation` and `output_padding`.
        transposed: True for ConvTranspose, whose forward is the grad-input of an ordinary convolution.
        dtype: Data type of input and weight.
        device: Device of the input, for example `cuda:0`.
        channels_last: True when the result has to be channels_last, by the rule the native kernels follow.
        bias: Whether one is computed with it: of inference, where it decides which kernel fits. A training brings its
            bias, or none, with the call.
        activation: What is computed of the result with it, one of `ACTIVATIONS`: of inference too.
        slope: Of a leaky ReLU below zero.
    """

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    transposed: bool
    dtype: torch.dtype
    device: str
    channels_last: bool = False
    bias: bool = False
    activation: str = IDENTITY
    slope: float = 0.0

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        weight: torch.Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        bias: bool = False,
        activation: str = IDENTITY,
        slope: float = 0.0,
    ) -> ConvProblem:
        """Describe a call. One-element lists are broadcast over the spatial dimensions, as the native kernel does."""
        spatial = x.dim() - 2
        return cls(
            tuple(x.shape),
            tuple(weight.shape),
            _per_dimension(stride, spatial),
            _per_dimension(padding, spatial),
            _per_dimension(dilation, spatial),
            _per_dimension(output_padding, spatial),
            groups,
            transposed,
            x.dtype,
            str(x.device),
            results_channels_last(x, weight),
            bias,
            activation,
            slope,
        )

    def __hash__(self) -> int:
        """Return the hash of all fields, computed once: a problem is a key several times in every convolution."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash(tuple(getattr(self, field.name) for field in fields(self)))
            object.__setattr__(self, "_hash", known)
        return int(known)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is computed from the fields: in another process the same text has another hash."""
        return {field.name: self.__dict__[field.name] for field in fields(self)}

    @property
    def batch(self) -> int:
        """Number of samples."""
        return self.input_shape[0]

    @property
    def in_channels(self) -> int:
        """Channels of the input."""
        return self.input_shape[1]

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        return self.weight_shape[1] * self.groups if self.transposed else self.weight_shape[0]

    @property
    def group_channels(self) -> tuple[int, int]:
        """Input and output channels of a group."""
        return self.in_channels // self.groups, self.out_channels // self.groups

    @property
    def input_size(self) -> tuple[int, ...]:
        """Spatial sizes of the input."""
        return self.input_shape[2:]

    @property
    def kernel(self) -> tuple[int, ...]:
        """Spatial sizes of the kernel."""
        return self.weight_shape[2:]

    @cached_property
    def output_size(self) -> tuple[int, ...]:
        """Spatial sizes of the output."""
        sizes = zip(
            self.input_size, self.kernel, self.stride, self.padding, self.dilation, self.output_padding, strict=True
        )
        if self.transposed:
            return tuple((i - 1) * s - 2 * p + d * (k - 1) + o + 1 for i, k, s, p, d, o in sizes)
        return tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d, _ in sizes)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return (self.batch, self.out_channels, *self.output_size)

    @cached_property
    def empty(self) -> bool:
        """True when the output holds no element, so that there is nothing to compute."""
        return 0 in self.output_shape or 0 in self.input_shape

    @property
    def flops(self) -> int:
        """Multiplications and additions of one pass."""
        pixels = math.prod(self.input_size if self.transposed else self.output_size)
        return 2 * self.batch * pixels * math.prod(self.weight_shape)

    @property
    def key(self) -> str:
        """Name of the problem on disk: without the device's number."""
        return str(replace(self, device=self.device.partition(":")[0]))

    def problems(self) -> list[str]:
        """Say what is wrong with the call itself; the native kernel then words the error torch users know."""
        spatial = len(self.input_shape) - 2
        found = []
        if spatial not in (1, 2, 3) or len(self.weight_shape) != spatial + 2:
            return [f"{len(self.input_shape)}-dimensional input with {len(self.weight_shape)}-dimensional weight"]
        channels = self.weight_shape[0] if self.transposed else self.weight_shape[1] * self.groups
        if self.groups < 1 or channels != self.in_channels or self.weight_shape[0] % self.groups:
            found.append(f"{self.in_channels} channels do not fit weight {self.weight_shape} in {self.groups} groups")
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0 or min(self.output_padding) < 0:
            found.append("stride or dilation below 1, or negative padding")
        elif 0 in self.kernel or min(self.output_size) < 0 or (not self.transposed and min(self.output_size) < 1):
            found.append(f"kernel {self.kernel} does not fit input {self.input_size}")
        elif self.transposed and any(
            o >= max(s, d) for o, s, d in zip(self.output_padding, self.stride, self.dilation, strict=True)
        ):
            found.append(f"output_padding {self.output_padding} is not smaller than stride or dilation")
        return found

    @cached_property
    def plain(self) -> ConvProblem:
        """Return the convolution without bias and activation."""
        return replace(self, bias=False, activation=IDENTITY, slope=0.0)

    def direct(self) -> ConvProblem:
        """Return the ordinary convolution whose grad-input is this transposed convolution's forward."""
        return replace(
            self,
            input_shape=self.output_shape,
            output_padding=(0,) * len(self.kernel),
            transposed=False,
        )

    def __str__(self) -> str:
        """Describe the problem in one line, as errors and tables show it."""
        extras = [
            f"{word} {_sizes(value)}"
            for word, value, usual in (
                ("stride", self.stride, 1),
                ("padding", self.padding, 0),
                ("dilation", self.dilation, 1),
                ("output_padding", self.output_padding, 0),
            )
            if any(v != usual for v in value)
        ]
        if self.groups != 1:
            extras.append(f"groups {self.groups}")
        kind = "transposed conv" if self.transposed else "conv"
        layout = " channels_last" if self.channels_last else ""
        head = f"{kind} {_sizes(self.kernel)} {self.in_channels}->{self.out_channels}"
        where = f"on {_sizes(self.input_shape)} {str(self.dtype).removeprefix('torch.')}{layout} {self.device}"
        behind = ["bias"] if self.bias else []
        if self.activation != IDENTITY:
            behind.append(self.activation + (f" {self.slope:g}" if self.activation == LEAKY_RELU else ""))
        return " ".join([head, *extras, where, *(["with", *behind] if behind else [])])


def cdiv(length: int, size: int) -> int:
    """Return how many pieces of `size` cover `length`."""
    return -(-length // size)


def results_channels_last(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether results of a convolution are channels_last: one of its tensors is, as in the native kernels."""
    return suggests_channels_last(x) or suggests_channels_last(weight)


def _per_dimension(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(values) if len(values) != 1 else (values[0],) * spatial


def _sizes(values: Sequence[int]) -> str:
    return "x".join(str(v) for v in values)
