"""Environment variables: set where sound and in time, left to the user where he has spoken, put back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import yolo_rocm
from yolo_rocm.errors import StackError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset import moments
from yolo_rocm.preset import variables as environ
from yolo_rocm.preset.moments import Moment, moment, passed, runtime_started
from yolo_rocm.preset.resolve import load_preset
from yolo_rocm.session.session import Session

from ..fake_trees import write
from ..tables import each_row

pytestmark = pytest.mark.once

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
OLD = Machine(system="linux", overlays=("linux",), torch="1.13.1", build="hip", hip="5.2.21151")
NAVI10 = Gpu("amd", "gfx1010", 6.0, node=1)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (OVERRIDE, "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert environ._ours == {}


@pytest.fixture
def started(monkeypatch):
    """The GPU runtime has started in this process."""
    monkeypatch.setattr(moments, "runtime_started", lambda: True)


def test_what_the_user_has_set_wins_and_is_said(monkeypatch):
    monkeypatch.setenv(OVERRIDE, "10.1.0")
    (decision,) = environ.plan(load_preset("rx5600xt", machine=OLD), OLD)
    assert (decision.action, decision.value) == ("keep", "10.1.0")
    assert f"{OVERRIDE}=10.1.0 stays" in decision.said
    assert "would set 10.3.0" in decision.said
    with environ.applied([decision]):
        assert os.environ[OVERRIDE] == "10.1.0"
    assert os.environ[OVERRIDE] == "10.1.0"
    newer = Machine(system="linux", torch="2.10.0", build="hip", hip="7.0.1")
    (decision,) = environ.plan(load_preset("rx5600xt", machine=newer), newer)
    assert decision.action == "keep"
    assert "would not set it (only with torch <2" in decision.said


def test_nested_use_keeps_the_variable_until_the_outer_end_also_after_an_error():
    preset = load_preset("rx5600xt", machine=OLD)
    with pytest.raises(KeyboardInterrupt), environ.applied(environ.plan(preset, OLD)):
        (again,) = environ.plan(preset, OLD)
        assert again.action == "set"  # our own doing, not the user's
        with environ.applied([again]) as late:
            assert late == []
        assert os.environ[OVERRIDE] == "10.3.0"
        raise KeyboardInterrupt
    assert OVERRIDE not in os.environ
    with environ.applied(environ.plan(preset, OLD)):
        os.environ[OVERRIDE] = "10.1.0"  # what a run changes itself is not taken away
    assert os.environ.pop(OVERRIDE) == "10.1.0"


@pytest.mark.usefixtures("started")
def test_too_late_names_the_variable_what_it_does_and_the_way_out():
    decisions = environ.plan(load_preset("rx5600xt", machine=OLD), OLD)
    with pytest.raises(StackError) as error, environ.applied(decisions):
        pass
    for words in (f"{OVERRIDE}=10.3.0 comes too late", "first torch.cuda call", "cannot train without it"):
        assert words in str(error.value)
    with environ.applied(decisions, needs_gpu=False) as late:
        assert OVERRIDE not in os.environ
    assert f"{OVERRIDE}=10.3.0 comes too late" in late[0]


def test_miopen_reads_its_variables_late(monkeypatch):
    preset = load_preset({"base": "cpu", "env": {"MIOPEN_FIND_MODE": {"value": 2, "why": "starts quickly"}}})
    with environ.applied(environ.plan(preset, OLD)) as late:
        assert late == []
        assert os.environ["MIOPEN_FIND_MODE"] == "2"
    monkeypatch.setattr(environ, "vendor_may_have_run", lambda: True)
    with environ.applied(environ.plan(preset, OLD)) as late:
        assert os.environ["MIOPEN_FIND_MODE"] == "2"  # still of use if no convolution has run
    assert "no effect if a convolution has run" in late[0]


def test_a_training_on_the_cpu_needs_no_variable_of_the_card(monkeypatch, started):
    session = Session("cpu", {"env": {"HSA_X": {"value": 1, "required": True}}})
    with session.environment("cpu") as lines:
        assert "HSA_X=1 comes too late" in lines[0]
    with pytest.raises(StackError, match="HSA_X"), session.environment():
        pass


BOTH = (Gpu("amd", "gfx1036", 0.5, integrated=True, node=1), Gpu("amd", "gfx1100", 24, node=2))


@each_row(
    ("gpus", "device", "expected"),
    [
        (BOTH, None, ("1", "set")),
        (BOTH, 1, ("1", "skip")),  # torch counts the integrated one: device 1 would be gone
        (BOTH[::-1], 0, ("0", "set")),
        (BOTH[::-1], [0, 1], ("0", "skip")),
        ((BOTH[1], BOTH[0], BOTH[1]), None, ("0,2", "set")),
        (BOTH[1:], None, None),
    ],
    ids=str,
)
def test_an_integrated_gpu_is_hidden(gpus, device, expected):
    machine = Machine(gpus=gpus, torch="2.10.0", build="hip", hip="7.0")
    decisions = environ.plan(load_preset("generic", machine=machine), machine, device)
    assert [(d.value, d.action) for d in decisions] == ([expected] if expected else [])


def test_who_chooses_devices_himself_is_left_alone(monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1")
    machine = Machine(gpus=BOTH, torch="2.10.0", build="hip", hip="7.0")
    assert environ.plan(load_preset("generic", machine=machine), machine) == []


def test_every_rank_has_miopen_folders_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "1")
    preset = load_preset("mi300x", machine=OLD)
    decisions = environ.plan(preset, OLD)
    folders = {d.name: d.value for d in decisions if d.folder}
    top = tmp_path / "miopen/5.2.21151/rank1"
    assert folders == {"MIOPEN_USER_DB_PATH": str(top / "db"), "MIOPEN_CUSTOM_CACHE_DIR": str(top / "kernels")}
    with environ.applied(decisions):
        assert os.environ["MIOPEN_USER_DB_PATH"] == str(top / "db")
        assert (top / "db").is_dir()
    assert environ.plan(preset, Machine(build="cuda", torch="2.10.0")) == []


def test_every_variable_of_every_preset_has_a_known_moment():
    assert [moment(name) for name in ("HIP_ENABLE_DEFERRED_LOADING", "MY_OWN")] == [Moment.TORCH, None]
    for preset in yolo_rocm.presets():
        for name in load_preset(preset).env:
            assert moment(name) is not None, f"{preset}: {name}"


def test_moments_that_have_passed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    assert [passed(when) for when in (Moment.PROCESS, Moment.TORCH, Moment.RUNTIME)] == [True, True, False]
    assert not any(passed(when) for when in (Moment.MIOPEN, Moment.GROUP, None))
    monkeypatch.delitem(sys.modules, "torch")
    assert not passed(Moment.TORCH)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    assert passed(Moment.RUNTIME)
    assert moments.vendor_may_have_run()


@pytest.mark.parametrize(("opened", "expected"), [("/dev/kfd", True), ("/dev/dxg", True), ("/dev/null", False)])
def test_the_runtime_shows_by_the_device_it_holds_open(tmp_path, opened, expected):
    """`torch.cuda.is_available()` starts HIP and leaves `is_initialized()` False."""
    (tmp_path / "proc/self/fd").mkdir(parents=True)
    (tmp_path / "proc/self/fd/3").symlink_to(opened)
    write(tmp_path / "proc/self/fd/4", "no link")
    assert runtime_started(tmp_path) is expected
    assert runtime_started(tmp_path / "nowhere") is False


def test_machines_that_may_share_a_home_keep_their_kernels_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setattr(environ.platform, "node", lambda: "rack/7")
    for name, value in {"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    preset = load_preset("rx5600xt")
    folders = {d.name: Path(d.value) for d in environ.plan(preset, OLD) if d.folder}
    assert folders.keys() == {"MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "TRITON_CACHE_DIR"}
    assert all(folder.is_relative_to(tmp_path / "nodes" / "rack_7") for folder in folders.values())
    assert "rank1" in folders["MIOPEN_USER_DB_PATH"].parts
    monkeypatch.setenv("WORLD_SIZE", "8")  # one machine: Triton's folder is the user's
    folders = {d.name: Path(d.value) for d in environ.plan(preset, OLD) if d.folder}
    assert folders.keys() == {"MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"}
    assert not any(folder.is_relative_to(tmp_path / "nodes") for folder in folders.values())
