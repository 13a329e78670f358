"""An environment inside a clone: results go where a command was typed, and what the user has chosen stays."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from yolo_rocm.ultralytics_hooks import settings

from ..pages import PROJECT

pytestmark = pytest.mark.once
# Where results and data sets would go after each of the ways in has asked for a usable Ultralytics.
ASKED = """
import json
from types import SimpleNamespace
import yolo_rocm
from yolo_rocm.ultralytics_hooks import versions
versions.require()
from ultralytics.cfg import get_save_dir
from ultralytics.data.utils import DATASETS_DIR
args = {"task": "detect", "mode": "train", "name": None, "exist_ok": False, "save_dir": None}
places = [get_save_dir(SimpleNamespace(**args, project=project)) for project in (None, "mine/first")]
print(json.dumps([str(place) for place in (*places, DATASETS_DIR)]))
"""


def clone_in(folder: Path) -> Path:
    """Make a clone of this project that holds a copy of Ultralytics, as an environment in it does."""
    import ultralytics

    made = folder / "clone"
    (made / ".git").mkdir(parents=True)
    shutil.copy(PROJECT / "pyproject.toml", made)
    shutil.copytree(Path(ultralytics.__file__).parent, made / ".venv/ultralytics")
    return made


def test_results_go_where_a_command_was_typed_and_settings_do_not_name_the_clone(tmp_path):
    clone, photos, config = clone_in(tmp_path), tmp_path / "photos", tmp_path / "config"
    photos.mkdir()
    config.mkdir()
    variables = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    variables |= {"YOLO_CONFIG_DIR": str(config), "YOLO_ROCM_CACHE": str(tmp_path / "cache"), "YOLO_OFFLINE": "true"}
    variables["PYTHONPATH"] = os.pathsep.join([str(clone / ".venv"), str(PROJECT)])
    for told in (1, 0):
        done = subprocess.run(
            [sys.executable, "-c", ASKED],
            capture_output=True, text=True, check=True, cwd=photos, env=variables, timeout=400,
        )  # fmt: skip
        *log, places = done.stdout.splitlines()
        run, of_project, _ = map(Path, json.loads(places))
        assert run == (photos / "runs/detect/train").resolve()
        assert photos.resolve() in of_project.parents
        assert sum("results go to ./runs" in line for line in [*log, *done.stderr.splitlines()]) == told
        (file,) = config.rglob("settings.json")
        written = json.loads(file.read_text())
        assert (written["runs_dir"], written["weights_dir"]) == ("runs", "weights")
        assert Path(written["datasets_dir"]).parent == tmp_path.resolve()  # beside the clone, as Ultralytics has it


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
    from ultralytics.data import utils

    monkeypatch.chdir(tmp_path)
    clone = tmp_path / "clone"
    now, written = seen(runs_dir="/mine", weights_dir=clone / "weights", datasets_dir=clone / "datasets")
    assert now == {"runs_dir": "/mine", "weights_dir": "weights", "datasets_dir": str(tmp_path.resolve() / "datasets")}
    assert written == {"wandb": True, **now}
    assert str(utils.DATASETS_DIR) == now["datasets_dir"]
    (clone / "datasets").mkdir()
    now, _ = seen(runs_dir=clone / "runs", datasets_dir=clone / "datasets")
    assert now == {"runs_dir": "runs", "datasets_dir": str(clone / "datasets")}


def test_settings_that_cannot_be_written_hold_for_this_process(seen, tmp_path, monkeypatch, events):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "clone/pyproject.toml"))
    now, written = seen(runs_dir=tmp_path / "clone/runs")
    assert now["runs_dir"] == "runs"
    assert written["runs_dir"] == str(tmp_path / "clone/runs")
    assert "for this run alone" in events.of("settings.clone")[0]
