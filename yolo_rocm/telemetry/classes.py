"""Classes of operators: what a training step spends its time on, told by the names that torch gives to operators."""

from __future__ import annotations

import re
from typing import Final

CONVOLUTION, NORMALISATION, ACTIVATION = "convolution", "normalisation", "activation"
LOSS, OPTIMIZER, OTHER = "loss", "optimizer", "other"
CLASSES: Final = (CONVOLUTION, NORMALISATION, ACTIVATION, LOSS, OPTIMIZER, OTHER)
# A kernel that Inductor has fused has the names of all its operators: it counts for the first class that is found.
_BY_NAME: Final = (
    (NORMALISATION, re.compile(r"batch_?norm|normalis|norm_?act|\bbn_", re.I)),
    (ACTIVATION, re.compile(r"silu|relu|gelu|mish|hardswish|hardtanh|sigmoid", re.I)),
    (CONVOLUTION, re.compile(r"conv|fprop|dgrad|wgrad|im2col|col2im|implicit_?gemm|winograd", re.I)),
)
# Kernels of this package go to the device past torch, which knows no operator around them.
_OURS: Final = {
    **dict.fromkeys(("gather_gemm", "flat_gemm", "weight_gemm", "weight_gemm_rows", "sum_partials"), CONVOLUTION),
    **dict.fromkeys(("depthwise", "depthwise_weight", "transpose", "pack_weight", "few_channels"), CONVOLUTION),
    **dict.fromkeys(("partial_statistics", "combine_statistics", "activate"), NORMALISATION),
    **dict.fromkeys(("partial_gradients", "combine_gradients", "input_gradient"), NORMALISATION),
    **dict.fromkeys(("whole_forward", "whole_backward"), NORMALISATION),
}
_NOT_OF_A_LAYER: Final = re.compile(r"vector_norm|foreach_norm|clip_grad")


def class_of(name: str) -> str:
    """Return the class of a layer's operator, kernel or backward node by its name; `other` for the rest."""
    if name in _OURS:
        return _OURS[name]
    for kind, pattern in _BY_NAME:
        if pattern.search(name) and not _NOT_OF_A_LAYER.search(name):
            return kind
    return OTHER
