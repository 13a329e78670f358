"""Sessions: register, callbacks, train; what they change and that they undo it."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import weakref
from pathlib import Path

import pytest
import torch

import yolo_rocm
from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.conv import seam
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.errors import ConfigError, EngineError, PresetError
from yolo_rocm.session.session import Session

from ..sick_vendor import MESSAGE, sick_vendor
from .test_training import OURS, QUICK, an_image

ULTRALYTICS = "ultralytics"
ONE = {**QUICK, "epochs": 1, "val": False}


@pytest.fixture
def yolo():
    from ultralytics import YOLO

    return YOLO("yolov8n.yaml")


@pytest.fixture
def log(caplog):
    """Capture Ultralytics' logger, which does not propagate."""
    logger = logging.getLogger(ULTRALYTICS)
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def test_vendor_off_holds_for_the_whole_run_and_is_restored(yolo, made_data, tmp_path):
    """MIOpen serves BatchNorm too, so the switch is off in every part of a run, not only in convolutions."""
    seen = []
    rocm = {"conv": {"engine": "gemm", "devices": ["cpu", "cuda"], "vendor": "off"}}
    yolo_rocm.register(yolo, "cpu", rocm)
    for event in ("on_train_batch_start", "on_train_batch_end", "on_val_batch_end", "on_train_end"):
        yolo.add_callback(event, lambda _: seen.append(torch.backends.cudnn.enabled))
    yolo.train(data=str(made_data()), project=str(tmp_path), **{**QUICK, "epochs": 1})
    assert len(seen) > 4
    assert not any(seen)
    assert torch.backends.cudnn.enabled


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
    assert functions["teardown"].__self__.device == "cpu"  # heard from the trainer; the call is not ours
    assert (yolo.trainer.save_dir / "rocm.json").exists()


def test_callbacks_alone_cover_prediction(yolo, made_data):
    for event, function in yolo_rocm.callbacks({"base": "cpu", **OURS}).items():
        yolo.add_callback(event, function)
    with sick_vendor():
        assert len(yolo.predict([an_image(made_data())] * 2, imgsz=64, device="cpu", verbose=False)) == 2
        assert seam.active_devices() == ()


def test_callbacks_travel_by_pickle():
    functions = yolo_rocm.callbacks("cpu", OURS)
    copies = pickle.loads(pickle.dumps(functions))
    assert set(copies) == set(functions)
    assert copies["teardown"].__self__.settings.preset == functions["teardown"].__self__.settings.preset


def test_a_training_that_fails_to_start_leaves_nothing_patched(yolo, tmp_path):
    """The trainer announces itself before it looks at the data, and runs no teardown when that fails."""
    for event, function in yolo_rocm.callbacks("cpu", OURS).items():
        yolo.add_callback(event, function)
    with pytest.raises(Exception, match="nowhere"):
        yolo.train(data=str(tmp_path / "nowhere.yaml"), project=str(tmp_path), **ONE)
    assert seam.active_devices() == ()


def trainer_announces_itself_early() -> bool:
    return not hooks.missing(hooks.EARLY_CALLBACKS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("way", ["register", "callbacks"])
def test_an_error_in_a_batch_restores_everything(yolo, made_data, tmp_path, way, error):
    def fail(trainer) -> None:
        assert seam.active_devices() == ("cpu",)
        raise error("stop")

    if way == "register":
        yolo_rocm.register(yolo, "cpu", OURS)
    elif not trainer_announces_itself_early():
        pytest.skip("callbacks alone hear of no error in this Ultralytics; register does not need them")
    else:
        for event, function in yolo_rocm.callbacks("cpu", OURS).items():
            yolo.add_callback(event, function)
    yolo.add_callback("on_train_batch_start", fail)
    with pytest.raises(error, match="stop"):
        yolo.train(data=str(made_data()), project=str(tmp_path), **ONE)
    assert seam.active_devices() == ()
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_remove_gives_the_object_back(yolo):
    before = {event: list(functions) for event, functions in yolo.callbacks.items()}
    handle = yolo_rocm.register(yolo, "cpu", OURS)
    assert "train" in vars(yolo)
    handle.remove()
    handle.remove()
    assert "train" not in vars(yolo)
    assert {event: list(functions) for event, functions in yolo.callbacks.items()} == before


def test_registering_again_replaces(yolo):
    first = yolo_rocm.register(yolo, "cpu", OURS)
    second = yolo_rocm.register(yolo, "generic")
    assert yolo.train.__wrapped__.__func__ is type(yolo).train
    first.remove()
    assert "train" in vars(yolo)
    second.remove()
    assert "train" not in vars(yolo)


def test_a_registered_object_can_be_forgotten():
    from ultralytics import YOLO

    yolo = YOLO("yolov8n.yaml")
    yolo_rocm.register(yolo, "cpu", OURS)
    gone = weakref.ref(yolo)
    del yolo
    import gc

    gc.collect()
    assert gone() is None


def test_train_on_a_registered_object_puts_its_registration_back(yolo, made_data, tmp_path):
    handle = yolo_rocm.register(yolo, "cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}})
    with sick_vendor():
        yolo_rocm.train(yolo, data=made_data(), preset="cpu", rocm=OURS, project=str(tmp_path), **ONE)
        with pytest.raises(RuntimeError, match=MESSAGE):  # aten again
            yolo.predict(an_image(made_data()), imgsz=64, device="cpu", verbose=False)
    handle.remove()
    assert "train" not in vars(yolo)


def test_a_stream_is_patched_while_it_computes_and_not_between(yolo, made_data):
    handle = yolo_rocm.register(yolo, "cpu", OURS)
    with sick_vendor():
        results = yolo.predict([an_image(made_data())] * 3, stream=True, imgsz=64, device="cpu", verbose=False)
        for count, _ in enumerate(results):
            assert seam.active_devices() == ()
            if count == 1:
                break
        results.close()
    assert handle.report.served


def test_the_kernels_of_a_stream_stay_until_it_ends_and_pass_calls_on_between(yolo, made_data):
    """Putting them in and out for every image took longer than the convolutions of a small one."""
    yolo_rocm.register(yolo, "cpu", OURS)
    images = [an_image(made_data())] * 3
    conv = torch.nn.Conv2d(3, 4, 3)
    x = torch.ones(1, 3, 8, 8)
    native = conv(x)

    def stream():
        return yolo.predict(images, stream=True, imgsz=64, device="cpu", verbose=False)

    seen = []
    for _ in stream():
        seen.append(dict(seam._libraries))
        assert seam.active_devices() == ()
        assert torch.equal(conv(x), native)
    assert len(seen) == 3
    assert seen[0]["cpu"] is seen[1]["cpu"] is seen[2]["cpu"]
    assert seam._libraries == {}
    closed = stream()
    next(closed)
    assert seam._libraries
    closed.close()
    assert seam._libraries == {}
    forgotten = stream()
    next(forgotten)
    del forgotten
    assert seam._libraries == {}
    assert torch.equal(conv(x), native)


def test_a_stream_that_fails_gives_everything_back(yolo, made_data):
    yolo_rocm.register(yolo, "cpu", OURS)
    folder = str(Path(an_image(made_data())).parent)  # one image after the other, which a list is not
    results = yolo.predict(folder, stream=True, imgsz=64, device="cpu", verbose=False)
    next(results)

    def fail(*_):
        raise RuntimeError("made to fail")

    yolo.predictor.inference = fail
    with pytest.raises(RuntimeError, match="made to fail"):
        next(results)
    assert seam.active_devices() == ()
    assert seam._libraries == {}


def test_a_run_inside_another_gives_back_the_device_and_workers_of_the_outer_one(yolo, made_data, tmp_path):
    handle = yolo_rocm.register(yolo, "cpu", OURS)
    session, seen = handle._session, []

    def inside(trainer) -> None:
        yolo.val(data=str(made_data()), imgsz=64, device=torch.device("cpu"), workers=1, plots=False, batch=4)
        seen.append((session.device, session.given_workers))

    yolo.add_callback("on_train_end", inside)
    yolo.train(data=str(made_data()), project=str(tmp_path), workers=0, **ONE)
    assert seen == [("cpu", 0)]
    # A call on its own inherits nothing from the one before it.
    yolo.predict(an_image(made_data()), imgsz=64, verbose=False)
    assert (session.device, session.given_workers) == (None, None)


def test_the_report_of_a_run_is_of_that_run_alone(yolo, made_data):
    handle = yolo_rocm.register(yolo, "cpu", OURS)
    reports = []
    for size in (64, 96):
        yolo.predict(an_image(made_data()), imgsz=size, device="cpu", verbose=False)
        reports.append(handle.report)
    assert reports[0] is not reports[1]
    first = [[problem for problem in report.served if problem.input_shape[1] == 3] for report in reports]
    assert [{problem.input_shape[-1] for problem in problems} for problems in first] == [{64}, {96}]


def test_two_objects_with_different_presets(made_data):
    from ultralytics import YOLO

    one, two = YOLO("yolov8n.yaml"), YOLO("yolov8n.yaml")
    first = yolo_rocm.register(one, "cpu", OURS)
    second = yolo_rocm.register(two, "cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}})
    for yolo in (one, two):
        yolo.predict(an_image(made_data()), imgsz=64, device="cpu", verbose=False)
    assert set(first.report.engines()) == {"gemm"}
    assert set(second.report.engines()) == {"aten"}


@pytest.mark.once
def test_tune_trains_its_children_under_the_preset(yolo, made_data, tmp_path, monkeypatch):
    """Ultralytics tunes in child processes; the run's report shows that they were ours."""
    monkeypatch.chdir(tmp_path)
    yolo_rocm.register(yolo, "cpu", OURS)
    arguments = {"space": {"lr0": (0.001, 0.01)}, "iterations": 1, "project": str(tmp_path), "save": True}
    try:
        yolo.tune(data=str(made_data()), **arguments, **{**QUICK, "epochs": 1, "batch": 8})
    except ValueError as error:  # some releases cannot plot a tuning whose models find nothing, as these do
        if "argmax of an empty sequence" not in str(error):
            raise
    reports = list(tmp_path.rglob("rocm.json"))
    assert len(reports) == 1
    assert set(json.loads(reports[0].read_text())["convolutions"]["engines"]) == {"gemm"}


def test_child_processes_follow_the_newest_and_are_let_go_in_any_order():
    """Two threads may tune at once and end in any order."""
    from ultralytics.engine import trainer

    first, second = hooks.children_follow({"A": "1"}), hooks.children_follow({"A": "2"})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert trainer.subprocess is not subprocess
    assert not second.__exit__(RuntimeError, RuntimeError("stop"), None)  # the error goes on
    assert trainer.subprocess is subprocess


def test_a_training_measures_its_convolutions_once(made_data, tmp_path, log, monkeypatch):
    """On a CPU only when asked; the second run knows what the first has measured."""
    from ultralytics import YOLO

    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    rocm = {"conv": {"engine": "gemm", "devices": ["cpu"], "tune": "on"}}
    for measured in (True, False):
        log.clear()
        yolo = YOLO("yolov8n-cls.yaml")
        handle = yolo_rocm.register(yolo, "cpu", rocm)
        yolo.train(data=str(made_data("classify")), project=str(tmp_path), **{**ONE, "imgsz": 32})
        assert ("measured" in log.text) == measured
        reasons = {row["reason"] for row in handle.report.as_dict()["layers"]}
        assert "fastest when measured" in reasons


def test_arguments_of_the_call_win_over_the_preset(yolo, log):
    session = Session({"base": "cpu", "train": {"batch": 2, "epochs": 9, "no_such_argument": 1}}, None)
    assert session.train_arguments({"epochs": 1}) == {"epochs": 1, "batch": 2}
    assert "no argument no_such_argument" in log.text
    assert session.train_arguments({"resume": True}) == {"resume": True}


def test_a_cfg_file_wins_over_the_preset(tmp_path):
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text("batch: 5\n")
    session = Session({"base": "cpu", "train": {"batch": 2}}, None)
    assert session.train_arguments({"cfg": str(cfg)}) == {"cfg": str(cfg)}


def test_the_preset_of_a_missing_card_runs_and_says_what_stays_idle(yolo, made_data, tmp_path, log):
    yolo_rocm.register(yolo, "rx5600xt")
    yolo.train(data=str(made_data()), project=str(tmp_path), **ONE)
    idle = [record for record in log.records if "GPU settings are ignored" in record.getMessage()]
    assert len(idle) == 1
    assert yolo.trainer.train_loader.num_workers == 0  # the preset's four workers are for the card
    assert yolo.trainer.args.amp is False


def test_the_off_switch_means_stock(yolo, made_data, tmp_path, monkeypatch, log):
    monkeypatch.setenv("YOLO_ROCM", "0")
    handle = yolo_rocm.register(yolo, {"base": "cpu", **OURS, "train": {"batch": 2}})
    yolo.train(data=str(made_data()), project=str(tmp_path), **{k: v for k, v in ONE.items() if k != "batch"})
    assert yolo.trainer.batch_size == 16
    assert handle.report is None
    assert "ROCm: " not in log.text


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


def test_an_engine_that_cannot_serve_leaves_no_run_behind(refusing, made_data, tmp_path):
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), project=str(tmp_path / "runs"), name="run", **ONE)
    assert not (tmp_path / "runs" / "run").exists()


def below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("way", ["save_dir", "exist_ok"])
@pytest.mark.parametrize("files", [("notes.txt", "sub/photo.jpg"), ("weights/last.resume.pt",), ()], ids=str)
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


def test_a_refused_run_leaves_what_others_have_put_into_its_folder(refusing, made_data, tmp_path):
    def put(trainer):
        (trainer.save_dir / "notes.txt").write_text("mine")

    refusing.add_callback("on_pretrain_routine_start", put)
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), project=str(tmp_path), name="run", **ONE)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_refused_run_leaves_the_folder_of_the_run_before_it(refusing, made_data, tmp_path):
    def stop(trainer):
        raise KeyboardInterrupt

    refusing.add_callback("on_pretrain_routine_start", stop)
    with pytest.raises(KeyboardInterrupt):
        refusing.train(data=str(made_data()), save_dir=str(tmp_path / "first"), **ONE)
    before = below(tmp_path / "first")
    assert before
    refusing.reset_callbacks()
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), save_dir=str(tmp_path / "second"), **ONE)
    assert not (tmp_path / "second").exists()
    with pytest.raises(EngineError, match="made to refuse"):
        refusing.train(data=str(made_data()), save_dir=str(tmp_path / "first"), **ONE)
    assert before.keys() <= below(tmp_path / "first").keys()


def test_only_yolo_objects_can_be_registered(yolo):
    with pytest.raises(ConfigError, match="takes a YOLO object, got str"):
        yolo_rocm.register("yolov8n.pt")
    with pytest.raises(ConfigError, match=r"not `yolo.model`"):
        yolo_rocm.register(yolo.model)


def test_registering_sets_what_must_be_there_before_the_runtime_starts(yolo, monkeypatch):
    monkeypatch.delenv("HSA_X", raising=False)
    rocm = {"env": {"HSA_X": {"value": 1}, "MIOPEN_X": {"value": 1}, "MALLOC_X": {"value": 1}}}
    handle = yolo_rocm.register(yolo, "cpu", rocm)
    assert (os.environ.get("HSA_X"), "MIOPEN_X" in os.environ, "MALLOC_X" in os.environ) == ("1", False, False)
    again = yolo_rocm.register(yolo, "cpu", rocm)
    assert os.environ.get("HSA_X") == "1"
    handle.remove()
    assert os.environ.get("HSA_X") == "1"
    again.remove()
    assert "HSA_X" not in os.environ


def test_variables_of_a_forgotten_object_are_put_back():
    import gc

    from ultralytics import YOLO

    yolo = YOLO("yolov8n.yaml")
    yolo_rocm.register(yolo, "cpu", {"env": {"HSA_X": {"value": 1}}})
    assert os.environ["HSA_X"] == "1"
    del yolo
    gc.collect()
    assert "HSA_X" not in os.environ


def test_environment_variables_are_set_during_the_run_and_removed(yolo, made_data, tmp_path):
    seen = {}
    rocm = {**OURS, "env": {"MIOPEN_LOG_LEVEL": {"value": 3}, "YOLO_OFFLINE": {"value": "nowhere"}}}
    yolo_rocm.register(yolo, "cpu", rocm)
    yolo.add_callback("on_train_start", lambda _: seen.update(os.environ))
    yolo.train(data=str(made_data()), project=str(tmp_path), **ONE)
    assert seen["MIOPEN_LOG_LEVEL"] == "3"
    assert seen["YOLO_OFFLINE"] == "true"  # what the user has set wins
    assert "MIOPEN_LOG_LEVEL" not in os.environ
