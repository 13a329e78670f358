"""What a real training leaves for its reader."""

from __future__ import annotations

import itertools
import json
import re
import types

import pytest

import yolo_rocm
from yolo_rocm.engines.triton.available import in_words
from yolo_rocm.session import artifacts

from ..small_model import small_model

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def trained(made_data, tmp_path_factory):
    """Train once; return the trainer, and its plots when it ended."""
    from ultralytics import YOLO

    yolo = YOLO(small_model())
    plots: dict = {}
    # Ultralytics' own plots take longer than the training and are no matter here: they are asked for when it is over.
    fits = itertools.count()
    yolo.add_callback("on_fit_epoch_end", lambda trainer: setattr(trainer.args, "plots", next(fits) > 0))
    handle = yolo_rocm.register(
        yolo, "cpu", {"conv": {"engine": "gemm", "devices": ["cpu"]}, "loader": {"context": "fork"}}
    )
    # W&B and the others look at the trainer's plots when the training ends; they are added after a user's callbacks.
    yolo.add_callback("on_train_end", lambda trainer: plots.update(trainer.plots))
    yolo.train(
        data=str(made_data()), project=str(tmp_path_factory.mktemp("runs")), name="run", epochs=1, imgsz=32, batch=4,
        device="cpu", plots=False, verbose=False, seed=0,
    )  # fmt: skip
    handle.remove()
    return yolo.trainer, plots


def test_the_page_and_what_it_rests_on(trained):
    trainer, _ = trained
    page = (trainer.save_dir / "report.html").read_text(encoding="utf-8")
    # What else runs on the machine of a test may well be what held the training up.
    assert re.search(r'data-kind="(compute">CPU-bound|data">Data-bound|unknown">Not judged): ', page)
    assert "<h2>Host</h2>" in page
    assert re.search(r"<dt>device</dt><dd>CPU, \d+ cores?</dd>", page)
    assert "model.0.conv" in page
    assert "1 of 1" in page
    facts = json.loads((trainer.save_dir / "rocm.json").read_text())
    assert facts["loading"]["compute"] == "CPU"
    assert f'<th scope="row">triton</th><td>{in_words("cpu")}</td>' in page
    assert facts["run"]["classes"] == list(trainer.data["names"].values())


def test_the_plots_go_where_people_look(trained):
    trainer, plots = trained
    ours = {path.name for path in plots if path.name.startswith("rocm_")}
    assert "rocm_speed.png" in ours
    assert all((trainer.save_dir / name).exists() for name in ours)


def test_what_goes_wrong_is_a_warning(tmp_path, events):
    trainer = types.SimpleNamespace(save_dir=tmp_path / "gone", args=types.SimpleNamespace(plots=True))
    on, off = (
        types.SimpleNamespace(preset=types.SimpleNamespace(report=types.SimpleNamespace(html=html)))
        for html in (True, False)
    )
    artifacts.write_run_page(trainer, on)
    assert events.ids == ["report.failed"]
    assert events.lines[0].startswith("the report is not complete: ConfigError: there is no folder")
    artifacts.write_run_page(trainer, off)
    assert events.ids == ["report.failed"]
