"""The one way through a run: what it begins with, how it ends, what it leaves behind."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import yolo_rocm
from yolo_rocm.api import everywhere
from yolo_rocm.conv import seam
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.errors import ConfigError, EngineError, PresetError
from yolo_rocm.session import run as run_module
from yolo_rocm.session import sigterm
from yolo_rocm.session.current_run import current
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks import probes

from ..sick_vendor import sick_vendor
from .test_training import OURS, QUICK, an_image

pytestmark = pytest.mark.once
ONE = {**QUICK, "epochs": 1, "val": False}


def trainer_announces_itself_early() -> bool:
    return not probes.missing(probes.EARLY_CALLBACKS)


def listen(yolo, functions) -> None:
    for event, function in functions.items():
        yolo.add_callback(event, function)


@pytest.mark.parametrize("way", ["train", "register", "callbacks", "process-wide"])
def test_every_way_in_activates_once_ends_in_order_once_and_explains_once(yolo, made_data, tmp_path, monkeypatch, way):
    if way == "callbacks" and not trainer_announces_itself_early():
        pytest.skip("callbacks alone hear of no error in this Ultralytics; register does not need them")
    counts, trainings = Counter(), []

    def counted(target, name):
        original = getattr(target, name)

        def call(*args, **kwargs):
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(target, name, call)

    def fail(trainer):
        trainings.extend(current().trainings)
        counts.update(begun=1)
        raise RuntimeError("HIP error: invalid device function")

    counted(Session, "_switch_on")
    counted(sigterm, "orderly_end")
    counted(run_module, "say_diagnosis")
    arguments = {"data": str(made_data()), "project": str(tmp_path), **ONE}
    if way == "register":
        yolo_rocm.register(yolo, "cpu", OURS)
    if way == "callbacks":
        listen(yolo, yolo_rocm.callbacks("cpu", OURS))
    yolo.add_callback("on_train_batch_start", fail)
    with pytest.raises(RuntimeError, match="invalid device function"):
        if way == "train":
            yolo_rocm.train(yolo, preset="cpu", rocm=OURS, **arguments)
        elif way == "process-wide":
            with everywhere("cpu", OURS):
                yolo.train(**arguments)
        else:
            yolo.train(**arguments)
    # Some releases build the model between the making of the trainer and its training: callbacks alone switch twice.
    assert counts.pop("_switch_on") in ((1, 2) if way == "callbacks" else (1,))
    assert counts == {"begun": 1, "orderly_end": 1, "say_diagnosis": 1}
    assert [training.is_open for training in trainings] == [False]
    assert current() is None
    assert seam.active_devices() == ()


def test_a_stream_is_under_the_preset_from_its_first_item_to_its_last(yolo, made_data, monkeypatch):
    """Switching for every image took longer than the convolutions of a small one."""
    handle, switched = yolo_rocm.register(yolo, "cpu", OURS), []
    switch_on = Session._switch_on
    monkeypatch.setattr(Session, "_switch_on", lambda self, *given: switched.append(1) or switch_on(self, *given))

    def stream():
        return yolo.predict([an_image(made_data())] * 3, stream=True, imgsz=64, device="cpu", verbose=False)

    with sick_vendor():
        results = stream()
        assert seam.active_devices() == ()
        switched.clear()
        for _ in results:
            assert seam.active_devices() == ("cpu",)
            assert current() is None  # what the caller does here is no part of the run
        assert len(switched) == 1
        assert seam.active_devices() == ()
        closed = stream()
        next(closed)
        closed.close()
        assert seam.active_devices() == ()
        forgotten = stream()
        next(forgotten)
        del forgotten
        assert seam.active_devices() == ()
    assert handle.report.served


def test_a_run_between_two_items_of_a_stream_has_its_own_arguments():
    from ultralytics.data import build

    session = Session("cpu", None)
    with run_module.run(session, {"device": "cpu", "workers": 0}) as this:
        pass
    stream = this.stream(number for number in range(3))
    assert next(stream) == 0
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    with run_module.run(session, {"device": "cpu", "workers": 1}) as other:
        assert build.InfiniteDataLoader(data, batch_size=2, num_workers=1).policy.workers == 1
        with run_module.run(session, {"imgsz": 64}) as inner:  # part of the other, which keeps what it was given
            assert (current(), inner.device, inner.workers) == (inner, "cpu", 1)
        assert (current(), other.workers) == (other, 1)
        assert inner.trainings is other.trainings
    assert next(stream) == 1
    assert build.InfiniteDataLoader(data, batch_size=2, num_workers=1).policy.workers == 0
    stream.close()
    assert not session.is_active


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"preset": "rx5600"}, PresetError, "did you mean 'rx5600xt'"),
        ({"rocm": {"conv": {"engin": "gemm"}}}, PresetError, "did you mean 'engine'"),
        ({"rocm": ["conv"]}, PresetError, "must be a mapping"),
        ({"data": "no/such/data.yaml"}, ConfigError, "does not exist"),
        ({"epoch": 3}, ConfigError, "did you mean 'epochs'"),
    ],
    ids=str,
)
def test_wrong_input_ends_in_one_error_and_no_files(made_data, tmp_path, arguments, error, text):
    given = {"data": str(made_data()), "preset": "cpu", "rocm": OURS, "project": str(tmp_path / "runs"), **QUICK}
    with pytest.raises(error, match=text):
        yolo_rocm.train("yolov8n.yaml", **{**given, **arguments})
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def refusing(yolo, monkeypatch):
    """A registered object whose training is refused in its first batch."""

    def refuse(self, problem):
        return ["made to refuse"]

    for algorithm in ALGORITHMS:
        monkeypatch.setattr(type(algorithm), "not_supported_reasons", refuse)
    yolo_rocm.register(yolo, "cpu", OURS)
    return yolo


def below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("way", ["save_dir", "exist_ok"])
@pytest.mark.parametrize("files", [("notes.txt", "weights/last.pt"), ()], ids=str)
def test_a_refused_run_removes_nothing_that_was_there_before(refusing, made_data, tmp_path, way, files):
    folder = tmp_path / "runs" / "kept"
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("of the user")
    before = below(folder)
    where = {
        "save_dir": {"save_dir": str(folder)},
        "exist_ok": {"project": str(tmp_path / "runs"), "name": "kept", "exist_ok": True},
    }
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), **where[way], **ONE)
    assert before.items() <= below(folder).items()
    assert folder.is_dir()
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), save_dir=str(tmp_path / "made"), **ONE)
    assert not (tmp_path / "made").exists()
