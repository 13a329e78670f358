"""The rivals of `bench conv`: Inductor kept to its Triton templates, and FlagGems. Neither is a dependency."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

import torch

from ..conv.names import PASSES
from ..conv.plan import Operands
from ..conv.problem import ConvProblem, laid_out
from ..engines.faults import in_one_line
from ..engines.names import Pass
from .layers import ModelLayer, named
from .rivals import BACKWARD, NotRunnableError, Results, Rival

# `torch.compile` has them in force while it compiles, and no longer. Without its cache of graphs, because what is read
# from there does not always show its code.
_OPTIONS: Final = {
    "max_autotune": True,
    "max_autotune_conv_backends": "TRITON",
    "max_autotune_gemm_backends": "TRITON",  # in channels_last a 1x1 convolution is a matrix product
    "autotune_num_choices_displayed": 0,
    "fx_graph_cache": False,
}
_BY_ATEN: Final = re.compile(r"extern_kernels\.\w*convolution\w*\(|torch\.ops\.aten\.\w*convolution\w*\.default\(")


class Inductor(Rival):
    """The convolution template of torch's own compiler, autotuned, with ATen's convolution not among its choices."""

    name = "inductor"
    passes = PASSES

    def missing(self, device: str) -> str:
        """Return why it cannot be had on a device at all."""
        if not hasattr(torch, "compile"):
            return f"torch {torch.__version__} has no torch.compile"
        if torch.device(device).type != "cuda":
            return "the convolution template of Inductor is for GPUs"
        config: Any = importlib.import_module("torch._inductor.config")
        if not hasattr(config, "max_autotune_conv_backends"):
            return f"Inductor of torch {torch.__version__} cannot be kept to its Triton templates"
        return ""

    def version(self) -> str:
        """Return the versions of torch and Triton."""
        return f"Inductor of torch {torch.__version__} with triton {_version('triton')}"

    def call(self, layer: ModelLayer, which: Pass, operands: Operands) -> Callable[[], Results]:
        """Return a pass, compiled."""
        config: Any = importlib.import_module("torch._inductor.config")
        lowering: Any = importlib.import_module("torch._inductor.lowering")
        utils: Any = importlib.import_module("torch._inductor.utils")
        if which != Pass.FORWARD and torch.ops.aten.convolution_backward.default in lowering.fallbacks:
            raise NotRunnableError(f"Inductor of torch {torch.__version__} leaves backward passes to ATen")
        options: Any = {name: value for name, value in _OPTIONS.items() if hasattr(config, name)}
        compiled: Any = torch.compile(_pass(layer.problem, which), fullgraph=True, dynamic=False, options=options)
        with torch.no_grad():
            _, codes = utils.run_and_get_code(compiled, *operands)
        if not codes:
            raise NotRunnableError("Inductor does not show what it has compiled")
        if any(_BY_ATEN.search(code) for code in codes):
            raise NotRunnableError("Inductor has compiled a call of ATen's convolution")

        def run() -> Results:
            with torch.no_grad():
                return {which: laid_out(compiled(*operands), layer.problem.channels_last)}

        return run


def _pass(problem: ConvProblem, which: Pass) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    p = problem
    geometry = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    if which == Pass.FORWARD:
        return lambda x, weight, _: torch.ops.aten.convolution(x, weight, None, *geometry)
    mask = [which == Pass.GRAD_INPUT, which == Pass.GRAD_WEIGHT, False]
    index = mask.index(True)
    return lambda x, weight, grad: torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, mask)[index]


class FlagGems(Rival):
    """`conv2d` of FlagGems, a library of operators in Triton; its backward pass computes both gradients."""

    name = "flag_gems"
    passes = (Pass.FORWARD, BACKWARD)

    def missing(self, device: str) -> str:
        """Return why it cannot be had on a device at all."""
        if torch.device(device).type != "cuda":
            return "FlagGems is for GPUs"
        try:
            gems = importlib.import_module("flag_gems")
        except ImportError as error:
            return f"{in_one_line(error)}; `pip install --no-deps flag_gems sqlalchemy` brings it"
        except Exception as error:  # it looks for a device while it is imported
            return f"importing flag_gems: {in_one_line(error)}"
        return "" if hasattr(gems, "conv2d") else f"flag_gems {_version('flag_gems')} has no conv2d"

    def version(self) -> str:
        """Return the versions of FlagGems and Triton."""
        return f"FlagGems {_version('flag_gems')} with triton {_version('triton')}"

    def call(self, layer: ModelLayer, which: Pass, operands: Operands) -> Callable[[], Results]:
        """Return a pass."""
        gems: Any = importlib.import_module("flag_gems")
        p = layer.problem
        if p.transposed or len(p.kernel) != 2:
            raise NotRunnableError("conv2d of FlagGems is for 2-D convolutions that are not transposed")
        x = operands.x.detach().requires_grad_(layer.needs_grad_input)
        weight = operands.weight.detach().requires_grad_()

        def forward() -> Any:
            return gems.conv2d(x, weight, None, p.stride, p.padding, p.dilation, p.groups)

        def run_forward() -> Results:
            with torch.no_grad():
                return {Pass.FORWARD: laid_out(forward(), p.channels_last)}

        if which == Pass.FORWARD:
            return run_forward
        with torch.enable_grad():
            y = forward()
        leaves = (
            {Pass.GRAD_INPUT: x, Pass.GRAD_WEIGHT: weight} if layer.needs_grad_input else {Pass.GRAD_WEIGHT: weight}
        )

        def run_backward() -> Results:
            grads = torch.autograd.grad(y, list(leaves.values()), operands.grad, retain_graph=True)
            return {which: laid_out(grad, p.channels_last) for which, grad in zip(leaves, grads, strict=True)}

        return run_backward


RIVALS: Final[tuple[Rival, ...]] = (Inductor(), FlagGems())
_CHOICES: Final = {"all": RIVALS, **{rival.name: (rival,) for rival in RIVALS}}


def chosen(names: str | None) -> list[Rival]:
    """Return the rivals of a comma-separated list, or `all`; none by default.

    Raises:
        ConfigError: There is none of that name.
    """
    words = [word.strip() for word in str(names).split(",")] if names else []
    return list(dict.fromkeys(rival for word in words for rival in named("rival", word, _CHOICES)))


def _version(module: str) -> str:
    return str(getattr(importlib.import_module(module), "__version__", "?"))
