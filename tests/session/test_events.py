"""A session as Ultralytics callbacks, on their own."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm.conv import seam
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.session.arguments import check_amp
from yolo_rocm.session.current_run import current
from yolo_rocm.session.run import run_method
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks import probes

from ..sick_vendor import MESSAGE, sick_vendor
from .test_training import OURS, QUICK, an_image

pytestmark = pytest.mark.once
ONE = {**QUICK, "epochs": 1, "val": False}


def test_callbacks_alone_take_a_training_over(yolo, made_data, tmp_path, log):
    if not trainer_announces_itself_early():
        pytest.skip("the model is built, on the CPU that is sick here, before the first event")
    preset = {"base": "cpu", **OURS, "train": {"batch": 2, "amp": False}}
    functions = yolo_rocm.callbacks(preset)
    for event, function in functions.items():
        yolo.add_callback(event, function)
    arguments = {k: v for k, v in ONE.items() if k != "batch"}
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), **arguments)
        assert seam.active_devices() == ()
        with pytest.raises(RuntimeError, match=MESSAGE):
            yolo.model(torch.zeros(1, 3, 64, 64))
    assert yolo.trainer.batch_size == 2  # Ultralytics' default of 16 counts as not given
    assert "batch=2 from preset" in log.text
    assert (yolo.trainer.save_dir / "rocm.json").exists()


def test_callbacks_alone_cover_prediction(yolo, made_data):
    for event, function in yolo_rocm.callbacks({"base": "cpu", **OURS}).items():
        yolo.add_callback(event, function)
    with sick_vendor():
        assert len(yolo.predict([an_image(made_data())] * 2, imgsz=64, device="cpu", verbose=False)) == 2
        assert seam.active_devices() == ()


def test_each_trainer_with_the_same_callbacks_has_a_run_of_its_own(monkeypatch, tmp_path):
    """Two of them are made before the first one trains."""

    class Followed:
        is_open, folder = True, tmp_path

        def __init__(self, run, trainer):
            self.trainer, self.hold = trainer, lambda undo: None
            commands.append(run.command(trainer.args.device).train(tmp_path / "last.pt"))

        def is_of(self, trainer):
            return self.is_open and trainer is self.trainer

        def close(self):
            self.is_open = False

    def train(trainer):
        this = current()
        seen.append((this.device, [training.trainer for training in this.open_trainings] == [trainer]))

    monkeypatch.setattr("yolo_rocm.session.training.Training", Followed)
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.trainers.callbacks_fire_in_train", lambda: False)
    begins, seen, made, commands = yolo_rocm.callbacks("cpu")["on_pretrain_routine_start"], [], [], []
    for device in ("cpu", "mps"):
        made.append(SimpleNamespace(args=SimpleNamespace(device=device, imgsz=640, resume=True), get_model=None))
        made[-1].get_model, made[-1].train = (lambda: None), partial(train, made[-1])
        begins(made[-1])
    for trainer in made:
        assert begins.run.training_of(trainer) is not None
        trainer.train()
        assert begins.run.training_of(trainer) is None
    assert seen == [("cpu", True), ("mps", True)]
    assert ["device=cpu" in command for command in commands] == [True, False]


def test_a_run_hears_of_each_event_once_also_by_callbacks_of_its_own():
    """As of a YOLO object with callbacks alone inside `everywhere`; those of another session are heard behind it."""
    functions, other = yolo_rocm.callbacks("cpu"), Session("cpu", None)
    yolo = SimpleNamespace(callbacks={event: [function] for event, function in functions.items()}, overrides={})
    for session, heard in ((functions["teardown"].run.session, [1]), (other, [0, 1])):
        seen = []
        run_method(session, yolo, "train", lambda s=seen, **_: s.append(yolo.callbacks["teardown"]), (), {"epochs": 1})
        assert [int(each is functions["teardown"]) for each in seen[0]] == heard
        assert yolo.callbacks["teardown"] == [functions["teardown"]]


@pytest.mark.parametrize(
    ("family", "amp", "device", "refused"),
    [("rdna2", "bf16", "cuda:0", True), ("rdna3", "bf16", "cuda:0", False), ("rdna2", True, "cuda:0", False)],
)
def test_bf16_is_refused_on_a_card_that_has_none(family, amp, device, refused, monkeypatch):
    """Ultralytics asks torch, which says of every AMD GPU that it has it."""
    trainer = SimpleNamespace(args=SimpleNamespace(device="", imgsz=640, resume=True, amp=amp), device=device)
    function = yolo_rocm.callbacks("cpu")["on_pretrain_routine_start"]
    session = function.run.session
    gpu = Gpu("amd", "gfx1032", 8.0, "AMD Radeon RX 6600", family)
    monkeypatch.setattr(session, "machine", Machine(system="linux", overlays=("linux",), gpus=(gpu,), build="hip"))
    if not refused:
        check_amp(session.machine, trainer)
        return
    with pytest.raises(ConfigError, match=rf"RX 6600 .* has no bf16 arithmetic \({family}\).*amp=True \(fp16\)"):
        function(trainer)


def trainer_announces_itself_early() -> bool:
    return not probes.missing(probes.EARLY_CALLBACKS)
