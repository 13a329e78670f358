"""The kernels of a detector's loss, compiled and run as those of the table: what each is given, what should come out.

They are those of `yolo_rocm.losses.kernels`, the same for every target; all is compared with fp64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import torch

from tools.kernel import DTYPES, Group, Kernel
from tools.running import Outcome, Task, compared
from yolo_rocm.losses.kernels import calls

PREFIX: Final = "loss "
EPS: Final = 1e-7
_STRIDE, _SHORTEST = 8.0, 16.0  # pixels of the first level's anchors; sides of targets count as no shorter
_GRADS: Final = (0.75, 1.5)  # by both sums
_FEWER: Final = 1 / 4  # roundings than a kernel of BatchNorm may lose
_NOTHING: Final = 1e-9  # magnitude of what has to be right to the bit


@dataclass(frozen=True)
class LossProblem:
    """A detector's predictions: anchors of each level, the numbers of all else, and their data type.

    Of each image's targets the last is padding, and the one before it is smaller than a stride.
    """

    levels: tuple[tuple[int, int], ...]
    images: int
    targets: int
    classes: int
    bins: int
    dtype: torch.dtype = torch.float32

    @property
    def anchors(self) -> int:
        """Of one image."""
        return sum(high * wide for high, wide in self.levels)


USUAL: Final = LossProblem(((8, 8), (4, 4), (2, 2)), 2, 3, 5, 16)
# More anchors than one program has, sizes that are multiples of nothing.
ODD: Final = LossProblem(((34, 30), (9, 7)), 2, 4, 33, 12)


def curated_losses(dtype: str, problem: LossProblem = USUAL) -> Iterator[Kernel]:
    """Yield every kernel for predictions of a data type; where the network's are half, so are the anchors' places."""
    own, full, flag = DTYPES[dtype], torch.float32, torch.uint8
    problem = replace(problem, dtype=own)
    rows = problem.images * problem.anchors
    made = (
        (calls.candidates(problem.images, problem.targets, problem.anchors, problem.classes, _SHORTEST),
         (own, full, own, full, full, full, full, full, flag)),
        (calls.box_losses(rows, problem.anchors, problem.classes, problem.bins),
         (own, own, own, full, full, flag, full, full)),
        (calls.box_gradients(rows, problem.anchors, problem.bins),
         (full, own, own, own, full, flag, full, own, own)),
        (calls.logit_losses(rows * problem.classes), (own, own, full)),
        (calls.logit_gradients(rows * problem.classes, same=True), (full, own, own, own)),
    )  # fmt: skip
    for call, types in made:
        tile = "x".join(str(call.constants[name]) for name in ("BLOCK", "BINS") if name in call.constants)
        yield Kernel(PREFIX + call.kernel.replace("_", " "), tile, dtype, "", call, types, problem)


class _Given(NamedTuple):
    """What kernels are given: of images x anchors, and of images x targets."""

    probabilities: torch.Tensor
    pixels: torch.Tensor  # predicted boxes; all else of anchors is in strides
    places: torch.Tensor  # of anchors, in pixels
    labels: torch.Tensor
    targets: torch.Tensor  # in pixels
    real: torch.Tensor
    dist: torch.Tensor
    boxes: torch.Tensor
    points: torch.Tensor
    wanted: torch.Tensor  # the box that is each anchor's target
    scores: torch.Tensor
    chosen: torch.Tensor
    logits: torch.Tensor  # of classes

    @property
    def weights(self) -> torch.Tensor:
        """Of chosen anchors the sum of their scores, otherwise 0; in fp64."""
        return self.scores.double().sum(2) * self.chosen


@lru_cache(maxsize=8)
def _given(problem: LossProblem) -> _Given:
    generator = torch.Generator().manual_seed(0)
    images, anchors, count, dtype = problem.images, problem.anchors, problem.targets, problem.dtype

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    def places(high: int, wide: int) -> torch.Tensor:
        return torch.cartesian_prod(torch.arange(high), torch.arange(wide)).flip(1) + 0.5

    points = torch.cat([places(*level) for level in problem.levels])
    strides = torch.cat([torch.full((h * w, 1), _STRIDE * 2**i) for i, (h, w) in enumerate(problem.levels)])
    image = torch.tensor(problem.levels[0]).flip(0) * _STRIDE
    sides = image * (0.3 + 0.4 * drawn(images, count, 2))
    sides[:, -2] = 3.0
    centres = sides / 2 + drawn(images, count, 2) * (image - sides)
    real = (torch.arange(count) < count - 1).float().expand(images, count).contiguous()
    targets = torch.cat([centres - sides / 2, centres + sides / 2], 2) * real[..., None]
    which = torch.randint(count - 1, (images, anchors), generator=generator)
    own = targets.gather(1, which[..., None].expand(-1, -1, 4))
    size = (own[..., 2:] - own[..., :2]).repeat(1, 1, 2)
    boxes = ((own + size * (drawn(images, anchors, 4) - 0.5) * 0.6) / strides).to(dtype)
    wanted = own / strides
    for every, side in ((5, 0), (7, 3)):  # sides in the same place
        wanted[:, ::every, side] = boxes[:, ::every, side].float()
    wanted[:, 9::11] = boxes[:, 9::11].float()  # the same box
    wanted[:, 8::11, 0] = boxes[:, 8::11, 2].float()  # one beside the other
    wanted[:, 8::11, 2] = wanted[:, 8::11, 0] + 2
    scores = drawn(images, anchors, problem.classes) * (drawn(images, anchors, problem.classes) < 0.4)
    chosen = (drawn(images, anchors) < 0.6).to(torch.uint8)
    chosen.view(-1)[32:64] = 0  # a program with none
    labels = torch.randint(problem.classes, (images, count), generator=generator).float()
    dist = (3 * torch.randn(images, anchors, 4 * problem.bins, generator=generator)).to(dtype)
    logits = (6 * torch.randn(images, anchors, problem.classes, generator=generator)).to(dtype)
    logits.view(-1)[:4] = torch.tensor([0.0, -0.0, 80.0, -80.0])
    return _Given(
        drawn(images, anchors, problem.classes).to(dtype), boxes.float() * strides, (points * strides).to(dtype),
        labels, targets, real, dist, boxes, points.to(dtype), wanted, scores, chosen, logits,
    )  # fmt: skip


def task(kernel: Kernel) -> Task:
    """Return what a kernel is given."""
    return _TASKS[kernel.call.kernel](kernel, _given(kernel.problem))


def elements_written(kernel: Kernel, groups: Iterable[Group]) -> int:
    """Return how many elements workgroups write."""
    problem, block = kernel.problem, kernel.call.constants["BLOCK"]
    if kernel.call.kernel == "candidates":
        blocks = -(-problem.anchors // block)
        return sum(3 * min(block, problem.anchors - x % blocks * block) for x, _, _ in groups)
    if kernel.call.kernel.startswith("logit"):
        return sum(min(block, kernel.call.numbers[0] - x * block) for x, _, _ in groups)
    rows = [min(block, problem.images * problem.anchors - x * block) for x, _, _ in groups]
    each, once = (1, 2) if kernel.call.kernel == "box_losses" else (4 + 4 * problem.bins, 0)
    return sum(each * number + once for number in rows)


class _Computed(NamedTuple):
    """What is computed in fp64, and the sizes of the terms of it and of its gradient, of which roundings are parts."""

    value: torch.Tensor
    size: torch.Tensor
    of_gradient: torch.Tensor


def _complete_iou(a: torch.Tensor, b: torch.Tensor) -> _Computed:
    """Return the complete IoU of boxes; the gradient is by the first."""
    sides, others = a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    up = torch.tensor([0.0, EPS], dtype=torch.float64)
    (w, h), (w2, h2) = (sides + up).unbind(-1), (others + up).unbind(-1)
    both = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    around = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    inter = both.prod(-1)
    union = w * h + w2 * h2 - inter + EPS
    iou, c2 = inter / union, around.square().sum(-1) + EPS
    centre = b[..., :2] + b[..., 2:] - a[..., :2] - a[..., 2:]
    rho2 = centre.square().sum(-1) / 4
    angle = torch.atan(w2 / h2) - torch.atan(w / h)
    v = 4 / torch.pi**2 * angle.square()
    alpha = (v / (1 - iou + v + EPS)).detach()
    ciou = iou - (rho2 / c2 + v * alpha)

    ends = a[..., :2].abs() + a[..., 2:].abs() + b[..., :2].abs() + b[..., 2:].abs()
    size = 1 + (ends * centre.abs()).sum(-1) / (4 * c2)
    cross = torch.stack((h, w), -1) / union[..., None]
    turn = alpha * (torch.atan(w2 / h2) + torch.atan(w / h)) / (w * w + h * h)
    by_c2 = (2 * around * (rho2 / c2)[..., None] + ends / 2) / c2[..., None]
    by_box = both.flip(-1) / union[..., None] * 2 + cross + by_c2 + turn[..., None] * torch.stack((h, w), -1)
    return _Computed(ciou, size.detach(), torch.cat((by_box, by_box), -1).detach())


def _side_losses(g: _Given, dist: torch.Tensor) -> _Computed:
    """Return the losses of the distances of anchors to the sides of their targets; the gradient is by bins."""
    points, wanted = g.points.double(), g.wanted.double()
    logs = dist.view(*dist.shape[:2], 4, -1).log_softmax(3)
    last = logs.shape[3] - 1
    far = torch.cat((points - wanted[..., :2], wanted[..., 2:] - points), 2).clamp(0, last - 0.01)
    below = far.floor()
    both = torch.stack((below, below + 1), 3).long()
    shares = torch.stack((below + 1 - far, far - below), 3)
    found = logs.gather(3, both)
    loss = -(found * shares).sum(3).mean(2)
    size = loss + (far * found.diff(dim=3).squeeze(3).abs()).mean(2)
    by_bin = (logs.exp() * (1 - logs)).scatter_add(3, both, (1 + far)[..., None].expand_as(shares)) / 4
    return _Computed(loss, size.detach(), by_bin.detach().flatten(2))


def _candidates(kernel: Kernel, g: _Given) -> Task:
    problem: LossProblem = kernel.problem

    def compare(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
        targets, places = g.targets.double()[:, :, None], g.places.double()
        half = (targets[..., 2:] - targets[..., :2]).clamp(min=_SHORTEST) / 2
        from_centre = (places - (targets[..., :2] + targets[..., 2:]) / 2).abs()
        within = (half - from_centre > 1e-9).all(3) & (g.real[..., None] != 0)
        overlap = _complete_iou(targets, g.pixels.double()[:, None])
        overlaps, size = overlap.value.clamp(min=0) * within, overlap.size * within
        labels = g.labels.long()[:, None].expand(-1, problem.anchors, -1)
        roots = g.probabilities.double().gather(2, labels).transpose(1, 2).sqrt()
        return [
            _compared(got[0], roots * overlaps**6, roots * (overlaps**6 + 6 * overlaps**5 * size), known[0]),
            _compared(got[1], overlaps, size, known[1]),
            _compared(got[2], within.double(), torch.full_like(size, _NOTHING), known[2]),
        ]

    flags = torch.empty(problem.images, problem.targets, problem.anchors, dtype=torch.uint8)
    return Task([*g[:6], flags.float(), flags.float(), flags], (6, 7, 8), compare)


def _box_losses(kernel: Kernel, g: _Given) -> Task:
    def compare(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
        overlap, sides = _complete_iou(g.boxes.double(), g.wanted.double()), _side_losses(g, g.dist.double())

        def summed(terms: torch.Tensor) -> torch.Tensor:
            parts = torch.split((terms * g.weights).flatten(), kernel.call.constants["BLOCK"])
            return torch.stack([part.sum() for part in parts])

        return [
            _compared(got[0], g.weights, g.weights, known[0]),
            _compared(got[1][0], summed(1 - overlap.value), summed(1 + overlap.size), known[1][0]),
            _compared(got[1][1], summed(sides.value), summed(sides.size), known[1][1]),
        ]

    partial = torch.empty(2, kernel.call.grid[0])
    return Task([*g[6:12], torch.empty_like(g.weights, dtype=torch.float32), partial], (6, 7), compare)


def _box_gradients(kernel: Kernel, g: _Given) -> Task:
    def compare(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
        boxes, dist = g.boxes.double().requires_grad_(), g.dist.double().requires_grad_()
        overlap, sides = _complete_iou(boxes, g.wanted.double()), _side_losses(g, dist)
        by_iou, by_sides = (by * g.weights.float().double() for by in _GRADS)
        exact = torch.autograd.grad((by_iou * (1 - overlap.value) + by_sides * sides.value).sum(), (dist, boxes))
        sizes = sides.of_gradient * by_sides[..., None], overlap.of_gradient * by_iou[..., None]
        return [_compared(got[i], exact[i], sizes[i], known[i], kernel.problem.dtype) for i in range(2)]

    tensors = [torch.tensor(_GRADS), *g[6:10], g.chosen, g.weights.float(), g.dist, g.boxes]
    return Task(tensors, (7, 8), compare)


def _logit_losses(kernel: Kernel, g: _Given) -> Task:
    logits, targets = g.logits.double(), g.scores.to(g.logits.dtype).double()
    # Not torch's own, which takes a sum of which little is left from a logit.
    exact = (1 - targets) * logits + (-logits).clamp(min=0) + torch.log1p(torch.exp(-logits.abs()))
    # An exponential is as inexact as its exponent, which is a multiple of the logit.
    size = exact * (1 + logits.abs()) + logits.abs() * (targets != 0)
    tensors = [g.logits, g.scores.to(g.logits.dtype), g.logits.float()]
    return Task(tensors, (2,), lambda got, known: [_compared(got[0], exact, size, known[0])])


def _logit_gradients(kernel: Kernel, g: _Given) -> Task:
    dtype = g.logits.dtype
    logits, targets = g.logits.double(), g.scores.to(dtype).double()
    exact = (logits.sigmoid() - targets) * _GRADS[0]
    size = (logits.sigmoid() * (1 + logits.abs()) + targets) * _GRADS[0]
    tensors = [torch.tensor(_GRADS[:1]), g.logits, g.scores.to(dtype), g.logits]
    return Task(tensors, (3,), lambda got, known: [_compared(got[0], exact, size, known[0], dtype)])


_TASKS: Final = {
    "candidates": _candidates, "box_losses": _box_losses, "box_gradients": _box_gradients,
    "logit_losses": _logit_losses, "logit_gradients": _logit_gradients,
}  # fmt: skip


def _compared(
    got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, known: torch.Tensor, dtype: torch.dtype = torch.float32
) -> Outcome:
    limits = torch.finfo(dtype)
    rounding = (0.0, 0.0) if dtype == torch.float32 else (limits.eps / 2, limits.tiny)
    return compared(got[known], exact.detach()[known], size[known] * _FEWER, *rounding)
