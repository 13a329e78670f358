"""A model as Ultralytics' predictor calls it, for whoever times it: as it is, as TorchScript, compiled."""

from __future__ import annotations

import copy
from typing import Any

from ..errors import StackError
from .models import load_model
from .probes import BENCH_MODEL, missing


def require_backends() -> None:
    """Check that a model can be called as a predictor calls it.

    Raises:
        StackError: The installed Ultralytics has no place for that.
    """
    problems = missing(BENCH_MODEL)
    if problems:
        raise StackError(f"{BENCH_MODEL} is not possible with this Ultralytics: {problems[0]}")


def predict_backend(model: str, device: Any, half: bool) -> Any:
    """Return what a predictor calls: the fused network in its precision on its device."""
    from ultralytics.nn.autobackend import AutoBackend

    network = load_model(model).model
    if str(model).endswith((".yaml", ".yml")):
        _take_statistics(network)
    return AutoBackend(network, device=device, fp16=half, verbose=False).eval()


def _take_statistics(network: Any) -> None:
    """Give an untrained network BatchNorm statistics of noise: with the first ones its activations die out.

    Whatever computes it, right or wrong, would return the same boxes.
    """
    import torch

    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(torch.rand(4, 3, 160, 160))
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def network_of(backend: Any) -> Any:
    """Return the network inside of what a predictor calls."""
    inner = getattr(backend, "backend", backend)  # older releases have the network there at once
    return inner.model


def traced(backend: Any, x: Any) -> Any:
    """Return the network of a backend as `export format=torchscript` writes it, for one shape."""
    import torch

    network = copy.deepcopy(network_of(backend))
    for module in network.modules():
        if hasattr(module, "export"):
            module.export, module.dynamic, module.format = True, False, "torchscript"
    for _ in range(2):
        network(x)
    return torch.jit.trace(network, x, strict=False)  # type: ignore[no-untyped-call]


def compiled_backend(backend: Any, device: Any, mode: str) -> Any:
    """Return a backend as a predictor compiles it with `compile=`."""
    from ultralytics.utils.torch_utils import attempt_compile

    return attempt_compile(copy.deepcopy(backend), device=device, mode=mode)
