"""An environment inside a clone: results go where a command was typed, and what the user has chosen stays."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import pytest

from yolo_rocm.ultralytics_hooks import settings

from ..pages import PROJECT

pytestmark = pytest.mark.once


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return a function that gives Ultralytics settings and returns what becomes of them, here and in the file."""
    from ultralytics import utils

    (tmp_path / "clone").mkdir()
    shutil.copy(PROJECT / "pyproject.toml", tmp_path / "clone")
    file = tmp_path / "settings.json"
    for module in ("ultralytics.utils", "ultralytics.cfg", "ultralytics.data.utils"):  # undone at the end
        for name in ("RUNS_DIR", "DATASETS_DIR"):
            if hasattr(importlib.import_module(module), name):
                monkeypatch.setattr(f"{module}.{name}", Path("before"))
    monkeypatch.setattr(utils.SETTINGS, "file", file)

    def given(**values):
        for name, value in values.items():
            monkeypatch.setitem(utils.SETTINGS, name, str(value))
        file.write_text(json.dumps({"wandb": True, **{name: str(value) for name, value in values.items()}}))
        settings.leave_the_clone()
        return {name: utils.SETTINGS[name] for name in values}, json.loads(file.read_text())

    return given


def test_a_folder_of_the_users_own_stays(seen, tmp_path, monkeypatch, events):
    monkeypatch.chdir(tmp_path / "clone")
    for chosen in (tmp_path / "clone/mine", tmp_path / "runs", "runs"):  # the last: here, in the clone
        now, written = seen(
            runs_dir=chosen, weights_dir=tmp_path / "clone/elsewhere", datasets_dir=Path("datasets").resolve()
        )
        assert now["runs_dir"] == written["runs_dir"] == str(chosen)
        assert now["weights_dir"] == written["weights_dir"] == str(tmp_path / "clone/elsewhere")
    assert events.ids == []


def test_each_setting_counts_alone_and_data_sets_that_are_there_stay(seen, tmp_path, monkeypatch):
    import ultralytics.cfg
    from ultralytics.data import utils

    monkeypatch.chdir(tmp_path)
    clone = tmp_path / "clone"
    now, written = seen(runs_dir="/mine", weights_dir=clone / "weights", datasets_dir=clone / "datasets")
    assert now == {"runs_dir": "/mine", "weights_dir": "weights", "datasets_dir": str(tmp_path.resolve() / "datasets")}
    assert written == {"wandb": True, **now}
    assert str(utils.DATASETS_DIR) == now["datasets_dir"]
    (clone / "datasets").mkdir()
    now, _ = seen(runs_dir=clone / "runs", datasets_dir=clone / "datasets")
    for module in (ultralytics.utils, ultralytics.cfg):  # where runs go that are begun in this process
        assert str(getattr(module, "RUNS_DIR", "runs")) == "runs"
    assert now == {"runs_dir": "runs", "datasets_dir": str(clone / "datasets")}


def test_settings_that_cannot_be_written_hold_for_this_process(seen, tmp_path, monkeypatch, events):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "clone/pyproject.toml"))
    now, written = seen(runs_dir=tmp_path / "clone/runs")
    assert now["runs_dir"] == "runs"
    assert written["runs_dir"] == str(tmp_path / "clone/runs")
    assert "for this run alone" in events.of("settings.clone")[0]
