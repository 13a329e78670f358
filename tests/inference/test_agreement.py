"""What counts as the same prediction: by class, overlap, score, mask, keypoints; and that a broken model does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from yolo_rocm.inference.agreement import _rotated_overlaps, agreement
from yolo_rocm.inference.predictions import found_on, load, objects_in, save

from ..tables import each_row

pytestmark = pytest.mark.once
SIZE = 100.0


def boxes(*rows, **more):
    """One image: rows of x1 y1 x2 y2 score class."""
    table = np.array(rows, dtype=np.float32).reshape(-1, 6)
    return {"boxes": table[:, :4], "scores": table[:, 4], "classes": table[:, 5].astype(int), **more}


ONE = (10, 10, 60, 60, 0.9, 0)
TWO = (70, 10, 95, 60, 0.5, 1)


def share(one, two, threshold=0.25):
    return agreement([one], [two], threshold).share


def test_the_same_in_another_order_agrees():
    found = agreement([boxes(ONE, TWO)], [boxes(TWO, ONE)], 0.25)
    assert (found.share, found.objects, found.score, found.agrees) == (1.0, 2, 0.0, True)


@each_row(
    ("other", "wanted"),
    [
        (boxes(ONE), 2 / 3),  # one is missing
        (boxes(ONE, TWO, (0, 70, 30, 95, 0.8, 0)), 4 / 5),  # one too many
        (boxes(ONE, (*TWO[:5], 2)), 2 / 4),  # another class
        (boxes(ONE, (76, 10, 101, 60, 0.5, 1)), 2 / 4),  # IoU 0.61
        (boxes(ONE, (*TWO[:4], 0.42, 1)), 2 / 4),  # the score is another one
        (boxes(ONE, (*TWO[:4], math.nan, 1)), 2 / 4),
        (boxes(ONE, (*[math.nan] * 4, 0.5, 1)), 2 / 4),
        (boxes(), 0.0),
    ],
)
def test_what_is_not_the_same(other, wanted):
    found = agreement([boxes(ONE, TWO)], [other], 0.25)
    assert found.share == pytest.approx(wanted)
    assert not found.agrees


def test_one_box_matches_one_only():
    assert share(boxes(ONE, ONE), boxes(ONE)) == pytest.approx(2 / 3)


def test_a_box_at_the_threshold_may_be_on_either_side():
    edge = (0, 70, 30, 95, 0.26, 0)
    assert share(boxes(ONE, edge), boxes(ONE)) == 1.0
    assert share(boxes(ONE), boxes(ONE, edge)) == 1.0
    assert share(boxes(ONE, edge), boxes(ONE), threshold=0.1) < 1.0


def test_nothing_to_compare_is_no_agreement():
    found = agreement([boxes()], [boxes()], 0.25)
    assert math.isnan(found.share)
    assert not found.agrees


def test_a_missing_image_is_no_agreement():
    assert not agreement([boxes(ONE)], [], 0.25).agrees


def test_masks_have_to_overlap():
    mask = np.zeros((1, 20, 20), dtype=bool)
    mask[0, 2:18, 2:18] = True
    moved = np.roll(mask, 3, axis=2)
    assert share(boxes(ONE, masks=mask), boxes(ONE, masks=mask)) == 1.0
    assert share(boxes(ONE, masks=mask), boxes(ONE, masks=moved)) == 0.0
    assert share(boxes(ONE, masks=mask), boxes(ONE)) == 0.0
    assert share(boxes(ONE, masks=mask), boxes(ONE, masks=mask[:, :10])) == 0.0


def test_keypoints_have_to_be_near():
    points = np.full((1, 3, 2), 30.0)
    assert share(boxes(ONE, points=points), boxes(ONE, points=points + 1)) == 1.0
    assert share(boxes(ONE, points=points), boxes(ONE, points=points + 10)) == 0.0


def test_rotated_boxes_are_compared_as_they_lie():
    flat = np.array([[[10, 40], [60, 40], [60, 50], [10, 50]]], dtype=np.float32)
    turned = np.array([[[30, 20], [40, 20], [40, 70], [30, 70]]], dtype=np.float32)
    assert share(boxes(ONE, corners=flat), boxes(ONE, corners=flat)) == pytest.approx(1.0)
    assert share(boxes(ONE, corners=flat), boxes(ONE, corners=turned)) == 0.0
    assert share(boxes(ONE, corners=flat), boxes(ONE, corners=flat[:, ::-1])) == pytest.approx(1.0)
    assert share(boxes(ONE, corners=flat), boxes(ONE, corners=np.full_like(flat, np.nan))) == 0.0


def test_rotated_boxes_that_differ_by_rounding_overlap_whatever_their_angle():
    draw = np.random.default_rng(0)
    for angle in np.linspace(0, np.pi, 50):
        half = np.array([[-30, -8], [30, -8], [30, 8], [-30, 8]])
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        corners = (half @ turn + 50)[None].astype(np.float32)
        near = corners + draw.normal(0, 1e-5, corners.shape).astype(np.float32)
        assert _rotated_overlaps(corners, near)[0, 0] == pytest.approx(1.0, abs=1e-4)
        assert _rotated_overlaps(corners, corners + np.float32([4, 0]))[0, 0] < 0.9
    square = np.array([[[0, 0], [10, 0], [10, 10], [0, 10]]], dtype=np.float32)
    assert _rotated_overlaps(square, square + 5)[0, 0] == pytest.approx(25 / 175)
    assert _rotated_overlaps(square, square + 20)[0, 0] == 0.0


def test_classes_of_an_image():
    def classes(*probabilities):
        return {"probs": np.array(probabilities)}

    assert share(classes(0.7, 0.2, 0.1), classes(0.69, 0.21, 0.1)) == 1.0
    assert share(classes(0.7, 0.2, 0.1), classes(0.2, 0.7, 0.1)) == 0.0
    assert share(classes(0.7, 0.2, 0.1), classes(math.nan, 0.2, 0.1)) == 0.0
    assert share(classes(0.4, 0.39, 0.21), classes(0.39, 0.4, 0.21)) == 1.0  # equally likely


@pytest.mark.parametrize(
    ("model", "has"),
    [
        ("yolov8n.yaml", {"boxes"}),
        ("yolo26n.yaml", {"boxes"}),
        ("yolo26n-seg.yaml", {"boxes", "masks"}),
        ("yolo11n-pose.yaml", {"boxes", "points"}),
        ("yolo11n-obb.yaml", {"boxes", "corners"}),
        ("yolov8n-cls.yaml", {"probs"}),
    ],
)
def test_every_task_agrees_with_itself_and_not_with_scaled_weights(model, has, tmp_path):
    import torch
    from ultralytics import YOLO

    torch.manual_seed(0)
    try:
        yolo = YOLO(model)
    except FileNotFoundError:
        pytest.skip(f"this Ultralytics has no {model}")
    liven(yolo.model)
    images = [np.random.default_rng(seed).integers(0, 255, (64, 48 + 16 * seed, 3), dtype=np.uint8) for seed in (0, 1)]
    options = {"imgsz": 64, "device": "cpu", "verbose": False, "conf": 0.05, "max_det": 20}

    def predict():
        return [found_on(result) for image in images for result in yolo.predict([image], **options)]

    found = predict()
    assert objects_in(found) > 0
    assert has <= set(found[0])
    save(tmp_path / "found.npz", found)
    assert agreement(load(tmp_path / "found.npz"), predict(), 0.05).share == 1.0
    with torch.no_grad():
        for parameter in yolo.predictor.model.model.parameters():
            parameter.mul_(1.3)
    assert not agreement(found, predict(), 0.05).agrees


def liven(model) -> None:
    """Make a new model report different scores at different places, without a training."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.9
    with torch.no_grad():
        model.train()(torch.rand(4, 3, 64, 64))
        head = model.model[-1]
        for part in ("cv3", "one2one_cv3"):
            for scores in getattr(head, part, ()):
                scores[-1].weight.mul_(10)
                scores[-1].bias.fill_(-1)
        if hasattr(head, "linear"):
            head.linear.weight.mul_(20)
    model.eval()
