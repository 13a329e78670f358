"""Lean memory in networks of every task: the numbers of full memory to the last bit, and the ordinary way elsewhere."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from ultralytics.nn import tasks

from yolo_rocm.norm import recipes
from yolo_rocm.norm.keeping import Activation
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks
from yolo_rocm.ultralytics_hooks.network_calls import lean_networks

from ..blocks.steps import served

says_hooks = pytest.mark.skipif(recipes._top is None, reason="this torch does not say which hooks there are")
# By architecture: its class, and whether its forward pass is the one that lean memory is on for.
NETWORKS = {
    "yolov8n-seg": ("SegmentationModel", True),
    "yolov8n-cls": ("ClassificationModel", True),
    "yolo11n": ("DetectionModel", True),
    "yolov8s-worldv2": ("WorldModel", False),
    "rtdetr-resnet50": ("RTDETRDetectionModel", False),
}


QUICK = ("yolo11n", "yolov8n-seg", "yolov8n-cls")


@pytest.fixture(autouse=True)
def _everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks as one and lean memory are on, and nothing is too small for a recipe."""
    noted = recipes.noted
    monkeypatch.setattr(recipes, "noted", lambda *_: noted(0, 0))
    with served(), fused_blocks():
        yield


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The activations that are computed once more."""
    found: list[type] = []
    make = Activation._make
    monkeypatch.setattr(Activation, "_make", lambda self: found.append(type(self)) or make(self))
    return found


@functools.lru_cache(maxsize=1)
def network(name: str) -> Any:
    torch.manual_seed(0)
    try:
        return getattr(tasks, NETWORKS[name][0])(f"{name}.yaml", verbose=False).train()
    except (FileNotFoundError, AttributeError, KeyError) as error:
        pytest.skip(f"this Ultralytics has no {name}: {error}")


def images(size: int = 64) -> torch.Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))


def tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif output is not None:
        for part in output.values() if isinstance(output, dict) else output:
            yield from tensors(part)


def stepped(module: nn.Module, run: Any = None) -> dict[str, torch.Tensor]:
    """Return the loss of a step, every gradient and every buffer; the module stays as it is."""
    module = copy.deepcopy(module)
    output = (run or (lambda module, x: module(x)))(module, images())
    loss: Any = sum(tensor.float().square().mean() for tensor in tensors(output) if tensor.requires_grad)
    loss.backward()
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **grads, **dict(module.named_buffers())}


def assert_same_bits(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert [name for name, value in wanted.items() if not torch.equal(found[name], value)] == []


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in NETWORKS]
)
def test_a_step_of_every_kind_of_network_has_the_bits_of_full_memory(name: str, made: list[type]) -> None:
    module, is_lean = network(name), NETWORKS[name][1]
    wanted = stepped(module)
    assert len(wanted) > 60
    assert made == []
    with lean_networks():
        found = stepped(module)
    norms = sum(isinstance(each, nn.BatchNorm2d) for each in module.modules())
    assert bool(made) == is_lean
    assert (
        len(made) <= norms
    )  # once, however many read it: halves of a `chunk`, additions, `cat`, heads of three levels
    assert_same_bits(found, wanted)


# What is not a plain forward pass of a training, in a small detector.


@functools.cache
def detector() -> Any:
    torch.manual_seed(0)
    return tasks.DetectionModel("yolov5n.yaml", nc=2, verbose=False).train()


def checkpointed(module: Any, x: torch.Tensor) -> Any:
    """A step whose first blocks of several layers are computed again in backward, by torch."""
    for layer in list(module.model)[2:6]:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    return module(x)


def test_layers_that_torch_checkpoints(made: list[type]) -> None:
    """Gradients and statistics are those of torch's blocks: what is computed again updates them a second time."""
    wanted = stepped(detector(), checkpointed)
    assert {int(value) for name, value in wanted.items() if "num_batches" in name} == {1, 2}
    with lean_networks():
        assert_same_bits(stepped(detector(), checkpointed), wanted)
    assert made


@says_hooks
def test_whoever_moves_saved_tensors_away_gets_all_of_them(made: list[type]) -> None:
    moved: list[torch.Size] = []
    keeping = torch.autograd.graph.saved_tensors_hooks(lambda t: moved.append(t.shape) or t.clone(), lambda t: t)

    def run(module: Any, x: torch.Tensor) -> Any:
        with keeping:
            return module(x)

    wanted = stepped(detector(), run)
    shapes = moved[:]
    moved.clear()
    with lean_networks():
        assert_same_bits(stepped(detector(), run), wanted)
    assert moved == shapes
    assert made == []


def test_evaluation_and_passes_without_gradients_keep_no_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, int]] = []
    noted = recipes.noted
    monkeypatch.setattr(recipes, "noted", lambda *smallest: opened.append(smallest) or noted(*smallest))
    module = copy.deepcopy(detector())
    with lean_networks():
        with torch.no_grad():
            module(images())
        averaged = copy.deepcopy(module).eval()  # as the EMA
        averaged(images())
        assert opened == []
        module(images())
        assert len(opened) == 1
        assert int(module.model[0].bn.num_batches_tracked) == 2
        assert int(averaged.model[0].bn.num_batches_tracked) == 1


def test_what_is_small_next_to_the_images_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    module = copy.deepcopy(detector())
    opened: list[tuple[int, int]] = []
    noted = recipes.noted
    monkeypatch.setattr(recipes, "noted", lambda *smallest: opened.append(smallest) or noted(*smallest))
    with lean_networks():
        module(images())
        monkeypatch.setattr(recipes, "SMALLEST", 100)
        monkeypatch.setattr(recipes, "SMALLEST_DERIVED", 200)
        module(images())
    part = images().numel() // 10
    assert part > 200
    assert opened == [(2**21, 6 * 2**20), (part, part)]


def test_frozen_layers(made: list[type]) -> None:
    """BatchNorm in eval mode in the first half, parameters without gradients in it: both are torch's own affair."""

    def run(module: Any, x: torch.Tensor) -> Any:
        for layer in list(module.model)[:5]:
            layer.requires_grad_(False)
            for each in layer.modules():
                if isinstance(each, nn.BatchNorm2d):
                    each.eval()
        return module(x)

    wanted = stepped(detector(), run)
    with lean_networks():
        found = stepped(detector(), run)
    assert_same_bits(found, wanted)
    assert made
    assert ("model.0.conv.weight" in found) is False
    assert int(found["model.0.bn.num_batches_tracked"]) == 0
