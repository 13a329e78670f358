"""`register(yolo, engine=...)`: an object predicts by another runtime, with the weights it has in memory."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.inference.exported import exported

from .conftest import QUICK, assert_same

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("cache")]
SQUARE = {**QUICK, "rect": False}  # as what has one shape sees an image


@pytest.fixture
def yolo(weights):
    from ultralytics import YOLO

    return YOLO(weights)


@pytest.fixture
def handle(yolo, surveys):
    """The object registered; by the stand-in TorchScript is the fastest."""
    registered = yolo_rocm.register(yolo, "cpu", engine="auto")
    yield registered
    registered.remove()


def expected(yolo, source, **more):
    """Return what plain Ultralytics finds with the weights in memory."""
    from ultralytics import YOLO

    plain = YOLO(yolo.ckpt_path)
    plain.model = copy.deepcopy(yolo.model)
    return plain.predict(source, **{**SQUARE, **more})


def test_weights_changed_in_memory_are_those_that_predict(yolo, handle, photos):
    image = str(photos / "0.png")
    before = yolo(image, **QUICK)
    first = (handle.choice.file.parent / "made_from.json").read_text()
    with torch.no_grad():
        for scores in yolo.model.model[-1].cv3:
            scores[-1].bias.add_(1)
    after = yolo(image, **QUICK)
    assert handle.choice.engine == "torchscript"
    assert (handle.choice.file.parent / "made_from.json").read_text() != first
    assert_same(after, expected(yolo, image))
    assert not torch.equal(after[0].boxes.conf, before[0].boxes.conf)


def test_callbacks_and_arguments_are_those_of_the_object(yolo, handle, photos):
    from ultralytics import YOLO

    plain, seen = YOLO(yolo.ckpt_path), {"stock": [], "ours": []}
    for name, each in (("stock", plain), ("ours", yolo)):
        for event in ("on_predict_start", "on_predict_batch_start", "on_predict_postprocess_end", "on_predict_end"):
            each.add_callback(event, lambda predictor, to=seen[name], event=event: to.append(event))
        each.overrides |= {"max_det": 3, "classes": [0, 1, 2]}
    source, less = str(photos), {name: value for name, value in SQUARE.items() if name != "max_det"}
    assert_same(yolo(source, **less), plain(source, **less))
    assert handle.choice.engine == "torchscript"
    assert seen["ours"] == seen["stock"] != []
    yolo.overrides["max_det"] = 1
    yolo.clear_callback("on_predict_start")
    seen["ours"].clear()
    assert max(len(result) for result in yolo(source, **less)) == 1
    assert "on_predict_start" not in seen["ours"] != []


def test_tracking(yolo, handle, monkeypatch):
    """Tracks go on from frame to frame with `persist`, and torch's own trackers have no part in them."""
    pytest.importorskip("lap")
    from ultralytics.trackers import BYTETracker

    update, updates = BYTETracker.update, []
    monkeypatch.setattr(BYTETracker, "update", lambda *args, **more: (updates.append(1), update(*args, **more))[1])
    draw = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    arguments = {**QUICK, "conf": 0.01, "tracker": "bytetrack.yaml"}
    yolo.track(draw, persist=True, augment=True, **arguments)
    assert handle.choice.engine == "torch"
    updates.clear()
    frames = [yolo.track(np.roll(draw, shift, axis=1), persist=True, **arguments)[0] for shift in range(3)]
    assert handle.choice.engine == "torchscript"
    assert len(updates) == 3  # once for each frame
    tracks = [set(frame.boxes.id.int().tolist()) for frame in frames if frame.boxes.id is not None]
    assert tracks[-1] & tracks[-2]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"augment": True}, "augment= needs the layers"),
        ({"hook": True}, "there are hooks on the model's layers"),
    ],
)
def test_what_an_exported_model_cannot_do_is_computed_by_torch_with_one_line(yolo, handle, photos, events, more, words):
    calls = []
    hook = yolo.model.model[0].register_forward_hook(lambda *_: calls.append(1)) if more.pop("hook", None) else None
    for _ in range(2):
        assert len(yolo.predict(**{"source": str(photos / "0.png"), **QUICK, **more})) == 1
    assert handle.choice.engine == "torch"
    if hook is not None:
        assert calls
        hook.remove()
    (line,) = events.of("predict.torch")
    assert words in line
    yolo(str(photos / "0.png"), **QUICK)
    assert handle.choice.engine == "torchscript"


@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_is_computed_by_torch_with_one_line(yolo, handle, photos, events, stream):
    exported(Path(yolo.ckpt_path), "torchscript", {"imgsz": 64}).write_bytes(b"no model")
    for _ in range(2):
        assert_same(yolo(str(photos), stream=stream, **SQUARE), expected(yolo, str(photos)))
    assert events.ids.count("predict.failed") == 1
    assert (handle.choice.engine, "has failed" in handle.choice.why) == ("torch", True)


@pytest.mark.parametrize("stream", [False, True])
def test_what_torch_cannot_do_either_is_no_fault_of_the_engine(yolo, handle, photos, events, cache, stream):
    """A callback of the user's: what was measured stays, here and on disk."""

    def mistaken(predictor):
        raise KeyError("the user's own")

    yolo(str(photos), **QUICK)
    remembered = cache.read_text()
    yolo.add_callback("on_predict_start", mistaken)
    with pytest.raises(KeyError, match="the user's own"):
        list(yolo(str(photos), stream=stream, **QUICK))
    yolo.callbacks["on_predict_start"].clear()
    assert len(list(yolo(str(photos), stream=stream, **QUICK))) == 3
    assert (handle.choice.engine, cache.read_text()) == ("torchscript", remembered)
    assert "predict.failed" not in events.ids


def test_a_prediction_inside_of_one_is_part_of_it(yolo, handle, photos, surveys):
    """With an image size of its own, for which nothing is measured then."""
    inner = []

    def inside(predictor):
        if not inner:
            inner.append(None)
            inner.extend(yolo(str(photos / "1.png"), **{**SQUARE, "imgsz": 96}))

    yolo.add_callback("on_predict_batch_end", inside)
    assert len(yolo(str(photos), **QUICK)) == 3
    assert (len(inner), len(surveys), handle.choice.engine) == (2, 1, "torchscript")


def test_a_source_that_is_not_there_is_for_ultralytics_to_refuse(yolo, handle, photos, tmp_path):
    with pytest.raises(FileNotFoundError):
        yolo(str(tmp_path / "nowhere.jpg"), **QUICK)
    yolo(str(photos), **QUICK)
    assert handle.choice.engine == "torchscript"


def test_a_copy_predicts_by_the_engine_too(yolo, handle, photos):
    yolo(str(photos / "0.png"), **QUICK)
    twin = pickle.loads(pickle.dumps(yolo))
    handle.remove()
    assert_same(twin(str(photos / "0.png"), **QUICK), expected(yolo, str(photos / "0.png")))
    yolo_rocm.register(twin, "cpu").remove()
    assert "predict" not in vars(twin)
