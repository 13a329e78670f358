"""An environment inside a clone: results go where a command was typed, and what the user has chosen stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import ultralytics.cfg
from ultralytics import utils

from yolo_rocm.ultralytics_hooks import settings

from ..pages import PROJECT

pytestmark = pytest.mark.once


def test_each_setting_that_names_the_clone_is_replaced_for_this_process(tmp_path, monkeypatch, events):
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copy(PROJECT / "pyproject.toml", clone)
    for module in (utils, ultralytics.cfg):  # undone at the end
        monkeypatch.setattr(module, "RUNS_DIR", Path("before"), raising=False)
    for runs, weights, expected in (
        (clone / "mine", clone / "elsewhere", (str(clone / "mine"), str(clone / "elsewhere"))),
        (tmp_path / "runs", "weights", (str(tmp_path / "runs"), "weights")),
        (tmp_path / "runs", clone / "weights", (str(tmp_path / "runs"), "weights")),
        (clone / "runs", clone / "weights", ("runs", "weights")),
    ):
        assert Path("before") == utils.RUNS_DIR
        monkeypatch.setitem(utils.SETTINGS, "runs_dir", str(runs))
        monkeypatch.setitem(utils.SETTINGS, "weights_dir", str(weights))
        settings.leave_the_clone()
        assert (utils.SETTINGS["runs_dir"], utils.SETTINGS["weights_dir"]) == expected
    assert (Path("runs"), Path("runs")) == (utils.RUNS_DIR, ultralytics.cfg.RUNS_DIR)
    assert events.ids == ["settings.clone"] * 2
    assert str(clone / "runs") in events.of("settings.clone")[1]
