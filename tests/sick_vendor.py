"""A vendor library that fails like MIOpen on a broken card, on a CPU: native kernels raise."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MESSAGE = "miopenStatusUnknownError"

# The kernels that a convolution can reach on a CPU, and the composites that choose among them. Overriding the
# first two at their own (alias) key leaves the CPU key free, which is where the seam of yolo_rocm sits.
_COMPOSITES = ("convolution", "convolution_backward", "_convolution")
_KERNELS = (
    "_slow_conv2d_forward",
    "_slow_conv2d_backward.output_mask",
    "slow_conv3d_forward",
    "slow_conv_dilated2d",
    "slow_conv_dilated3d",
    "slow_conv_transpose2d",
    "slow_conv_transpose3d",
    "mkldnn_convolution",
)


def _fail(*args: object, **kwargs: object) -> object:
    raise RuntimeError(MESSAGE)


@contextmanager
def sick_vendor(forward: bool = True, backward: bool = True, composites: bool = True) -> Iterator[None]:
    """Make the native convolution kernels raise; forward and backward ones can be broken alone.

    Without `composites` torch may still choose among its kernels, and compute what needs none of them.
    """
    library = torch.library.Library("aten", "IMPL")
    options = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    wanted = [
        op for op in (*(_COMPOSITES if composites else ()), *_KERNELS) if (backward if "backward" in op else forward)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in wanted:
            library.impl(op, _fail, "CompositeExplicitAutograd" if op in _COMPOSITES[:2] else "CPU", **options)
    mkldnn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # its backward is no operator of its own
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        if hasattr(library, "_destroy"):
            library._destroy()
        else:
            torch.library._impls.difference_update(library._op_impls)
            library._op_impls.clear()
            del library.m


_NORMALISATIONS = (
    "native_batch_norm",
    "native_batch_norm.out",
    "native_batch_norm_backward",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit.out",
    "_batch_norm_with_update",
    "batch_norm_backward",
)


@contextmanager
def sick_norm() -> Iterator[None]:
    """Make torch's own kernels of BatchNorm raise on a CPU, all that an operator can reach."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in _NORMALISATIONS:
            if hasattr(torch.ops.aten, op.partition(".")[0]):
                library.m.impl(op, "CPU", _fail)  # below torch.library, which has one kernel for a key
    try:
        yield
    finally:
        del library.m


@contextmanager
def sick() -> Iterator[None]:
    """Break the native kernels of convolution and of BatchNorm."""
    with sick_vendor(), sick_norm():
        yield
