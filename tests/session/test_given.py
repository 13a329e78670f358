"""What `yolo_rocm.train` makes of a `cfg=` file, of `resume` and of a checkpoint, up to the training itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.errors import ConfigError
from yolo_rocm.session.arguments import given_by_user, train_arguments
from yolo_rocm.session.session import Session


@pytest.fixture
def asked(monkeypatch):
    """What would be trained, under which session, with which arguments: nothing is."""
    found = []

    def stop(session, yolo, mode, method, args, kwargs):
        found.append((yolo, session, kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr("yolo_rocm.api.runs.run_method", stop)
    return found


def asked_of(asked, **given):
    with pytest.raises(KeyboardInterrupt):
        yolo_rocm.train(**given)
    return asked.pop()


def test_a_cfg_file_is_read_as_on_the_command_line(asked, made_data, tmp_path):
    """Preset and sections too; what the call says wins, section by section."""
    cfg, data = tmp_path / "cfg.yaml", str(made_data())
    cfg.write_text(
        f"model: yolov8n.yaml\ndata: {data}\nepochs: 2\nfreeze: null\npreset: rx5600xt\n"
        "rocm: {loader: {workers: 3}, step: {memory: full}, train: {freeze: 6}}\n"
    )
    yolo, session, arguments = asked_of(asked, cfg=str(cfg), epochs=1, rocm={"loader": {"workers": 1}})
    assert yolo.model_name == "yolov8n.yaml"  # of the file: Ultralytics' own `train(cfg=)` takes another one
    preset = session.settings.preset
    found = (preset.name, preset.loader.workers, preset.step.memory, preset.train["freeze"])
    assert found == ("rx5600xt", 1, "full", 6)
    assert (arguments["epochs"], arguments["data"]) == (1, data)
    assert train_arguments(session.settings, arguments)["freeze"] == 6
    assert asked_of(asked, cfg=str(cfg), preset="cpu")[1].settings.preset.name == "cpu"
    cfg.write_text(f"task: detect\ncfg: nothere.yaml\nresume: false\nfreeze: null\ndata: {data}\n")
    for given, task in (({}, "segment"), ({"task": "detect"}, "detect")):  # a model that was given tells its own
        yolo, _, arguments = asked_of(asked, model="yolov8n-seg.yaml", cfg=str(cfg), preset="cpu", **given)
        assert (yolo.task, arguments.keys()) == (task, {"data", *given})


@pytest.mark.parametrize(
    ("lines", "match"),
    [("data: nothere.yaml\n", "nothere.yaml"), ("epohs: 1\n", "epohs.*epochs"), ("", "got a NoneType")],
    ids=["data", "key", "nothing"],
)
def test_mistakes_in_a_cfg_file_are_told_before_anything_runs(lines, match, tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(lines)
    with pytest.raises(ConfigError, match=match):
        yolo_rocm.train("yolov8n.yaml", cfg=str(cfg), project=str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [cfg]


def test_an_empty_cfg_is_none():
    assert given_by_user({"cfg": "", "epochs": 1})["epochs"] == 1


def test_resume_auto_of_a_cfg_file_is_by_name(asked, made_data, tmp_path):
    """Ultralytics would look for a file of that name, and go on with the newest run of all."""
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(f"resume: auto\nname: mine\nproject: {tmp_path}\ndata: {made_data()}\n")
    _, _, arguments = asked_of(asked, model="yolov8n.yaml", cfg=str(cfg), preset="cpu")
    assert "resume" not in arguments
    assert arguments["exist_ok"] is True
    with pytest.raises(ConfigError, match='resume="auto" is for'):
        train_arguments(Session("cpu", None).settings, {"cfg": str(cfg)})


def test_resume_names_a_checkpoint(asked, tmp_path):
    for path in (tmp_path / "none.pt", "Auto"):
        with pytest.raises(ConfigError, match=Path(path).name):
            yolo_rocm.train("yolov8n.yaml", resume=path, preset="cpu")
    module, last = YOLO("yolov8n.yaml").model, tmp_path / "last.pt"
    torch.save({"model": module, "epoch": 1, "optimizer": {}, "train_args": {"imgsz": 64}}, last)
    for model in ("yolov8n.yaml", None, YOLO("yolov8s.yaml")):
        yolo, _, arguments = asked_of(asked, model=model, resume=str(last), preset="cpu")
        assert (Path(yolo.ckpt_path), arguments) == (last, {"resume": True})
        assert yolo.model.yaml["scale"] == "n"
    torch.save({"model": module, "epoch": -1, "optimizer": None, "train_args": {}}, last)
    with pytest.raises(ConfigError, match="its training is complete"):
        yolo_rocm.train(resume=str(last), preset="cpu")
