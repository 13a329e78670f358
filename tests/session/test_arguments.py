"""The preset's Ultralytics arguments under the user's."""

from __future__ import annotations

from yolo_rocm.session.arguments import train_arguments
from yolo_rocm.session.session import Session


def test_arguments_of_the_call_win_over_the_preset(yolo, log):
    session = Session({"base": "cpu", "train": {"batch": 2, "epochs": 9, "no_such_argument": 1}}, None)
    assert train_arguments(session.settings, {"epochs": 1}) == {"epochs": 1, "batch": 2}
    assert "no argument no_such_argument" in log.text
    assert train_arguments(session.settings, {"resume": True}) == {"resume": True}


def test_a_cfg_file_wins_over_the_preset(tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text("batch: 5\n")
    session = Session({"base": "cpu", "train": {"batch": 2}}, None)
    assert train_arguments(session.settings, {"cfg": str(cfg)}) == {"cfg": str(cfg)}
