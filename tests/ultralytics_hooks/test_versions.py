"""Versions: a future Ultralytics is judged by what it has; what was tested is said once, by the ladder."""

from __future__ import annotations

import ast
import importlib.util
import json
import logging
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import yolo_rocm
from yolo_rocm.errors import StackError
from yolo_rocm.hardware import Machine
from yolo_rocm.hardware.packages import Misfit, Packages
from yolo_rocm.session.session import Session, opening_lines
from yolo_rocm.session.training import Training
from yolo_rocm.ultralytics_hooks import children, probes, versions
from yolo_rocm.ultralytics_hooks.probes import PROBES, TRAINING, Need

from ..tables import each_row

pytestmark = pytest.mark.once

PROJECT = Path(__file__).parents[2]
PACKAGE = Path(yolo_rocm.__file__).parent
FUTURE = "99.1.0"


@pytest.fixture
def future(monkeypatch, caplog):
    """Make the installed Ultralytics newer than any tested; what was found out about the real one is forgotten."""
    import ultralytics

    def forget() -> None:
        probes.missing.cache_clear()
        versions.require.cache_clear()

    forget()
    monkeypatch.setattr(ultralytics, "__version__", FUTURE)
    monkeypatch.delenv(versions.ANY_VARIABLE, raising=False)
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
    forget()


def test_a_torch_that_cannot_use_the_installed_numpy_is_refused_before_a_run(future, monkeypatch):
    misfit = Misfit("torch 1.13.1 was built for NumPy 1", 'pip install "numpy<2"')
    with monkeypatch.context() as made:
        made.setattr(Packages, "numpy_misfit", lambda self: misfit)
        with pytest.raises(StackError, match=r'^torch 1\.13\.1 was built for NumPy 1\. Run: pip install "numpy<2"$'):
            versions.require()
    versions.require()


def test_a_future_version_in_which_everything_is_found_works_and_says_so_once(future):
    for _ in range(3):
        versions.require()
    said = [record for record in future.records if FUTURE in record.getMessage()]
    assert len(said) == 1
    assert f"newer than any tested ({versions.newest_tested()})" in said[0].getMessage()
    assert said[0].levelno == logging.INFO


def test_a_future_version_without_a_name_is_refused_with_the_reason(future, monkeypatch):
    from ultralytics import YOLO
    from ultralytics.data import build

    yolo = YOLO("yolov8n.yaml")
    monkeypatch.delattr(build, "InfiniteDataLoader")
    for enter in (versions.require, lambda: yolo_rocm.register(yolo, "cpu"), lambda: yolo_rocm.train("yolov8n.yaml")):
        with pytest.raises(StackError) as refused:
            enter()
        text = str(refused.value)
        assert "ultralytics.data.build.InfiniteDataLoader is not there" in text
        assert "needed for training" in text
        assert "YOLO_ROCM_ANY_ULTRALYTICS=1" in text
        assert f"ultralytics=={versions.newest_tested()}" in text
    assert "train" not in vars(yolo)


def test_the_switch_goes_on_anyway(future, monkeypatch):
    from ultralytics.data import build

    monkeypatch.delattr(build, "InfiniteDataLoader")
    monkeypatch.delattr("ultralytics.utils.colorstr")  # nor its logger
    monkeypatch.setenv(versions.ANY_VARIABLE, "1")
    versions.require()
    assert [record.levelno for record in future.records] == [logging.WARNING]
    assert "InfiniteDataLoader is not there" in future.text


@pytest.mark.parametrize(
    ("lacking", "remedy"),
    [
        (["ultralytics"], r"Ultralytics is not installed in .* Run: pip install ultralytics$"),
        (["torchvision", "ultralytics"], "^torchvision, ultralytics: not installed in .* -m yolo_rocm setup --run"),
    ],
    ids=str,
)
def test_a_missing_ultralytics_is_named_with_what_comes_before_it(monkeypatch, lacking, remedy):
    for name in lacking:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in lacking else name)
    versions.require.cache_clear()
    with pytest.raises(StackError, match=remedy):
        versions.require()


def test_a_version_that_is_too_old_is_refused(future, monkeypatch):
    monkeypatch.setattr("ultralytics.__version__", "8.2.103")
    monkeypatch.setenv(versions.ANY_VARIABLE, "1")
    with pytest.raises(StackError, match=r"8\.2\.103 is too old, 8\.3\.0 or newer"):
        versions.require()


@each_row(
    ("wrong", "text"),
    [
        ({"places": ("ultralytics.no_such_module.x",)}, "is not there"),
        ({"places": ("ultralytics.engine.model.Model.no_such_mode",)}, "is not there"),
        ({"takes": ("no_such_argument",)}, "no argument no_such_argument"),
        ({"names": ("no_such_name",)}, "no 'no_such_name'"),
        ({"says": ("no such text",)}, "no 'no such text'"),
        ({"places": ("ultralytics.utils.DEFAULT_CFG_DICT",), "keys": ("no_such_key",)}, "no key 'no_such_key'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_way_of_asking_can_be_answered_with_no(wrong, text):
    good = {"places": ("ultralytics.engine.model.Model.__init__",), "feature": "x"}
    assert text in Need(**{**good, **wrong}).problem()
    assert Need(**good, names=("callbacks",), takes=("model",)).problem() == ""
    assert Need(("ultralytics.nowhere", "ultralytics.YOLO"), "x").problem() == ""  # one of several places is enough


def test_whatever_is_imported_from_ultralytics_has_a_probe():
    imported = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "ultralytics" in text else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ultralytics":
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                imported |= {a.name for a in node.names if a.name.startswith("ultralytics.")}
    places = [place for probe in PROBES for place in probe.places]
    assert len(imported) > 15
    assert [name for name in imported if not any(p == name or p.startswith(f"{name}.") for p in places)] == []


def test_every_event_that_is_listened_to_has_a_probe():
    events = next(probe for probe in PROBES if probe.keys and "default_callbacks" in probe.places[0])
    begin = {"on_pretrain_routine_start", "on_predict_start"}
    listens = {name for name in vars(Training) if name.startswith("on_") or name == "teardown"}
    assert set(events.keys) == listens | begin


def test_what_is_asked_for_and_has_no_place_is_left_off_in_one_line(future, monkeypatch):
    from ultralytics.data.base import BaseDataset

    def without_buffer(self):
        self.ims = self.im_files = self.npy_files = self.im_hw0 = self.im_hw = []

    monkeypatch.setattr(BaseDataset, "__init__", without_buffer)
    asked = Session("cpu", None)
    assert [line for line in opening_lines(asked.settings, asked.machine) if "left off" in line] == [
        "replacing damaged images is left off with this Ultralytics: " + probes.missing(probes.DAMAGED_IMAGES)[0]
    ]
    unasked = Session("cpu", {"loader": {"skip_broken": False}})
    assert not [line for line in opening_lines(unasked.settings, Machine()) if "left off" in line]


@pytest.mark.parametrize(
    "command", [["yolo", "train", "a=1"], [sys.executable, "-m", "ultralytics.cfg.__init__", "train", "a=1"]]
)
def test_children_of_every_version_become_ours(monkeypatch, command):
    from ultralytics.engine import trainer

    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **kwargs: ran.append((command, kwargs["env"]["A"])))
    with children.children_follow({"A": "1"}):
        trainer.subprocess.run(command, check=True)
    assert ran == [([sys.executable, "-m", "yolo_rocm.launch.child", "train", "a=1"], "1")]


def test_the_doctor_asks_in_another_process_what_the_ladder_does_not_know(monkeypatch):
    assert versions.lacks(str(versions.newest_tested()), ask=False) == {}
    assert (
        versions.lacks(None, ask=True) == versions.lacks("8.2.0", ask=True) == versions.lacks(FUTURE, ask=False) == {}
    )
    assert versions.lacks(FUTURE, ask=True) == json.loads(json.dumps(probes.all_missing()))


def test_an_ultralytics_that_cannot_be_imported_is_reported(monkeypatch, tmp_path):
    (tmp_path / "ultralytics.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lacks = versions.lacks(FUTURE, ask=True)
    assert "broken on purpose" in lacks[TRAINING][0]


def load_ladder():
    loader = SourceFileLoader("ladder", str(PROJECT / ".ci" / "ladder"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ladder", loader))
    dont, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = dont
    return module


def test_the_page_shows_what_the_ladder_found():
    ladder = load_ladder()
    text = ladder.PAGE.read_text(encoding="utf-8")
    assert ladder.with_table(text) == text
    for row in versions.tested():
        assert f"| {row['ultralytics']} | {row['torch']} | {row['python']} | " in text


def test_every_rung_was_climbed():
    ladder = load_ladder()
    have = {(row["ultralytics"], row["torch"]) for row in versions.tested() if row["result"] == "pass"}
    newest = str(versions.newest_tested())
    for stack, (_, _, wanted) in ladder.STACKS.items():
        torch = max((torch for _, torch in have), key=ladder.number) if stack == ladder.NEWEST else stack
        assert {(newest if v == ladder.NEWEST else v, torch) for v in wanted} <= have


def test_the_ladder_has_looked_for_all_that_is_looked_for_now():
    rows = [row for row in versions.tested() if row["result"] == "pass"]
    fresh = {row["ultralytics"] for row in rows if row["asked"] == probes.asked()}
    assert fresh == {row["ultralytics"] for row in rows}, "a probe was added or moved: run .ci/ladder"


def test_what_was_found_by_other_probes_does_not_count(monkeypatch):
    assert probes.FUSED_LOSSES in versions.lacks("8.4.0", ask=False)
    monkeypatch.setattr(probes, "PROBES", (*probes.PROBES, probes.Need(("ultralytics.nowhere",), "more")))
    assert versions.lacks("8.4.0", ask=False) == {}
