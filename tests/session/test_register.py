"""register() among other people's code: other models, callbacks, threads, copies, loaders, torch.compile."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import threading

import pytest
import torch

import yolo_rocm
from yolo_rocm.conv import seam
from yolo_rocm.engines import dispatcher
from yolo_rocm.session.events import Callback

from ..sick_vendor import MESSAGE, sick_vendor
from ..small_model import small_model
from .test_training import OURS, an_image

pytestmark = pytest.mark.once

ATEN = {"conv": {"engine": "aten", "devices": ["cpu"]}}
SMALL = {"imgsz": 32, "device": "cpu", "verbose": False}
ONE = {**SMALL, "epochs": 1, "batch": 4, "plots": False, "seed": 0, "workers": 0}


@pytest.fixture
def make():
    """Return a function that builds a small YOLO object and registers it where it is given sections."""
    from ultralytics import YOLO

    def build(rocm=None):
        yolo = YOLO(small_model())
        return yolo if rocm is None else (yolo, yolo_rocm.register(yolo, "cpu", rocm))

    return build


@pytest.fixture
def yolo(make):
    return make()


@pytest.fixture
def image(made_data) -> str:
    return an_image(made_data())


def ours_in(yolo) -> list[str]:
    """Return the events for which a session's function is among an object's callbacks."""
    return [event for event, functions in yolo.callbacks.items() for f in functions if isinstance(f, Callback)]


def engines(handle) -> set[str]:
    return {served.plan.engine for served in handle.report.served.values()}


def traced(yolo, seen, monkeypatch, register) -> None:
    """Let a user's functions and an integration's note what is called; register between two of the user's."""
    from ultralytics.utils import SETTINGS
    from ultralytics.utils.callbacks import tensorboard

    def note(who, event):
        return lambda _: seen.append((event, who))

    for event in yolo.callbacks:
        yolo.add_callback(event, note("first", event))
    register()
    for event in yolo.callbacks:
        yolo.add_callback(event, note("second", event))
    integration = {event: note("integration", event) for event in yolo.callbacks}
    monkeypatch.setattr(tensorboard, "callbacks", integration)
    monkeypatch.setitem(SETTINGS, "tensorboard", True)


def test_functions_of_others_run_in_the_same_order_and_number(make, made_data, image, tmp_path, monkeypatch):
    """Beside that: runs inside a run, of the same object and of one under another preset, disturb nothing."""
    stock, seen_stock, seen = make(), [], []
    traced(stock, seen_stock, monkeypatch, lambda: None)
    arguments = {**ONE, "data": str(made_data()), "project": str(tmp_path)}
    stock.train(name="stock", **arguments)

    yolo, (other, other_handle) = make(), make(ATEN)
    handles = []
    traced(yolo, seen, monkeypatch, lambda: handles.append(yolo_rocm.register(yolo, "cpu", OURS)))

    def runs_inside(trainer):
        noted = len(seen)
        other.predict(image, **SMALL)
        yolo.predict(image, **SMALL)
        del seen[noted:]
        assert seam._seam.serving["cpu"].report is handles[0].report

    yolo.add_callback("on_train_epoch_end", runs_inside)
    yolo.train(name="ours", **arguments)
    assert ("on_train_start", "integration") in seen
    assert seen == seen_stock
    assert engines(other_handle) == {"aten"}
    report = json.loads((tmp_path / "ours" / "rocm.json").read_text())["convolutions"]
    assert set(report["engines"]) == {"gemm"}
    assert report["layers"]
    handles[0].remove()
    assert not ours_in(yolo)
    for event in ("on_train_start", "on_predict_start", "teardown"):
        assert len(yolo.callbacks[event]) >= 3  # Ultralytics' own and both of the user's


def test_remove_inside_a_training_lets_it_end_as_it_began(make, made_data, image, tmp_path):
    yolo, handle = make(OURS)
    after = []

    yolo.add_callback("on_train_batch_start", lambda _: handle.remove())
    yolo.add_callback("on_train_batch_start", after.append)
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), val=False, **ONE)
        assert len(after) == 2  # batches; nobody was skipped while the list changed
        assert seam.active_devices() == ()
        with pytest.raises(RuntimeError, match=MESSAGE):
            yolo.predict(image, **SMALL)
    assert not ours_in(yolo)
    assert not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("way", [copy.deepcopy, lambda yolo: pickle.loads(pickle.dumps(yolo))], ids=["copy", "pickle"])
def test_a_copy_is_registered_like_the_object_and_apart_from_it(make, image, way):
    yolo, handle = make(OURS)
    twin = way(yolo)
    handle.remove()
    with sick_vendor():
        assert len(twin.predict(image, **SMALL)) == 1
        with pytest.raises(RuntimeError, match=MESSAGE):
            yolo.predict(image, **SMALL)
        assert handle.report is None
        assert twin.predictor is not yolo.predictor
        yolo_rocm.register(twin, "cpu", OURS).remove()  # finds the one it came with, and replaces it
        assert "predict" not in vars(twin)
        with pytest.raises(RuntimeError, match=MESSAGE):
            twin.predict(image, **SMALL)


def test_a_training_in_a_thread_next_to_an_object_that_is_not_registered(make, made_data, image, tmp_path):
    (yolo, handle), plain = make(OURS), make()
    begun, seen, errors = threading.Event(), [], []
    yolo.add_callback("on_train_epoch_start", lambda _: begun.set())
    yolo.add_callback("on_train_batch_end", lambda trainer: seen.append(type(trainer.train_loader).__name__))

    def work():
        try:
            yolo.train(data=str(made_data()), project=str(tmp_path), val=False, **ONE)
        except BaseException as error:  # what a thread raises is lost
            errors.append(error)

    thread = threading.Thread(target=work)
    expected = plain.predict(image, **SMALL, conf=0.0)[0].boxes.data
    thread.start()
    assert begun.wait(500)
    while thread.is_alive():
        torch.testing.assert_close(
            plain.predict(image, **SMALL, conf=0.0)[0].boxes.data, expected, rtol=1e-3, atol=1e-3
        )
    thread.join()
    assert not errors
    assert seen == ["PolicyDataLoader"] * 2
    assert engines(handle) == {"gemm"}
    assert seam.active_devices() == ()
    yolo.predict(image, **SMALL)  # on older torch kernels stay until the thread that called them ends a patch itself


def test_many_runs_put_kernels_into_torch_once(make, image, monkeypatch):
    """What torch keeps of each registration pins the heap between the large blocks of a prediction."""
    made, library = [], torch.library.Library
    (yolo, handle), (other, second) = make(OURS), make(ATEN)
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    expected, retired = torch.conv2d(x, weight), len(dispatcher._retired)
    yolo.predict(image, **SMALL)
    assert len(seam._seam.libraries) == 1
    monkeypatch.setattr(torch.library, "Library", lambda *args: made.append(library(*args)) or made[-1])
    for _ in range(3):
        yolo.predict(image, **SMALL)
        assert seam.active_devices() == ()
        assert torch.equal(torch.conv2d(x, weight), expected)  # torch's own
    other.predict(image, **SMALL)
    handle.remove()
    yolo.predict(image, **SMALL)
    assert seam._seam.libraries  # for the other one
    assert made == []
    assert len(dispatcher._retired) == retired
    second.remove()
    if dispatcher.HANDS_OUT:  # older torch lets go when no other thread lives that has called them
        assert seam._seam.libraries == {}


def test_train_on_a_registered_object_puts_its_registration_back(yolo, made_data, tmp_path):
    handle = yolo_rocm.register(yolo, "cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}})
    with sick_vendor():
        yolo_rocm.train(yolo, data=made_data(), preset="cpu", rocm=OURS, project=str(tmp_path), val=False, **ONE)
        with pytest.raises(RuntimeError, match=MESSAGE):  # aten again
            yolo.predict(an_image(made_data()), imgsz=64, device="cpu", verbose=False)
    handle.remove()
    assert "train" not in vars(yolo)


def test_variables_that_must_precede_the_runtime_are_there_while_one_of_the_objects_wants_them(make, monkeypatch):
    monkeypatch.delenv("HSA_X", raising=False)
    rocm = {"env": {"HSA_X": {"value": 1}, "MIOPEN_X": {"value": 1}, "MALLOC_X": {"value": 1}}}
    (yolo, handle), (other, _) = make(rocm), make(rocm)
    assert (os.environ.get("HSA_X"), "MIOPEN_X" in os.environ, "MALLOC_X" in os.environ) == ("1", False, False)
    again = yolo_rocm.register(yolo, "cpu", rocm)
    handle.remove()
    again.remove()
    assert os.environ.get("HSA_X") == "1"
    del other, _  # forgotten, not removed
    gc.collect()
    assert "HSA_X" not in os.environ


def test_somebody_elses_wrapper_outlives_ours_and_reset_objects_stay_registered(make, image):
    yolo, handle = make(OURS)
    yolo.reset_callbacks()
    yolo.reset_weights()
    inner, calls = yolo.predict, []

    def theirs(*args, **kwargs):
        calls.append(args)
        return inner(*args, **kwargs)

    yolo.predict = theirs
    yolo.predict(image, **SMALL)
    assert engines(handle) == {"gemm"}
    handle.remove()
    assert yolo.predict is theirs
    with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
        yolo.predict(image, **SMALL)  # ours only passed the call on
    assert len(calls) == 2
