"""The preset's Ultralytics arguments under the user's."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session.arguments import size_given_to, size_of_images, train_arguments
from yolo_rocm.session.run import Run, run_method
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks.probes import EVENTS

pytestmark = pytest.mark.once


def test_arguments_of_the_call_and_of_its_file_win_over_the_preset(tmp_path, events):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text("batch: 5\n")
    settings = Session({"base": "cpu", "train": {"batch": 2, "epochs": 9, "no_such_argument": 1}}, None).settings
    assert train_arguments(settings, {"epochs": 1}) == {"epochs": 1, "batch": 2}
    assert events.of("arguments.left_out") == ["this Ultralytics has no argument no_such_argument: left out"]
    assert train_arguments(settings, {"resume": True}) == {"resume": True}
    for file, added in ((str(cfg), {"epochs": 9}), ("default.yaml", {})):  # Ultralytics' own says all there is
        assert train_arguments(settings, {"cfg": file}) == {"cfg": file, **added}
    with pytest.raises(ConfigError, match=r"nothere\.yaml"):
        train_arguments(settings, {"cfg": "nothere.yaml"})


def test_what_a_file_that_lists_everything_leaves_empty_is_not_given(tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text("batch: null\nfreeze: null\namp: true\nimgsz: null\n")
    settings = resolve({"base": "cpu", "train": {"batch": 2, "freeze": 5, "amp": False}})
    assert train_arguments(settings, {"freeze": None})["freeze"] is None  # a value, in a call
    for given in ({"cfg": str(cfg)}, {"batch": None, "amp": True, "imgsz": None}):
        found = train_arguments(settings, given)
        assert (found["batch"], found["freeze"], found.get("amp", True)) == (2, 5, True)


@pytest.mark.parametrize(("held", "batch"), [(None, 2), ({"epoch": 3, "optimizer": {}}, None)], ids=["new", "goes on"])
def test_what_resumes_nothing_gets_the_preset(held, batch):
    """Ultralytics only warns, and begins a training."""
    settings = resolve({"base": "cpu", "train": {"batch": 2}})
    found = train_arguments(settings, {"resume": True}, SimpleNamespace(ckpt=held))
    assert found.get("batch") == batch


def test_a_run_is_given_what_the_call_and_its_file_say_and_the_batch_of_its_images(tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text("workers: 2\ndevice: cpu\nimgsz: 1280\n")
    session = pickle.loads(pickle.dumps(Session("rx7900xtx", None)))
    for arguments, given in (
        ({"cfg": str(cfg), "epochs": 1}, (2, "cpu", 8)),
        ({"cfg": str(cfg), "workers": 5, "imgsz": 640}, (5, "cpu", 32)),
        ({"imgsz": 1280}, (None, None, 8)),
        ({}, (None, None, 32)),
    ):
        run = Run(session, arguments)
        assert (run.workers, run.device, run.settings.preset.train["batch"]) == given
        assert train_arguments(run.settings, arguments)["batch"] == given[2]


def test_a_checkpoint_goes_on_with_its_size_unless_somebody_says_another():
    model, settings = SimpleNamespace(overrides={"imgsz": 1280}), resolve("rx7900xtx")
    assert size_of_images(settings, {}, model) == 1280
    assert size_of_images(settings, {"imgsz": 320}, model) == 320
    assert size_of_images(settings, {"cfg": "mine.yaml"}, model) is None  # Ultralytics reads it in the model's place
    assert size_of_images(resolve("rx7900xtx", {"train": {"imgsz": 960}}), {}, model) == 960
    assert size_of_images(settings, {}, object()) is None
    session = Session("rx7900xtx", None)
    seen = []
    yolo = SimpleNamespace(overrides={"imgsz": 1280}, callbacks={event: [] for event in EVENTS})
    run_method(session, yolo, "train", lambda **arguments: seen.append(arguments), (), {"epochs": 1})
    assert seen == [{"epochs": 1, **session.settings.preset.train, "batch": 8}]


@pytest.mark.parametrize(
    ("imgsz", "of_preset", "batch"), [(640, None, 32), (1280, None, 8), (640, 1280, 8), (320, 1280, 32)]
)
def test_with_callbacks_alone_the_default_size_counts_as_not_given(imgsz, of_preset, batch):
    settings = resolve("rx7900xtx", {"train": {"imgsz": of_preset}} if of_preset else None)
    trainer = SimpleNamespace(args=SimpleNamespace(imgsz=imgsz))
    assert settings.for_images(size_given_to(trainer)).preset.train["batch"] == batch
