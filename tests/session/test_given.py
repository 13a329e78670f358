"""What `yolo_rocm.train` makes of a `cfg=` file, of `resume` and of a checkpoint, up to the training itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.errors import ConfigError
from yolo_rocm.session.arguments import train_arguments
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session

from ..small_model import small_model


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
    _, session, arguments = asked_of(asked, cfg=str(cfg), epochs=1, rocm={"loader": {"workers": 1}})
    preset = session.settings.preset
    assert (preset.name, preset.loader.workers, preset.step.memory, preset.train["freeze"]) == (
        "rx5600xt",
        1,
        "full",
        6,
    )
    assert (arguments["epochs"], arguments["data"]) == (1, data)
    assert train_arguments(session.settings, arguments)["freeze"] == 6
    assert asked_of(asked, cfg=str(cfg), preset="cpu")[1].settings.preset.name == "cpu"


@pytest.mark.parametrize(("given", "task"), [({}, "segment"), ({"task": "detect"}, "detect")], ids=["its own", "told"])
def test_a_model_of_the_call_keeps_its_task(asked, made_data, tmp_path, given, task):
    """A file that lists every argument names a task too."""
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(f"task: detect\ncfg: nothere.yaml\nresume: false\nfreeze: null\ndata: {made_data()}\n")
    yolo, _, arguments = asked_of(asked, model="yolov8n-seg.yaml", cfg=str(cfg), preset="cpu", **given)
    assert yolo.task == task
    assert arguments.keys() == {"data", *given}


@pytest.mark.parametrize(
    ("lines", "match"),
    [("data: nothere.yaml\n", "nothere.yaml"), ("epohs: 1\n", "epohs.*epochs"), ("", "empty")],
    ids=["data", "key", "nothing"],
)
def test_mistakes_in_a_cfg_file_are_told_before_anything_runs(lines, match, tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(lines)
    with pytest.raises(ConfigError, match=match):
        yolo_rocm.train("yolov8n.yaml", cfg=str(cfg), project=str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [cfg]


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


def test_an_object_that_resumes_a_checkpoint_keeps_its_callbacks(made_data, tmp_path):
    def seen(trainer):
        events.append(trainer.start_epoch)

    def stop(trainer):
        raise KeyboardInterrupt

    common = {"data": str(made_data()), "imgsz": 32, "device": "cpu", "workers": 0, "plots": False, "val": False}
    first, events = YOLO(small_model()), []
    first.add_callback("on_model_save", stop)
    with pytest.raises(KeyboardInterrupt):
        yolo_rocm.train(first, preset="cpu", epochs=2, project=str(tmp_path), name="r", **common)
    yolo = YOLO(small_model())
    yolo.add_callback("on_train_start", seen)
    yolo_rocm.train(yolo, resume=tmp_path / "r" / "weights" / "last.pt", preset="cpu")
    assert (events, yolo.trainer.epoch) == ([1], 1)


def test_the_batch_is_that_of_the_checkpoints_images(asked, made_data, tmp_path):
    weights = tmp_path / "big.pt"
    torch.save({"model": YOLO("yolov8n.yaml").model, "epoch": -1, "train_args": {"imgsz": 1280}}, weights)
    for given, batch in (({}, 8), ({"imgsz": 640}, 32)):
        data = str(made_data())
        yolo, session, arguments = asked_of(asked, model=str(weights), data=data, preset="rx7900xtx", **given)
        assert train_arguments(Run(session, arguments, yolo).settings, arguments)["batch"] == batch
