"""`yolo-rocm val|predict|track|export|benchmark`: the results of stock Ultralytics, with our convolutions."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import torch

from yolo_rocm import api
from yolo_rocm.cli import main
from yolo_rocm.conv import seam
from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.cfg_file import parse

from ..session.test_training import OURS, an_image
from ..sick_vendor import MESSAGE, sick_vendor
from ..tables import each_row

pytestmark = pytest.mark.once

WORDS = ("preset=cpu", "rocm.conv.engine=gemm", "rocm.conv.devices=[cpu]", "imgsz=32", "device=cpu")
CONF = 1e-5  # the model has learned nothing: its boxes are unsure


@pytest.fixture
def log(caplog):
    """Capture Ultralytics' logger, which does not propagate."""
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return a function that runs the command line in this process; results go to a folder of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["yolo-rocm", *words])
        with pytest.raises(SystemExit) as end:
            main.main()
        assert end.value.code == 0
        assert seam.active_devices() == ()

    return run


def written(folder: Path) -> dict[str, torch.Tensor]:
    """Return the boxes that a validation or prediction wrote, by image."""
    return {
        file.stem: torch.tensor([[float(word) for word in line.split()] for line in file.read_text().splitlines()])
        for file in sorted((folder / "labels").glob("*.txt"))
    }


def test_val_equals_stock(weights, made_data, tmp_path):
    """In its metrics, which are nothing for a model that has learned nothing, and in every box."""
    from ultralytics import YOLO

    arguments = {"data": str(made_data()), "imgsz": 32, "device": "cpu", "plots": False, "project": str(tmp_path)}
    arguments.update(conf=CONF, save_txt=True, save_conf=True)
    stock = YOLO(weights).val(**arguments, name="stock")
    with sick_vendor():
        ours = api.run_mode("val", weights, "cpu", OURS, **arguments, name="ours")
        assert seam.active_devices() == ()
        with pytest.raises(RuntimeError, match=MESSAGE):
            YOLO(weights).val(**arguments)
    assert set(ours.report.engines()) == {"gemm"}
    assert ours.result.results_dict == pytest.approx(stock.results_dict, abs=1e-4)
    wanted, found = written(tmp_path / "stock"), written(tmp_path / "ours")
    assert len(wanted) == 2
    assert min(len(boxes) for boxes in wanted.values()) > 10
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_predict_equals_stock_and_says_where_it_saved(command, weights, made_data, tmp_path, log, capsys):
    from ultralytics import YOLO

    image = an_image(made_data())
    words = (f"model={weights}", f"source={image}", f"conf={CONF}", "save_txt=true", "save_conf=true")
    with sick_vendor():
        command("predict", *words, f"project={tmp_path}", *WORDS, "--table")
    assert "engine 'gemm'" in capsys.readouterr().out
    folder = tmp_path / "predict"
    assert (folder / Path(image).name).is_file()  # images are saved unless asked otherwise, as by `yolo`
    assert f"Results saved to {folder}" in log.text.replace("\x1b[1m", "")
    (stock,) = YOLO(weights).predict(image, imgsz=32, device="cpu", conf=CONF, verbose=False)
    wanted = torch.cat([stock.boxes.cls[:, None], stock.boxes.xywhn, stock.boxes.conf[:, None]], 1)
    assert len(wanted) > 0
    torch.testing.assert_close(written(folder), {Path(image).stem: wanted}, rtol=1e-4, atol=1e-4)


def test_track(command, weights, made_data, tmp_path, log):
    pytest.importorskip("lap")
    pytest.importorskip("ultralytics.trackers.utils.matching", exc_type=ImportError)  # older ones want scipy
    with sick_vendor():
        command(
            "track", f"model={weights}", f"source={Path(an_image(made_data())).parent}", f"project={tmp_path}", *WORDS
        )
    assert list(tmp_path.glob("track/*.jpg"))


def test_export_prints_the_file_last(command, monkeypatch, capsys):
    monkeypatch.setattr(api, "run_mode", lambda mode, **given: api.RunOutcome(Path(f"{given['model']}.{mode}")))
    command("export", "model=best", "format=torchscript", "preset=cpu")
    assert capsys.readouterr().out.splitlines()[-1] == "best.export"


@pytest.mark.parametrize(
    ("mode", "arguments", "text"),
    [
        ("val", {"imgz": 32}, "unknown argument 'imgz'; did you mean 'imgsz'?"),
        ("val", {"model": None}, "no model was given"),
        ("export", {"model": "nowhere/best.pt"}, "model 'nowhere/best.pt' does not exist"),
        ("predict", {}, "no source was given"),
        ("track", {"source": "nowhere.mp4"}, "source 'nowhere.mp4' does not exist"),
        ("val", {"data": "nowhere.yaml"}, "data 'nowhere.yaml' does not exist"),
    ],
)
def test_mistakes_end_before_anything_runs(mode, arguments, text, weights, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.models.load_model", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(ConfigError) as error:
        api.run_mode(mode, **{"model": weights, "preset": "cpu", **arguments})
    assert text in str(error.value)
    assert list(tmp_path.iterdir()) == []


@each_row(
    "word",
    [
        "classes=[0, 1]", "device=0,1", "name=2024-01-01", "name=3.10", "name=yes", "name=None",
        "project=/runs #1/a: b", "source=#b", "time=1:30", "lr0=1e-4", "freeze=010", "cache=False",
    ],
)  # fmt: skip
def test_a_value_is_read_as_yolo_reads_it(word):
    from ultralytics.cfg import smart_value

    key, _, text = word.partition("=")
    kept = key in ("name", "project") and text != "None"  # by newer releases; older ones read 3.10 as 3.1
    assert parse([word]) == {key: text if kept else smart_value(text)}


@each_row(
    "words",
    [
        ["imgsz", "=", "64"], ["imgsz=", "64"], ["imgsz=64,"], ["--imgsz", "64"],
        ["classes=[0", ",", "1", "]", "cos_lr=true"], ["--classes", "[0,", "1]"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_words_that_belong_together_are_put_together(words):
    from ultralytics.cfg import smart_value

    given = parse(words)
    assert given["imgsz"] == 64 if "imgsz" in given else given["classes"] == smart_value("[0, 1]")
    assert len(given) == sum(word.strip("-")[0].isalpha() for word in words)


def test_a_file_of_cfg_is_read_as_one_that_comes_first(tmp_path):
    """Ultralytics' `YOLO.train(cfg=)` takes neither the model nor the task of it, and other modes nothing."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("model: a.yaml\nepochs: 3\nrocm: {conv: {engine: gemm}}\n")
    second.write_text("model: b.yaml\n")
    words = ["batch=2", "epochs=5", f"cfg={first}", "rocm.conv.tune=off"]
    assert parse(words) == {
        "model": "a.yaml",
        "epochs": 5,
        "batch": 2,
        "rocm": {"conv": {"engine": "gemm", "tune": False}},
    }
    assert parse([str(first), f"cfg={second}"])["model"] == "b.yaml"
    assert parse([f"cfg={first}", "detect"])["task"] == "detect"
    first.write_text("cfg: other.yaml\nepochs: 2\n")
    assert parse([f"cfg={first}"]) == {"epochs": 2}
