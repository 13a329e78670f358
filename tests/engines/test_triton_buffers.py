"""Triton compiles for RDNA1 without buffer descriptors, and for everything else as it likes."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.buffers import KNOB, VARIABLE, without_broken_buffers
from yolo_rocm.engines.triton.call import Call


@pytest.fixture(params=[None, "1", "0"])
def variable(request, monkeypatch):
    """What the user has set in the environment."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if request.param is not None:
        monkeypatch.setenv(VARIABLE, request.param)
    return request.param


@pytest.mark.parametrize("knobs", ["none", "others", None, True, False])
def test_settings_are_off_inside_and_put_back_even_after_an_error(monkeypatch, variable, knobs):
    """Triton does not look at the variable where the user has set its knob in Python; older ones have no knob."""
    if knobs in ("none", "others"):
        module = SimpleNamespace(amd=SimpleNamespace()) if knobs == "others" else None
        monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(**({"knobs": module} if module else {})))
        amd = SimpleNamespace(**{KNOB: False})
    else:
        amd = getattr(pytest.importorskip("triton.knobs"), "amd", None)
        if not hasattr(amd, KNOB):
            pytest.skip("this Triton has no such knob")
        monkeypatch.delitem(vars(amd), KNOB, raising=False)
        if knobs is not None:
            monkeypatch.setitem(vars(amd), KNOB, knobs)
    before = getattr(amd, KNOB)
    with pytest.raises(ValueError, match="no such tile"), without_broken_buffers("gfx1010"):
        with without_broken_buffers("gfx1011"):
            assert os.environ[VARIABLE] == "0"
        assert (os.environ[VARIABLE], getattr(amd, KNOB)) == ("0", False)  # nested use counts
        raise ValueError("no such tile")
    for gfx in ("gfx1030", "gfx1100", "gfx90a", ""):
        with without_broken_buffers(gfx):
            assert (os.environ.get(VARIABLE), getattr(amd, KNOB)) == (variable, before)


@pytest.mark.parametrize(
    ("gfx", "hip", "expected"), [("gfx1010", "6.4", "0"), ("gfx1030", "6.4", None), ("", None, None)]
)
def test_launches_and_compilations_ahead_of_time(monkeypatch, gfx, hip, expected):
    seen = []

    class Kernel:
        def warmup(self, *arguments, **options):
            seen.append(os.environ.get(VARIABLE))

        def __getitem__(self, grid):
            return self.warmup

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(launch, "gfx_target", lambda device: gfx)
    monkeypatch.setattr(launch, "kernel_of", lambda call: Kernel())
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "on", lambda device: torch.no_grad())
    monkeypatch.setattr(launch.direct, "current_device", lambda: 0)
    monkeypatch.setattr(launch.direct, "direct", lambda *given: None)
    monkeypatch.setattr(launch.direct, "specialisation", lambda *given: object())
    call = Call("module", "kernel", (1, 1, 1), (), {}, 4, 1)
    launch.launch(object(), lambda: call, (SimpleNamespace(data_ptr=lambda: 256, get_device=lambda: 0),))
    launch.prepare(call, (torch.float32,), "cuda:0")
    assert seen == [expected, expected]
