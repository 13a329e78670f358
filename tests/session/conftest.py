"""Fixtures of runs."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def yolo():
    """Return a small model, untrained."""
    from ultralytics import YOLO

    return YOLO("yolov8n.yaml")


@pytest.fixture
def log(caplog):
    """Capture Ultralytics' logger, which does not propagate."""
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
