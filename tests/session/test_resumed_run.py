"""A run that was killed is resumed with the preset, `rocm` values and workers that it was given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.cli.main import app
from yolo_rocm.errors import ConfigError, PresetError
from yolo_rocm.session.resumed_run import Given, given_before, merge, with_newest
from yolo_rocm.session.run_command import quoted

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


def final(last: Path) -> tuple[str, str, float, int | None]:
    settings = json.loads((last.parents[1] / "rocm.json").read_text())["settings"]
    values = {key: row["value"] for key, row in settings["values"].items()}
    return settings["preset"], values["conv.engine"], values["report.interval_s"], values["loader.workers"]


def by_command(last: Path, *words: str) -> None:
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["train", f"model={last}", "resume=true", *words], catch_exceptions=False)
    assert done.exit_code == 0


def by_callbacks(last: Path) -> None:
    yolo = YOLO(str(last))
    for event, function in yolo_rocm.callbacks().items():
        yolo.add_callback(event, function)
    yolo.train(resume=True)


def test_it_is_written_before_the_first_batch(killed):
    given = killed[2]["given"]
    assert given == {"preset": "generic", "rocm": REMEDY, "workers": 1}
    assert killed[2]["settings"]["preset"] == "generic"
    assert "convolutions" not in killed[2]


@pytest.mark.parametrize("way", [by_command, by_callbacks])
def test_it_is_taken_up_in_one_line(way, last, log):
    way(last)
    assert log.text.count("resumes with ") == 1
    assert f"resumes with {WORDS}, as rocm.json of the run has it" in log.text
    assert final(last) == ("generic", "gemm", 3, 1)
    assert json.loads((last.parents[1] / "rocm.json").read_text())["given"]["rocm"] == REMEDY


def test_predictions_by_an_engine_follow_it(last, monkeypatch):
    seen = []
    monkeypatch.setattr("yolo_rocm.api.registration.run_method", lambda *_: None)
    monkeypatch.setattr("yolo_rocm.inference.engine_runs.run_method", lambda session, *_: seen.append(session))
    yolo = YOLO(str(last))
    yolo_rocm.register(yolo, engine="torch")
    yolo.train(resume=True)
    yolo.predict("image.jpg")
    assert [session.settings.preset.name for session in seen] == ["generic"]


def test_the_command_starts_again_with_the_variables_of_that_preset(last, monkeypatch):
    """Before anything is imported that would read them."""
    asked = []

    def restart(*given) -> None:
        asked.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("yolo_rocm.preset.restart.restart_if_late", restart)
    for words in ((), ("preset=cpu", "rocm.conv.engine=aten")):
        with pytest.raises(AssertionError):
            by_command(last, *words)
    assert asked[0] == ("generic", REMEDY, None)
    assert asked[1] == ("cpu", {**REMEDY, "conv": {"engine": "aten", "devices": ["cpu"]}}, None)


def test_the_command_of_the_next_stop_has_them_all(last, log):
    def stop(trainer) -> None:
        raise KeyboardInterrupt

    yolo = YOLO(str(last))
    yolo_rocm.register(yolo)
    yolo.add_callback("on_train_batch_end", stop)
    with pytest.raises(KeyboardInterrupt):
        yolo.train(resume=True)
    assert f"yolo-rocm train model={last} {WORDS} device=cpu resume=true" in log.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"given": 3}',
        '{"given": {"rocm": 3}}',
        '{"given": {"rocm": {"conv": 3}}}',
        '{"given": {"of a later version": 1}}',
    ],
)
def test_a_strange_file_gives_nothing(tmp_path, text):
    (tmp_path / "weights").mkdir()
    (tmp_path / "rocm.json").write_text(text)
    assert given_before(tmp_path / "weights" / "last.pt", True) == Given()


@pytest.mark.parametrize(("model", "resume"), [("yolo11n.pt", None), ("last.pt", "auto"), (None, True), ("x", False)])
def test_a_call_that_resumes_nothing_has_nothing_before_it(model, resume):
    assert given_before(model, resume) == Given()


def test_a_preset_file_that_has_gone_is_named(last):
    facts = json.loads((last.parents[1] / "rocm.json").read_text())
    facts["given"]["preset"] = str(last.parent / "mine.yaml")
    (last.parents[1] / "rocm.json").write_text(json.dumps(facts))
    with pytest.raises(PresetError, match=r"mine\.yaml"):
        yolo_rocm.train(str(last), resume=True)


def test_sections_merge_key_by_key():
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": {}}) == {"a": {"b": 1, "c": 3}, "d": {}}
    now, words = Given("cpu", {"conv": {"engine": "aten"}}, 0).over(Given("generic", {"conv": {"engine": "gemm"}}, 4))
    assert (now, words) == (Given("cpu", {"conv": {"engine": "aten"}}, 0), "")
    again, words = now.over(now)
    assert (again, words) == (now, "")


def test_resume_alone_is_the_newest_run_below_this_folder(last, monkeypatch, log):
    monkeypatch.chdir(last.parents[2])
    assert Path(with_newest(None, True)).resolve() == last
    assert with_newest("yolo11n.pt", True) == "yolo11n.pt"
    yolo_rocm.train(resume=True)
    assert "resumes with preset=generic" in log.text
    assert final(last)[0] == "generic"


def test_resume_alone_without_any_run_asks_which(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"which last\.pt\? There is none below .*model=FOLDER/weights/last\.pt"):
        yolo_rocm.train(resume=True)
