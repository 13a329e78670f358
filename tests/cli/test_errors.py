"""Everyday mistakes end in one line and a code, with --debug in a traceback; what may be a bug is never hidden."""

from __future__ import annotations

import logging
import sys

import pytest

from yolo_rocm.cli import errors, main
from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.cfg_file import parse

from ..fake_trees import write
from ..tables import each_row

pytestmark = pytest.mark.once

MISTAKES = {
    "train model=nope.pt data=coco8.yaml": "model 'nope.pt' does not exist",
    "train model=yolov8n.yaml data=nope.yaml": "data 'nope.yaml' does not exist",
    "val model=yolov8n.pt cfg=nope.yaml": "configuration file 'nope.yaml' does not exist",
    "train model=yolov8n.yaml data=coco8.yaml epochs=three": "'epochs=three' is of invalid type str",
    "train model=yolov8n.yaml data=coco8.yaml rocm.conv.devices=gpu": "'cuda' or 'cpu'",
    "train model=coco8.yaml data=coco8.yaml": "'coco8.yaml' is no model: it has no 'backbone'. Give model= weights",
    "tune yolo11s-p2.yaml": "model 'yolo11s-p2.yaml' does not exist",  # Ultralytics looks for yolo11-p2.yaml
    "tune yolov8z.yaml": "model 'yolov8z.yaml' does not exist; did you mean 'yolov8",
    "detect train model=nope.pt data=coco8.yaml": "model 'nope.pt' does not exist",
    "train --data": "--data needs a value: data=VALUE",
    "detect trian data=coco8.yaml": "unknown mode 'trian'; did you mean 'train'?",
    "detect data=coco8.yaml": "'detect' is a task, and needs a mode",
    "train model=yolo11x-obb.pt data=coco8.yaml": "model 'yolo11x-obb.pt' cannot be downloaded",  # tests are offline
    "train missing.yaml": "No such file",
    "train data=coco8.yaml rocm.conv.engin=gemm": "did you mean 'engine'?",
    "train modle=yolov8n.yaml data=coco8.yaml": "unknown argument 'modle'; did you mean 'model'?",
}


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Return a function that runs the command line in this process: its exit code, and what it wrote to stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # Ultralytics' handler holds the stream of another test

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["yolo-rocm", *words])
        with pytest.raises(SystemExit) as end:
            main.main()
        return end.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(("words", "text"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_one_line(command, tmp_path, words, text):
    code, told = command(*words.split())
    assert code == 1
    (line,) = [line for line in told.splitlines() if line.startswith("error: ")]
    assert text in line
    assert "Traceback" not in told
    assert not list(tmp_path.iterdir())


@each_row(
    ("words", "debug", "order"),
    [
        (["train", "a=1"], False, ["train", "a=1"]),
        (["run", "x.py", "--debug"], False, ["run", "x.py", "--debug"]),
        (["--debug", "run", "x.py", "--debug"], True, ["--debug", "run", "x.py", "--debug"]),
        (["train", "name=run", "run", "--debug"], True, ["--debug", "train", "name=run", "run"]),
    ],
    ids=str,
)
def test_where_debug_may_stand(words, debug, order):
    """Behind `run` it belongs to the script."""
    assert errors.split_debug(words) == (debug, order)


def from_ultralytics(monkeypatch, error: Exception, cause: Exception | None = None) -> None:
    """Let training raise inside a module that says it is Ultralytics'."""
    space = {"__name__": "ultralytics.made", "error": error, "cause": cause}
    exec("def train(**_):\n    raise error from cause", space)
    monkeypatch.setattr("yolo_rocm.api.run_training", space["train"])


def test_a_failed_download_of_data_says_so(command, monkeypatch):
    why = ConnectionError("❌  Download failure for https://x.org/a.zip.\nEnvironment may be offline.")
    from_ultralytics(monkeypatch, RuntimeError("Dataset 'coco8.yaml' error"), why)
    code, told = command("train", "data=coco8.yaml")
    assert code == 1
    wanted = "error: a download failed: Download failure for https://x.org/a.zip. Environment may be offline. "
    assert told == f"{wanted}(--debug shows where it happened)\n"


PACKAGE = (
    "Ultralytics needs the package lap for this, and it is not installed. Run: pip install lap; with --dry-run it "
    "shows first whether torch would be replaced"
)
FOLDER = (
    "'runs/detect' cannot be used: Permission denied. Change its permissions, or give another folder for results: "
    "project=FOLDER"
)
LABELS, PICTURES = (
    "\x1b[34m\x1b[1mtrain: \x1b[0mNo labels found in a.cache. See x.",
    "Dataset 'a' error ❌ 'train:' key",
)
CUDA = ValueError("Invalid CUDA 'device=0' requested. Use cpu.\n\ntorch: False")
JUNK = "ERROR ❌️ junk.pt is not a loadable checkpoint — the file is empty.\nGet another."


@each_row(
    ("error", "line"),
    [
        (ValueError(LABELS), "No labels found in a.cache. See x."),
        (RuntimeError("\n\nNo valid images found in c.cache.\n"), "No valid images found in c.cache."),
        (NotImplementedError("Optimizer 'Sgd2' not found in list"), "Optimizer 'Sgd2' not found in list"),
        (CUDA, "Invalid CUDA 'device=0' requested. Use cpu."),
        (FileNotFoundError(2, "No such file", "nope.pt"), "[Errno 2] No such file: 'nope.pt'"),
        (FileNotFoundError("'größe 図.yaml' does not exist"), "'größe 図.yaml' does not exist"),
        (TypeError(JUNK), "junk.pt is not a loadable checkpoint: the file is empty. Get another."),
        (TypeError("'amp=maybe' is of invalid type str. 'amp' must be a bool"),) * 2,
        (KeyError("No `kpt_shape` in the det.yaml."), "'No `kpt_shape` in the det.yaml.'"),
        (ConnectionError("1/1: 7... Failed to open 7"), "Failed to open 7"),
        (RuntimeError(PICTURES), "Dataset 'a' error 'train:' key"),
        (ModuleNotFoundError("No module named 'lap'", name="lap"), PACKAGE),
        (PermissionError(13, "Permission denied", "runs/detect"), FOLDER),
    ],
)
def test_what_ultralytics_refuses_is_one_line(command, monkeypatch, error, line):
    from_ultralytics(monkeypatch, error)
    code, told = command("train", "data=coco8.yaml")
    assert (code, told) == (1, f"error: {line!s} (--debug shows where it happened)\n")


@pytest.mark.parametrize(
    ("words", "text"),
    {
        "export model=model.pt format=foo": "Invalid export format='foo'",
        "train model=yolov8n.yaml data={data} rocm.train.amp=maybe": "'amp=maybe' is ",
    }.items(),
    ids=lambda each: each.partition(" ")[0],
)
def test_a_mistake_that_ultralytics_finds_is_one_line(command, weights, made_data, tmp_path, words, text):
    (tmp_path / "model.pt").symlink_to(weights)
    (tmp_path / "model.onnx").touch()
    common = ("preset=cpu", "device=cpu", "imgsz=32", "workers=0", "epochs=1", "plots=false")
    code, told = command(*words.format(data=made_data()).split(), *common)
    (line,) = [line for line in told.splitlines() if line.startswith("error: ")]
    assert code == 1
    assert text in line
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "text"),
    {
        "val model=model.pt data={data} project={file}/p": "project=FOLDER",
        "demo --folder {file}/p": "--folder must be a folder",
    }.items(),
    ids=lambda each: each.partition(" ")[0],
)
def test_results_that_cannot_be_written_are_one_line(command, weights, made_data, tmp_path, words, text):
    """A file is in the place of the folder."""
    (tmp_path / "model.pt").symlink_to(weights)
    (tmp_path / "file").touch()
    common = () if words.startswith("demo") else ("preset=cpu", "device=cpu", "imgsz=32", "workers=0")
    given = words.format(data=made_data(), file=tmp_path / "file")
    code, told = command(*given.split(), *common)
    (line,) = [line for line in told.splitlines() if line.startswith("error: ")]
    assert code == 1
    assert text in line
    assert str(tmp_path / "file") in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model.pt"]


NOT_HIDDEN = {
    "Ultralytics": [
        RuntimeError("out of luck"), FileNotFoundError("a"), FileNotFoundError("'cache' does not exist"),
    ],
    "a callback": [
        FileNotFoundError(2, "No such file or directory", "weights/last.pt"), ConnectionError("Download failure for x"),
    ],
    "our code": [ConnectionError("lost"), RuntimeError("Dataset 'a' error")],
}  # fmt: skip


@pytest.mark.parametrize(("where", "error"), [(where, each) for where in NOT_HIDDEN for each in NOT_HIDDEN[where]])
def test_what_may_be_a_bug_is_not_hidden(monkeypatch, tmp_path, where, error):
    """What our own code raises is no mistake of the user, though Ultralytics has called it, as it calls callbacks."""
    if where == "Ultralytics":
        from_ultralytics(monkeypatch, error)
    else:
        ours = {"__name__": "yolo_rocm.made", "error": error}
        exec("def train(**_):\n    raise error", ours)
        called = {"__name__": "ultralytics.made", "callback": ours["train"]}
        exec("def train(**_):\n    callback()", called)
        monkeypatch.setattr("yolo_rocm.api.run_training", (called if where == "a callback" else ours)["train"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["yolo-rocm", "train", "data=coco8.yaml"])
    with pytest.raises(type(error)) as raised:
        main.main()
    assert raised.value is error


@each_row(
    ("words", "meant"),
    [
        (["detect", "data=x"], {"task": "detect", "data": "x"}),
        (["data=x", "segment"], {"data": "x", "task": "segment"}),
        (["--data", "x", "--preset", "rx5600xt", "--epochs=3"], {"data": "x", "preset": "rx5600xt", "epochs": 3}),
        (["pose"], {"task": "pose"}),
        (["obb", "task=detect"], {"task": "detect"}),
        (["resume", "model=last.pt"], {"resume": True, "model": "last.pt"}),
        (
            ["model=m.pt", "--save_txt", "--conf", "0.3", "--half"],
            {"model": "m.pt", "save_txt": True, "conf": 0.3, "half": True},
        ),
        (["detect", "--resume", "model=last.pt"], {"task": "detect", "resume": True, "model": "last.pt"}),
        (["--resume", "last.pt"], {"resume": "last.pt"}),
        ([], {}),
        (
            ["a=1", "b=0.5", "c=True", "d=None", "e=[0,1]", "f=text", "g=", "--h=x", "rocm.conv.devices=[cpu]"],
            {
                **{"a": 1, "b": 0.5, "c": True, "d": None, "e": [0, 1], "f": "text", "g": "", "h": "x"},
                "rocm": {"conv": {"devices": ["cpu"]}},
            },
        ),
        # an open bracket takes no other key
        (["source=a[1.jpg", "model=m.pt", "name="], {"source": "a[1.jpg", "model": "m.pt", "name": ""}),
        # what Python takes for a comment
        (["source=3#4"], {"source": "3#4"}),
        (["source=2024 #1"], {"source": "2024 #1"}),
        (["source='a #b'"], {"source": "a #b"}),
        (["classes=[0, 1]  # two"], {"classes": [0, 1]}),
        # what YAML reads otherwise
        (["source=2in1.mp4", "cache=~"], {"source": "2in1.mp4", "cache": None}),
        (["lr0=1e-4", "conf=.5E+0", "format=-", "name=1e"], {"lr0": 1e-4, "conf": 0.5, "format": "-", "name": "1e"}),
    ],
    ids=str,
)
def test_words_are_understood(words, meant):
    assert parse(words) == meant


def test_files_without_a_key_are_told_by_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", "nc: 2\nbackbone: []\nhead: []\n")
    write(tmp_path / "photos.yaml", "train: a\nval: b\nnames: [x]\n")
    write(tmp_path / "cfg.yaml", "epochs: 2\nmodel: below.pt\n")
    for words, meant in (
        ("yolov8n.yaml", {"model": "yolov8n.yaml"}),
        ("yolov8n.yaml photos.yaml", {"model": "yolov8n.yaml", "data": "photos.yaml"}),
        ("photos.yaml mine.yaml epochs=3", {"model": "mine.yaml", "data": "photos.yaml", "epochs": 3}),
        ("best.pt coco8.yaml", {"model": "best.pt", "data": "coco8.yaml"}),
        ("last.pt resume", {"model": "last.pt", "resume": True}),
        ("task=detect yolov8n.yaml photos.yaml", {"task": "detect", "model": "yolov8n.yaml", "data": "photos.yaml"}),
        ("cfg.yaml yolov8n.yaml", {"epochs": 2, "model": "yolov8n.yaml"}),
        ("cfg.yaml model=b.pt", {"epochs": 2, "model": "b.pt"}),
    ):
        assert parse(words.split()) == meant, words
    for words in ("mine.yaml yolov8n.yaml", "cfg.yaml cfg.yaml", "yolov8n.yaml epochs=2 photos.yaml"):
        with pytest.raises(ConfigError, match="A YAML file may only come first"):
            parse(words.split())


@each_row("word", ["epochs", "val", "zzz", "amp.x", "rocm.conv.=on"])
def test_a_word_that_turns_nothing_on_is_refused(word):
    """`val` is a mode in the words of Ultralytics."""
    with pytest.raises(ConfigError, match=f"expected key=value, got '{word}'"):
        parse(["model=m.pt", word])


def test_a_task_chooses_the_model_where_none_is_given(command, monkeypatch):
    seen = []

    def train(relaunched, **arguments):
        seen.append(arguments)
        raise ConfigError("enough")

    monkeypatch.setattr("yolo_rocm.api.run_training", train)
    command("segment", "train", "data=x.yaml")
    command("segment", "train", "data=x.yaml", "model=mine.pt")
    command("train", "data=x.yaml")
    assert seen[0] == {"task": "segment", "data": "x.yaml", "model": "yolo11n-seg.pt"}
    assert seen[1]["model"] == "mine.pt"
    assert seen[2] == {"data": "x.yaml"}
