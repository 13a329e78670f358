"""The loader settings that hold on a machine, as they are shown."""

from __future__ import annotations

import pytest

from yolo_rocm.data import describe
from yolo_rocm.data.describe import loader_facts, rows
from yolo_rocm.data.worker_count import recommended_workers
from yolo_rocm.hardware import Machine
from yolo_rocm.hardware.gpus import Gpu

pytestmark = pytest.mark.once


def test_gpus_are_counted_as_they_are_and_a_preset_is_named_where_it_says_something(monkeypatch):
    """Workers are reckoned for one training process at least; that is no GPU."""
    for wanted, gpus in ((None, ()), (3, (Gpu("amd", "gfx1010"), Gpu("amd", "gfx1010", hidden_by="ROCR")))):
        machine = Machine(gpus=gpus)
        monkeypatch.setattr(describe, "detect", lambda machine=machine: machine)
        shown = dict(rows(loader_facts(recommended_workers(wanted=wanted), {"workers": wanted})))
        assert shown["gpus"] == ("1" if gpus else "0")
        assert shown["loader.workers"] == ("3" if wanted else "not set")
        assert ("preset 3" if wanted else "default 8") in shown["worker limits"]
