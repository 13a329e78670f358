"""A detector's predictions and targets, made up, and its losses as Ultralytics computes them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from ultralytics.utils.loss import BboxLoss
from ultralytics.utils.tal import TaskAlignedAssigner, dist2bbox, make_anchors

STRIDES = (8.0, 16.0, 32.0)
SHORTEST = STRIDES[1]


class Case(NamedTuple):
    """Of images x anchors, and of images x targets; boxes of anchors are in strides, all else in pixels."""

    dist: torch.Tensor
    boxes: torch.Tensor
    probabilities: torch.Tensor
    points: torch.Tensor
    strides: torch.Tensor
    labels: torch.Tensor
    targets: torch.Tensor
    real: torch.Tensor

    def to(self, *args):
        """Return it elsewhere."""
        return Case(*(each.to(*args) for each in self))

    @property
    def bins(self):
        """Bins of a distance."""
        return self.dist.shape[2] // 4

    @property
    def classes(self):
        """How many."""
        return self.probabilities.shape[2]

    def assigner(self):
        """Return Ultralytics' assigner, ready to be asked."""
        found = TaskAlignedAssigner(10, self.classes, 0.5, 6.0, list(STRIDES))
        found.bs, found.n_max_boxes = self.targets.shape[:2]
        return found

    def asked(self):
        """Return what the assigner is asked with."""
        pixels = self.boxes.float() * self.strides
        return self.probabilities, pixels, self.labels, self.targets, self.points * self.strides, self.real

    def assigned(self):
        """Return box, scores and choice of each anchor."""
        scores, boxes, labels, targets, points, real = self.asked()
        _, of_anchors, of_classes, chosen, _ = self.assigner()(scores.float(), boxes, points, labels, targets, real)
        return of_anchors / self.strides, of_classes, chosen

    def losses(self, dist, boxes, assigned):
        """Return both losses as Ultralytics computes them."""
        targets, scores, chosen = assigned
        size = torch.tensor([64.0, 64.0], device=dist.device)
        rest = (targets, scores, scores.sum().clamp(min=1), chosen, size, self.strides)
        return BboxLoss(self.bins)(dist, boxes, self.points, *rest)


def case(images=3, targets=5, classes=7, bins=16, size=8, seed=0, sharp=3.0):
    """Return a case; every fifth target is padding, and the last of several is smaller than a stride."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.rand(shape, generator=generator)

    maps = [torch.zeros(images, 1, size >> level, size >> level) for level in range(3)]
    points, strides = make_anchors(maps, torch.tensor(STRIDES), 0.5)
    sides = drawn(images, targets, 2) * 0.6 + 0.1
    if targets > 1:
        sides[:, -1] = 0.02
    centres = sides / 2 + drawn(images, targets, 2) * (1 - sides)
    real = (torch.arange(targets) % 5 != 4).float().expand(images, -1)[..., None].contiguous()
    if targets > 1:
        real[:, -1] = 1
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], -1) * size * 8 * real
    dist = torch.randn(images, len(points), 4 * bins, generator=generator) * sharp
    far = dist.view(images, -1, 4, bins).softmax(3).matmul(torch.arange(bins).float())
    labels = torch.randint(0, classes, (images, targets, 1), generator=generator).float()
    probabilities = drawn(images, len(points), classes)
    return Case(dist, dist2bbox(far, points, xywh=False), probabilities, points, strides, labels, boxes, real)
