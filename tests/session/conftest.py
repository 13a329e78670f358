"""Fixtures of runs."""

from __future__ import annotations

import logging

import pytest

from ..small_model import small_model


@pytest.fixture
def yolo():
    """Return a small model, untrained."""
    from ultralytics import YOLO

    return YOLO(small_model())


@pytest.fixture
def log(caplog):
    """Capture Ultralytics' logger, which does not propagate."""
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
