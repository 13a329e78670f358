"""`register(yolo, engine=...)`: an object predicts by another runtime, with the weights it has in memory."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm.errors import ConfigError
from yolo_rocm.inference import chooser, engine_runs

from .test_predictor import assert_same

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("cache")]
QUICK = {"imgsz": 64, "device": "cpu", "verbose": False, "conf": 0.05, "max_det": 20}
SQUARE = {**QUICK, "rect": False}  # as what has one shape sees an image


@pytest.fixture
def yolo(ready_weights):
    from ultralytics import YOLO

    return YOLO(ready_weights)


@pytest.fixture
def handle(yolo, surveys, lines):
    """The object registered; by the stand-in TorchScript is the fastest."""
    registered = yolo_rocm.register(yolo, "cpu", engine="auto")
    yield registered
    registered.remove()


def expected(yolo, source, **more):
    """Return what plain Ultralytics finds with the weights in memory."""
    from ultralytics import YOLO

    plain = YOLO("yolov8n.yaml")
    plain.model = copy.deepcopy(yolo.model)
    return plain.predict(source, **{**SQUARE, **more})


def made_from(choice) -> str:
    return (Path(choice.file).parent / "made_from.json").read_text()


@pytest.mark.deep  # test_survey has a real runtime, test_exporting a real export
@pytest.mark.parametrize(("engine", "package"), [("onnx", "onnxruntime"), ("ncnn", "ncnn")])
def test_a_detector_by_another_runtime(engine, package, weights, photos, lines, monkeypatch):
    """Nothing is a stand-in here: exported, measured, compared and predicted."""
    from ultralytics import YOLO

    pytest.importorskip(package)
    if engine == "ncnn":
        pytest.importorskip("pnnx")
    monkeypatch.setattr(chooser, "_SECONDS", 0.1)
    yolo = YOLO(weights)
    handle = yolo_rocm.register(yolo, "cpu", engine=engine)
    assert handle.choice is None
    square = engine == "ncnn"
    assert_same(yolo(str(photos), **QUICK), expected(yolo, str(photos), rect=not square))
    assert handle.choice.engine == engine
    assert handle.choice.file.exists()
    assert [line for line in lines if line.startswith(f"predicting with {engine}: {engine} cpu fp32, ")]
    streamed = list(yolo.predict(str(photos), stream=True, **QUICK))
    assert_same(streamed, expected(yolo, str(photos), rect=not square))
    handle.remove()
    assert "predict" not in vars(yolo)
    assert_same(yolo.predict(str(photos), **SQUARE), expected(yolo, str(photos)))


def test_weights_changed_in_memory_are_those_that_predict(yolo, handle, photos):
    image = str(photos / "0.png")
    before = yolo(image, **QUICK)
    assert handle.choice.engine == "torchscript"
    first = made_from(handle.choice)
    with torch.no_grad():
        for scores in yolo.model.model[-1].cv3:
            scores[-1].bias.add_(1)
    after = yolo(image, **QUICK)
    assert handle.choice.engine == "torchscript"
    assert made_from(handle.choice) != first
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
    late = []
    yolo.add_callback("on_predict_start", late.append)
    yolo.overrides["max_det"] = 1
    assert max(len(result) for result in yolo(source, **less)) == 1
    assert len(late) == 1
    yolo.clear_callback("on_predict_start")
    yolo(source, **less)
    assert len(late) == 1


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
    known = [set(frame.boxes.id.int().tolist()) for frame in frames if frame.boxes.id is not None]
    assert len(known) >= 2
    assert known[-1] & known[-2]
    assert all(
        len(frame.boxes.id) == len(set(frame.boxes.id.tolist())) for frame in frames if frame.boxes.id is not None
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"augment": True}, "augment= needs the layers"),
        ({"embed": [2]}, "embed= needs the layers"),
        ({"source": torch.zeros(1, 3, 64, 64)}, "a tensor has the size it has"),
        ({"hook": True}, "there are hooks on the model's layers"),
    ],
)
def test_what_an_exported_model_cannot_do_is_computed_by_torch_with_one_line(yolo, handle, photos, lines, more, told):
    called = []
    hook = yolo.model.model[0].register_forward_hook(lambda *_: called.append(1)) if more.get("hook") else None
    arguments = {"source": str(photos / "0.png"), **QUICK, **{k: v for k, v in more.items() if k != "hook"}}
    for _ in range(2):
        assert len(yolo.predict(**arguments)) == 1
    assert handle.choice.engine == "torch"
    if hook is not None:
        assert called
        hook.remove()
    assert len([line for line in lines if told in line]) == 1
    yolo(str(photos / "0.png"), **QUICK)
    assert handle.choice.engine == "torchscript"


@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_is_computed_by_torch_with_one_line(yolo, handle, photos, lines, stream):
    export = chooser.exported(Path(yolo.ckpt_path), "torchscript", {"imgsz": 64})
    export.file.write_bytes(b"no model")
    for _ in range(2):
        assert_same(yolo(str(photos), stream=stream, **SQUARE), expected(yolo, str(photos)))
    assert len([line for line in lines if line.startswith("torchscript cpu fp32 has failed")]) == 1
    assert handle.choice.engine == "torch"
    assert "has failed" in handle.choice.why


def test_a_stream_that_fails_on_its_way_ends_with_its_error_and_torch_is_next(yolo, handle, photos, lines, cache):
    """In this process: nobody knows whether it was the engine, so that what was measured is kept."""
    count = []

    def break_down(predictor):
        count.append(1)
        if len(count) == 2:
            raise ZeroDivisionError("the runtime")

    yolo.add_callback("on_predict_batch_start", break_down)
    stream = yolo(str(photos), stream=True, **QUICK)
    assert next(stream).path.endswith("0.png")
    with pytest.raises(ZeroDivisionError):
        next(stream)
    assert len(yolo(str(photos), **QUICK)) == 4
    assert handle.choice.engine == "torch"
    assert json.loads(cache.read_text()) != {}


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_without_memory_is_let_go_of_before_torch_is_asked(yolo, handle, photos, monkeypatch, stream):
    """Which may have none either, but has it in the next call."""
    calls, original = [], engine_runs.run_method

    def scarce(session, each, *words):
        by_torch = each is yolo
        calls.append("torch" if by_torch else "engine")
        raise RuntimeError(f"HIP out of memory. Tried to allocate {1 if by_torch else 2}.00 GiB")

    with monkeypatch.context() as full:
        full.setattr(engine_runs, "run_method", scarce)
        with pytest.raises(RuntimeError, match=r"1\.00 GiB"):
            list(yolo(str(photos), stream=stream, **QUICK))
    assert engine_runs.run_method is original
    assert len(list(yolo(str(photos), stream=stream, **QUICK))) == 4
    assert calls == ["engine", "torch"]
    assert handle.choice.engine == "torch"


@pytest.mark.parametrize("stream", [False, True])
def test_what_torch_cannot_do_either_is_no_fault_of_the_engine(yolo, handle, photos, tmp_path, lines, cache, stream):
    """A source without images, a callback of the user's: what was measured stays, here and on disk."""
    (tmp_path / "empty").mkdir()

    def mistaken(predictor):
        raise KeyError("the user's own")

    yolo(str(photos), **QUICK)
    remembered, loaded = cache.read_text(), [*handle._engine_runs._loaded.values()]
    with pytest.raises(FileNotFoundError):
        list(yolo(str(tmp_path / "empty"), stream=stream, **QUICK))
    yolo.add_callback("on_predict_start", mistaken)
    with pytest.raises(KeyError, match="the user's own"):
        list(yolo(str(photos), stream=stream, **QUICK))
    yolo.callbacks["on_predict_start"].clear()
    assert len(list(yolo(str(photos), stream=stream, **QUICK))) == 4
    assert (handle.choice.engine, cache.read_text()) == ("torchscript", remembered)
    assert [*handle._engine_runs._loaded.values()] == loaded  # it holds the tracks of `track(persist=True)` too
    assert not [line for line in lines if "has failed" in line]


def test_a_stream_of_torch_is_computed_under_the_preset(weights, photos):
    """Without engine, and with engine="torch"."""
    from ultralytics import YOLO

    gemm = {"conv": {"engine": "gemm", "devices": ["cpu"]}}
    for engine in (None, "torch"):
        yolo = YOLO(weights)
        handle = yolo_rocm.register(yolo, "cpu", gemm, engine=engine)
        assert_same(yolo(str(photos), stream=True, **SQUARE), expected(yolo, str(photos)))
        assert {served.plan.engine for served in handle.report.served.values()} == {"gemm"}
        assert (handle.choice is None) is (engine is None)
        handle.remove()


def test_a_prediction_inside_of_one_is_part_of_it(yolo, handle, photos):
    found = []

    def inside(predictor):
        if not found:
            found.append(None)
            found.append(yolo(str(photos / "1.png"), **SQUARE))

    yolo.add_callback("on_predict_batch_end", inside)
    assert len(yolo(str(photos), **QUICK)) == 4
    assert_same(found[1], expected(yolo, str(photos / "1.png")))
    assert handle.choice.engine == "torchscript"


@pytest.mark.parametrize("way", [copy.deepcopy, lambda yolo: pickle.loads(pickle.dumps(yolo))], ids=["copy", "pickle"])
def test_a_copy_predicts_by_the_engine_too(yolo, handle, photos, way):
    yolo(str(photos / "0.png"), **QUICK)
    twin = way(yolo)
    handle.remove()
    assert_same(twin(str(photos / "0.png"), **QUICK), expected(yolo, str(photos / "0.png")))
    registration = yolo_rocm.register(twin, "cpu")
    assert registration.choice is None
    registration.remove()
    assert "predict" not in vars(twin)


def test_four_engines_are_kept_in_memory(yolo, handle, photos, monkeypatch):
    made = chooser.exported(Path(yolo.ckpt_path), "torchscript", {"imgsz": 64})
    monkeypatch.setattr(chooser, "exported", lambda *args: made)
    loads = []

    class Counted(engine_runs.ExportedModel):
        def __init__(self, file, task):
            loads.append(file)
            super().__init__(file, task)

    monkeypatch.setattr(engine_runs, "ExportedModel", Counted)
    for batch in (1, 2, 3, 4, 5, 5, 2, 1):
        yolo(str(photos / "0.png"), batch=batch, **QUICK)
    assert len(loads) == 6  # the fifth has put out the first, and only that is loaded again
    assert len(handle._engine_runs._loaded) == 4


def test_mistakes(yolo):
    with pytest.raises(ConfigError, match="unknown engine 'tensorrt'"):
        yolo_rocm.register(yolo, "cpu", engine="tensorrt")
    assert "predict" not in vars(yolo)
