"""Environment variables: set where sound, left to the user where he has spoken, put back."""

from __future__ import annotations

import os

import pytest

from yolo_rocm import environ
from yolo_rocm.errors import PresetError
from yolo_rocm.hardware import Machine
from yolo_rocm.preset import load_preset

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
OLD = Machine(system="linux", overlays=("linux",), torch="1.13.1", build="hip", hip="5.2.21151")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv(OVERRIDE, raising=False)


@pytest.mark.parametrize(
    ("machine", "action"),
    [
        (OLD, "set"),
        (Machine(system="windows", overlays=("windows",), torch="1.13.1", build="hip", hip="5.2"), "skip"),
        (Machine(system="linux", torch="2.10.0", build="hip", hip="7.0.1"), "skip"),
        (Machine(system="linux", torch="1.13.1", build="hip", hip="5.7.0"), "skip"),
        (Machine(system="linux", torch="1.13.1", build="cpu"), "skip"),
    ],
    ids=str,
)
def test_the_override_is_set_only_where_it_is_sound(machine, action):
    (decision,) = environ.plan(load_preset("rx5600xt", machine=machine), machine)
    assert (decision.name, decision.action) == (OVERRIDE, action)
    assert decision.reason


def test_what_the_user_has_set_wins(monkeypatch):
    monkeypatch.setenv(OVERRIDE, "10.1.0")
    (decision,) = environ.plan(load_preset("rx5600xt", machine=OLD), OLD)
    assert (decision.action, decision.value) == ("keep", "10.1.0")
    with environ.applied([decision]):
        assert os.environ[OVERRIDE] == "10.1.0"
    assert os.environ[OVERRIDE] == "10.1.0"


def test_variables_are_put_back_after_an_error():
    decisions = environ.plan(load_preset("rx5600xt", machine=OLD), OLD)
    with pytest.raises(KeyboardInterrupt), environ.applied(decisions) as late:
        assert late == []
        assert os.environ[OVERRIDE] == "10.3.0"
        raise KeyboardInterrupt
    assert OVERRIDE not in os.environ


def test_too_late_names_the_variable_and_the_way_out(monkeypatch):
    monkeypatch.setattr(environ, "too_late", lambda: True)
    decisions = environ.plan(load_preset("rx5600xt", machine=OLD), OLD)
    with environ.applied(decisions) as late:
        assert OVERRIDE not in os.environ
    assert f"export {OVERRIDE}=10.3.0" in late[0]


def test_a_condition_that_is_no_version():
    preset = load_preset({"base": "cpu", "env": {"A": {"value": 1, "when": {"torch": "newer"}}}})
    with pytest.raises(PresetError, match=r"env\.A\.when: 'newer' is not a version specifier"):
        environ.plan(preset, OLD)
