"""What counts as the same prediction: by class, overlap, score, mask, keypoints and rotation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from yolo_rocm.inference.agreement import agreement, count, objects_on

from ..small_model import small_model
from ..tables import each_row
from .conftest import liven

pytestmark = pytest.mark.once


def boxes(*rows, **more):
    """One image: rows of x1 y1 x2 y2 score class."""
    table = torch.tensor(rows).reshape(-1, 6).float()
    return {"boxes": table[:, :4], "scores": table[:, 4], "classes": table[:, 5], **more}


ONE = (10, 10, 60, 60, 0.9, 0)
TWO = (70, 10, 95, 60, 0.5, 1)
EDGE = (0, 70, 30, 95, 0.26, 0)
MASK = torch.zeros((1, 20, 20), dtype=torch.bool)
MASK[0, 2:18, 2:18] = True
POINTS = torch.full((1, 3, 2), 30.0)
FLAT = torch.tensor([[[10.0, 40], [60, 40], [60, 50], [10, 50]]])
TURNED = torch.tensor([[[30.0, 20], [40, 20], [40, 70], [30, 70]]])


def probabilities(*values):
    return {"probs": torch.tensor(values)}


@each_row(
    ("one", "other", "same"),
    [
        (boxes(ONE, TWO), boxes(TWO, ONE), 1.0),  # in another order
        (boxes(ONE, TWO), boxes(ONE), 2 / 3),  # one is missing
        (boxes(ONE, TWO), boxes(ONE, TWO, (0, 70, 30, 95, 0.8, 0)), 4 / 5),  # one too many
        (boxes(ONE, TWO), boxes(ONE, (*TWO[:5], 2)), 2 / 4),  # another class
        (boxes(ONE, TWO), boxes(ONE, (76, 10, 101, 60, 0.5, 1)), 2 / 4),  # IoU 0.61
        (boxes(ONE, TWO), boxes(ONE, (*TWO[:4], 0.42, 1)), 2 / 4),  # the score is another one
        (boxes(ONE, TWO), boxes(ONE, (*TWO[:4], math.nan, 1)), 2 / 4),
        (boxes(ONE, TWO), boxes(ONE, (*[math.nan] * 4, 0.5, 1)), 2 / 4),
        (boxes(ONE, TWO), boxes(), 0.0),
        (boxes(ONE, ONE), boxes(ONE), 2 / 3),  # a box matches one only
        (boxes(ONE, EDGE), boxes(ONE), 1.0),  # at the threshold, on either side
        (boxes(ONE), boxes(ONE, EDGE), 1.0),
        (boxes(ONE, masks=MASK), boxes(ONE, masks=MASK), 1.0),
        (boxes(ONE, masks=MASK), boxes(ONE, masks=MASK.roll(3, 2)), 0.0),
        (boxes(ONE, masks=MASK), boxes(ONE), 0.0),
        (boxes(ONE, masks=MASK), boxes(ONE, masks=MASK[:, :10]), 0.0),
        (boxes(ONE, points=POINTS), boxes(ONE, points=POINTS + 1), 1.0),
        (boxes(ONE, points=POINTS), boxes(ONE, points=POINTS + 10), 0.0),
        (boxes(ONE, corners=FLAT), boxes(ONE, corners=FLAT.roll(1, 1) + 1e-4), 1.0),  # begins at another corner
        (boxes(ONE, corners=FLAT), boxes(ONE, corners=TURNED), 0.0),
        (boxes(ONE, corners=FLAT), boxes(ONE, corners=FLAT * math.nan), 0.0),
        (probabilities(0.7, 0.2, 0.1), probabilities(0.69, 0.21, 0.1), 1.0),
        (probabilities(0.7, 0.2, 0.1), probabilities(0.2, 0.7, 0.1), 0.0),
        (probabilities(0.7, 0.2, 0.1), probabilities(math.nan, 0.2, 0.1), 0.0),
        (probabilities(0.4, 0.39, 0.21), probabilities(0.39, 0.4, 0.21), 1.0),  # equally likely
    ],
)
def test_what_is_the_same(one, other, same):
    assert agreement([one], [other], 0.25)[0] == pytest.approx(same)


def test_differences_of_scores_are_told_and_nothing_to_compare_is_no_agreement():
    assert agreement([boxes(ONE, TWO)], [boxes(ONE, (*TWO[:4], 0.47, 1))], 0.25)[1] == pytest.approx(0.03)
    assert math.isnan(agreement([boxes()], [boxes()], 0.25)[0])


@pytest.mark.parametrize(
    ("task", "holds"),
    [("detect", "boxes"), ("segment", "masks"), ("pose", "points"), ("obb", "corners"), ("classify", "probs")],
)
def test_every_task_agrees_with_itself(task, holds):
    from ultralytics import YOLO

    torch.manual_seed(0)
    yolo = YOLO(small_model(task), task=task)
    liven(yolo.model)
    image = np.random.default_rng(0).integers(0, 255, (64, 48, 3), dtype=np.uint8)
    objects = [objects_on(result) for result in yolo.predict(image, imgsz=64, device="cpu", conf=0.05, verbose=False)]
    assert count(objects) > 0
    assert holds in objects[0]
    assert agreement(objects, objects, 0.05)[0] == 1.0
