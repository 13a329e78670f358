"""A run that was killed is resumed with the preset, `rocm` values and workers that it was given."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.cli.main import app
from yolo_rocm.errors import ConfigError
from yolo_rocm.session.given import Given, given_before, quoted
from yolo_rocm.telemetry.table import TELEMETRY_FILE

from ..small_model import small_model

QUICK = {"imgsz": 32, "batch": 4, "epochs": 2, "plots": False, "device": "cpu", "seed": 0, "verbose": False}
REMEDY = {"conv": {"engine": "gemm", "devices": ["cpu"]}, "report": {"interval_s": 3}}
LIST = quoted(['rocm.conv.devices=["cpu"]'])
WORDS = f"preset=generic rocm.conv.engine=gemm {LIST} rocm.report.interval_s=3 workers=1"


@pytest.fixture(scope="module")
def killed(made_data, tmp_path_factory):
    """The folder of a run, a copy as a kill in its second epoch leaves it, `rocm.json` as it was in the first batch."""
    project, kept, first = tmp_path_factory.mktemp("killed"), tmp_path_factory.mktemp("kept"), []

    def in_batch(trainer) -> None:
        first.append((Path(trainer.save_dir) / "rocm.json").read_text())
        if trainer.epoch == 1 and not (kept / "run").exists():
            shutil.copytree(trainer.save_dir, kept / "run")

    yolo = YOLO(small_model())
    handle = yolo_rocm.register(yolo, "generic", REMEDY)
    yolo.add_callback("on_train_batch_start", in_batch)
    yolo.train(data=str(made_data()), project=str(project), name="run", workers=1, **QUICK)
    handle.remove()
    return project / "run", kept / "run", json.loads(first[0])


@pytest.fixture
def last(killed) -> Path:
    folder, kept, _ = killed  # Ultralytics resumes in the folder of its checkpoint's arguments
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    return folder / "weights" / "last.pt"


def rows(folder: Path) -> list[str]:
    return [line.strip() for line in (folder / "results.csv").read_text().splitlines()]


def by_command(last: Path, *words: str) -> None:
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["train", f"model={last}", "resume=true", *words], catch_exceptions=False)
    assert done.exit_code == 0


def by_resume_alone(last: Path) -> None:
    """The newest run below this folder is meant, as Ultralytics has it."""
    yolo_rocm.train(resume=True)


def by_callbacks(last: Path) -> None:
    yolo = YOLO(str(last))
    for event, function in yolo_rocm.callbacks().items():
        yolo.add_callback(event, function)
    yolo.train(resume=True)


@pytest.mark.parametrize("way", [by_command, by_callbacks, by_resume_alone])
def test_it_is_taken_up_in_one_line(way, killed, last, events, monkeypatch):
    monkeypatch.chdir(last.parents[2])
    assert killed[2]["given"] == {"preset": "generic", "rocm": REMEDY, "workers": 1}  # before the first batch
    assert "convolutions" not in killed[2]
    folder, weights = last.parents[1], last.parent
    watched = (folder / TELEMETRY_FILE).read_bytes()
    with (folder / "results.csv").open("a") as file:  # as a kill leaves it between the row of an epoch and its last.pt
        file.write(f"2{rows(folder)[-1][1:]}\n")
    (weights / ".last.pt.partial").write_bytes(b"half")
    way(last)
    assert [row.partition(",")[0] for row in rows(folder)] == ["epoch", "1", "2"]
    assert {path.name for path in weights.iterdir()} == {"last.pt", "best.pt"}
    after = (folder / TELEMETRY_FILE).read_bytes()
    assert after.startswith(watched)
    assert (len(after) > len(watched), after.count(b"time,")) == (True, 1)
    line = f"resumes with {WORDS}, as rocm.json of the run has it (what is given now wins)"
    assert [each for each in events.lines if each.startswith("resumes with")] == [line]
    facts = json.loads((folder / "rocm.json").read_text())
    values = {key: row["value"] for key, row in facts["settings"]["values"].items()}
    assert (facts["settings"]["preset"], values["report.interval_s"], values["loader.workers"]) == ("generic", 3, 1)
    assert facts["given"]["rocm"] == REMEDY


STOCK = """
import sys
sys.modules["yolo_rocm"] = None
from ultralytics import YOLO
YOLO(sys.argv[1]).train(resume=True)
"""


def test_stock_ultralytics_resumes_our_run_where_this_package_is_not_installed(last):
    before = rows(last.parents[1])
    done = subprocess.run([sys.executable, "-c", STOCK, str(last)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rows(last.parents[1])[:2] == before
    assert len(rows(last.parents[1])) == 3
    assert torch.load(last, weights_only=False)["epoch"] == -1


def test_predictions_by_an_engine_follow_it(last, monkeypatch):
    seen = []
    monkeypatch.setattr("yolo_rocm.api.registration.run_method", lambda *_: None)
    monkeypatch.setattr("yolo_rocm.inference.engine_runs.run_method", lambda session, *_: seen.append(session))
    yolo = YOLO(str(last))
    yolo_rocm.register(yolo, engine="torch")
    yolo.train(resume=True)
    yolo.predict("image.jpg")
    assert [session.settings.preset.name for session in seen] == ["generic"]


def test_a_call_that_resumes_nothing_has_nothing_before_it(last):
    for resume in (None, False, "auto"):
        assert given_before(str(last), resume) == Given()
    assert given_before(None, True) == Given()
    assert given_before(str(last), True) == given_before("yolo11n.pt", str(last)) == Given("generic", REMEDY, 1)


def test_what_is_given_now_wins_key_by_key():
    earlier = Given("generic", {"conv": {"engine": "gemm", "vendor": "off"}, "step": {}}, 4)
    now = Given("cpu", {"conv": {"engine": "aten"}}, 0).over(earlier)
    assert now == Given("cpu", {"conv": {"engine": "aten", "vendor": "off"}, "step": {}}, 0)
    assert Given("auto", None, None).over(earlier) == earlier
    assert now.over(Given()) == now


def test_resume_alone_without_any_run_asks_which(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"which last\.pt\? There is none below .*model=FOLDER/weights/last\.pt"):
        yolo_rocm.train(resume=True)
