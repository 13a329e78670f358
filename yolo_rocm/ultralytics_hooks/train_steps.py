"""A detector and a batch as the trainer would hand them to a training step, without a trainer or a data set."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from ..errors import ConfigError, StackError
from .models import load_model
from .probes import BENCH_TRAIN, COMPILE_MODE, missing

BOXES_PER_IMAGE: Final = 8
_ALWAYS_FROZEN: Final = ".dfl"  # fixed weights; the trainer freezes them by this name
_COMPILED_ON_DISK: Final = {
    "torch._inductor.config": "fx_graph_cache",
    "torch._functorch.config": "enable_autograd_cache",
}


def detector(model: str) -> Any:
    """Return the torch module of a detector's YAML or weights, ready to train: on the CPU, with the arguments it needs.

    Args:
        model: Weights or model YAML; a YAML's weights are drawn from torch's generator.

    Raises:
        ConfigError: The model is no detector.
        StackError: The installed Ultralytics has no place for a step outside its trainer.
    """
    problems = missing(BENCH_TRAIN)
    if problems:
        raise StackError(f"{BENCH_TRAIN} is not possible with this Ultralytics: {problems[0]}")
    from ultralytics.cfg import get_cfg

    yolo = load_model(model)
    if yolo.task != "detect":
        raise ConfigError(f"a training step is measured of detectors, got {model!r}, whose task is {yolo.task!r}.")
    module = yolo.model.float().train()
    # What the trainer sets: the losses read their gains and the number of classes there.
    module.args, module.nc = get_cfg(), len(module.names)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(_ALWAYS_FROZEN not in name)
    return module


def made_batch(module: Any, images: int, imgsz: int, generator: Any) -> dict[str, Any]:
    """Return a batch of noise with boxes of random places, sizes and classes, in the form the losses read.

    Args:
        module: What `detector` returned; it knows the number of classes.
        images: Images of the batch.
        imgsz: Their height and width.
        generator: torch generator of the CPU to draw from.
    """
    import torch

    boxes = images * BOXES_PER_IMAGE
    # Large ones are among them: an untrained model guesses boxes of 15 strides, and what has no overlap has no loss.
    sizes = torch.rand(boxes, 2, generator=generator) * 0.8 + 0.1
    centres = sizes / 2 + torch.rand(boxes, 2, generator=generator) * (1 - sizes)
    return {
        "img": torch.rand(images, 3, imgsz, imgsz, generator=generator),
        "cls": torch.randint(0, module.nc, (boxes, 1), generator=generator).float(),
        "bboxes": torch.cat([centres, sizes], 1),
        "batch_idx": torch.arange(boxes).div(BOXES_PER_IMAGE, rounding_mode="floor").float(),
    }


def loss_of(module: Any, batch: dict[str, Any]) -> Any:
    """Return the sum of a batch's losses, forward pass included; newer releases return them one by one."""
    return module(batch)[0].sum()


def loss_of_predicted(module: Any, batch: dict[str, Any], predicted: Any) -> Any:
    """Return the sum of a batch's losses, from what the forward pass has returned."""
    return module.loss(batch, predicted)[0].sum()


def why_not_compiled(device: str) -> str:
    """Return why Ultralytics' compile mode cannot be had on a device type; nothing where it can."""
    import torch

    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no torch.compile"
    problems = missing(COMPILE_MODE)
    if problems:
        return f"this Ultralytics has no compile mode ({problems[0]})"
    with suppress(ImportError):  # an older torch: what is missing shows when it compiles
        from torch.utils._triton import has_triton

        return "" if device == "cpu" or has_triton() else "Inductor finds no working Triton"
    return ""


def compiled(module: Any, device: Any) -> Any:
    """Return a module as the trainer runs it with `compile=True`; it compiles when it is first called."""
    from ultralytics.utils.torch_utils import attempt_compile

    return attempt_compile(module, device=device, mode=True)


@contextmanager
def compiled_anew() -> Iterator[None]:
    """Let nothing be used that was compiled before while the context is open.

    What torch keeps, in memory and on disk, does not know whether the vendor library was on, and results are laid out
    differently without it.
    """
    import torch

    if not hasattr(torch, "compile"):
        yield
        return
    from torch._subclasses.fake_tensor import FakeTensorMode

    getattr(FakeTensorMode, "cache_clear", lambda: None)()
    with ExitStack() as off:
        for module, cache in _COMPILED_ON_DISK.items():
            config: Any = importlib.import_module(module)
            if hasattr(config, cache):
                off.enter_context(config.patch({cache: False}))
        yield


def forget_compiled() -> None:
    """Let go of everything that was compiled in this process, and of the models it holds."""
    import torch._dynamo

    torch._dynamo.reset()
