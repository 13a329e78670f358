"""Anchor points that are made once: the same values, and anew wherever they could be others."""

from __future__ import annotations

import pytest
import torch
from ultralytics.utils import loss
from ultralytics.utils.tal import make_anchors

from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks.anchors import anchors_once


def feats(height=8, width=6, dtype=torch.float32):
    return [torch.zeros(2, 3, height >> level, width >> level, dtype=dtype) for level in range(3)]


@pytest.fixture
def strides():
    return torch.tensor([8.0, 16.0, 32.0])


@pytest.fixture
def calls(monkeypatch):
    """The sizes for which Ultralytics is asked."""
    found = []

    def noted(feats, strides, grid_cell_offset=0.5):
        found.append(tuple(feats[0].shape[2:]))
        return make_anchors(feats, strides, grid_cell_offset)

    monkeypatch.setattr(loss, "make_anchors", noted)
    return found


def assert_right(found, *given):
    expected = make_anchors(*given)
    assert [part.dtype for part in found] == [part.dtype for part in expected]
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_each_size_is_made_once(calls, strides):
    asked = [feats(), feats(16, 16), feats(dtype=torch.float64)]
    with anchors_once():
        for _ in range(3):
            for maps in asked:
                assert_right(loss.make_anchors(maps, strides, 0.5), maps, strides, 0.5)
        assert calls == [(8, 6), (16, 16), (8, 6)]
        assert_right(loss.make_anchors(asked[0], strides, 0.0), asked[0], strides, 0.0)
        assert len(calls) == 4
    loss.make_anchors(asked[0], strides)
    assert len(calls) == 5


def test_changes_are_seen(calls, strides):
    with anchors_once():
        loss.make_anchors(feats(), strides)[0].mul_(2)  # by somebody's own loss
        assert_right(loss.make_anchors(feats(), strides), feats(), strides)
        strides.mul_(2)
        assert_right(loss.make_anchors(feats(), strides), feats(), strides)
        other = (strides + 1).mul_(1)  # of another model
        assert other._version == strides._version
        assert_right(loss.make_anchors(feats(), other), feats(), other)
    assert len(calls) == 4


def test_validation_makes_its_own(calls, strides):
    """What is made in inference mode cannot be kept for a backward pass."""
    with anchors_once():
        for _ in range(2):
            with torch.inference_mode():
                assert loss.make_anchors(feats(), strides)[0].is_inference()
        assert not loss.make_anchors(feats(), strides)[0].is_inference()
        loss.make_anchors(feats(), [8.0, 16.0, 32.0])  # nor are strides that are no tensor kept
        loss.make_anchors(feats(), [8.0, 16.0, 32.0])
    assert len(calls) == 5


def test_not_many_are_remembered(calls, strides):
    with anchors_once():
        for size in (*range(8, 8 * 34, 8), 8):
            loss.make_anchors(feats(size), strides)
    assert len(calls) == 34


def test_a_session_makes_them_once_and_leaves_nothing_behind_after_an_error(calls, strides):
    original = loss.make_anchors
    with pytest.raises(KeyboardInterrupt), Run(Session("cpu", {}), {}).applied():
        for _ in range(2):
            loss.make_anchors(feats(), strides)
        raise KeyboardInterrupt
    assert len(calls) == 1
    assert loss.make_anchors is original
