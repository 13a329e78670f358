"""The loader settings that hold on a machine, as they are shown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from yolo_rocm.data import resources
from yolo_rocm.data.describe import loader_facts, rows
from yolo_rocm.data.worker_count import recommended_workers

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("hidden", "shown"), [([], 0), (["", "HIP_VISIBLE_DEVICES"], 1), (["", ""], 2)])
def test_gpus_are_counted_as_they_are(monkeypatch, hidden, shown):
    """Workers are reckoned for one training process at least; that is no GPU."""
    gpus = [SimpleNamespace(hidden_by=by, integrated=False) for by in hidden]
    monkeypatch.setattr(resources, "linux_gpus", lambda root, environ: gpus)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    shown_rows = dict(rows(loader_facts(recommended_workers(), {"workers": None})))
    assert shown_rows["GPUs"] == str(shown)


def test_the_preset_is_named_only_where_it_says_something():
    silent, saying = (dict(rows(loader_facts(recommended_workers(wanted=n), {"workers": n}))) for n in (None, 3))
    assert silent["loader.workers"] == "not set"
    assert "default 8" in silent["worker limits"]
    assert "preset" not in silent["worker limits"]
    assert "preset 3" in saying["worker limits"]
