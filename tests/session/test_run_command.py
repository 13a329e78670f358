"""The command printed after a stop is typed as it stands, and goes on with exactly the run that was stopped."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.cli.main import main
from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.cfg_file import parse
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session.given import run_command
from yolo_rocm.utils.process_group import Place

from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.once

ROCM = {
    "conv": {"engine": "gemm", "devices": ["cpu"]},
    "loader": {"reproducible": "strict", "context": "fork"},
    "report": {"interval_s": 3},
}
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False}


@pytest.fixture
def stopped(made_data, tmp_path, events):
    """Return a function that trains and is stopped; it returns the run's folder and the line that says so."""

    def stopped(moment: str, epochs: int) -> tuple[Path, str]:
        validations = []

        def stop(_=None) -> None:
            raise KeyboardInterrupt

        def in_batch(trainer) -> None:
            if trainer.epoch == 1:
                stop()

        def in_validation(validator) -> None:
            validations.append(validator)
            if len(validations) == 1 + epochs:
                stop()

        moments = {"batch": "on_train_batch_end", "evaluation": "on_val_start", "end": "on_train_end"}
        yolo = YOLO(small_model())
        yolo.add_callback(moments[moment], {"batch": in_batch, "evaluation": in_validation, "end": stop}[moment])
        given = {**QUICK, "data": str(made_data()), "project": str(tmp_path), "name": "a run", "epochs": epochs}
        with pytest.raises(KeyboardInterrupt):
            yolo_rocm.train(
                yolo, preset={"base": "cpu", **ROCM}, rocm={"report": {"interval_s": 2}}, workers=1, **given
            )
        (line,) = events.of("run.stopped")
        return tmp_path / "a run", line

    return stopped


def test_the_printed_command_goes_on_with_the_same_run(stopped, tmp_path):
    """Typed as it stands in a shell, with the program beside this Python first on its path."""
    folder, line = stopped("batch", 2)
    assert "a run/weights/last.pt is whole and holds epoch 1. To go on" in line
    assert "it leaves out the callbacks of your script" in line
    before = json.loads((folder / "rocm.json").read_text())["settings"]["values"]
    assert (folder / "report.html").stat().st_size > 1000
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command, shell = line.partition("with them): ")[2], {"shell": True, "cwd": tmp_path}
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, **shell
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with (folder / "results.csv").open() as file:
        assert [row["epoch"].strip() for row in csv.DictReader(file)] == ["1", "2"]
    after = json.loads((folder / "rocm.json").read_text())["settings"]["values"]
    assert {key: row["value"] for key, row in before.items()} == {key: row["value"] for key, row in after.items()}
    assert after["loader.workers"] == {"value": 1, "origin": "argument"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["a run"]


@pytest.mark.parametrize("moment", ["evaluation", "end"])
def test_a_training_that_is_complete_is_not_resumed(moment, stopped, log, monkeypatch):
    folder, line = stopped(moment, 1)
    assert "The training is complete: " in line
    assert " resume=true" not in line
    if moment == "end":
        assert "yolo-rocm val" not in line
        return
    command = line.partition("Only its final evaluation was cut off; to repeat it: ")[2]
    log.clear()
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), "plots=false"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert re.search(r"all +2 ", log.text)  # the two images of the run's own data
    for model, why in ((folder / "weights" / "last.pt", "its training is complete"), ("yolov8n.yaml", "no checkpoint")):
        with pytest.raises(ConfigError, match=f"cannot be resumed, .*{why}"):
            yolo_rocm.train(model, preset="cpu", resume=True)


@each_row(
    "given",
    [
        ("auto", None, None, None),
        (None, {}, "", 0),
        ("rx5600xt", {"conv": {"engine": "gemm", "vendor": "on", "devices": ["cpu", "cuda"]}}, [0, 1], 4),
        ("cpu", {"env": {"HSA_X": {"value": "none", "why": "it's needed"}}, "train": {"lr0": 1e-05}}, "cuda:0", None),
        (
            "cpu",
            {
                "conv": {"memory_mb": None},
                "train": {"name": "1", "project": "\u00df \U0001f642", "classes": [1, 2], "cache": "on"},
            },
            0,
            2,
        ),
    ],
    ids=str,
)
def test_the_command_line_reads_what_the_command_says(given):
    preset, rocm, device, workers = given
    program, mode, *words = shlex.split(run_command(*given).train(Path("/a folder: #1/last.pt")))
    assert (program, mode) == ("yolo-rocm", "train")
    read = parse(words)
    assert (read.pop("model"), read.pop("resume")) == ("/a folder: #1/last.pt", True)
    assert read.pop("preset", None) == (preset if preset != "auto" else None)
    assert read.pop("rocm", {}) == (rocm or {})
    assert read.pop("workers", None) == workers
    assert read.pop("device", "") == ((0, 1) if isinstance(device, list) else "" if device is None else device)
    assert not read


def test_a_preset_that_has_no_name_is_told_as_what_it_stands_on_and_its_sections(tmp_path, monkeypatch):
    preset = {"base": "cpu", "conv": {"engine": "aten", "memory_mb": 7}, "loader": {"workers": 3}, "name": "mine"}
    rocm = {"conv": {"engine": "gemm"}, "train": {"lr0": 0.5}}
    words = shlex.split(run_command(preset, rocm, None, None).train(Path("last.pt")))
    read = parse(words[2:])
    same = resolve(preset, rocm).preset.model_dump(exclude={"name", "base"})
    assert resolve(read["preset"], read["rocm"]).preset.model_dump(exclude={"name", "base"}) == same
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("conv: {engine: gemm}\n")
    for file in ("mine.yaml", Path("mine.yaml")):
        assert f"preset={tmp_path / 'mine.yaml'}" in run_command(file, None, None, None).train(Path("last.pt"))


def test_a_run_of_torchrun_is_started_by_torchrun_again():
    one = run_command("cpu", None, "0,1", None, Place(0, 0, 2, 2))
    assert one.train(Path("last.pt")) == (
        "torchrun --nproc_per_node 2 -m yolo_rocm train model=last.pt preset=cpu device=0,1 resume=true"
    )
    assert one.val(Path("best.pt")) == "yolo-rocm val model=best.pt preset=cpu device=0,1"
    two = run_command("cpu", None, None, None, Place(0, 0, 4, 2)).train(Path("last.pt"))
    assert two.startswith("torchrun --nnodes 2 --node_rank N --master_addr HOST0 --nproc_per_node 2 -m yolo_rocm train")
