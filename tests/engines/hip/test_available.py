"""Why a device cannot use engine `hip`, what it is compiled for, and that nothing of it is needed elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from yolo_rocm.engines.hip import available, driver, rtc
from yolo_rocm.engines.hip.target import Target, target_of

from .stand_in import forget, needs_cc

pytestmark = pytest.mark.usefixtures("fresh")


def test_the_doctor_asks_without_torch_and_a_compiler_needs_the_standard_library_alone():
    assert available.in_words_unasked(None) == "torch is not installed"
    script = (
        "import sys; from yolo_rocm.engines.hip import available, libraries, rtc, driver; "
        "available.in_words_unasked('2.10.0'); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    script = f"import runpy, sys; runpy.run_path({rtc.__file__!r}); sys.exit('yolo_rocm' in sys.modules)"
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, timeout=60)


@needs_cc
def test_a_run_that_does_without_it_compiles_nothing(old):
    assert available.in_words_so_far("cuda:0") == "not a candidate"
    assert old.calls() == []
    assert available.device_reason("cuda:0") is None
    assert available.in_words_so_far("cuda:0").startswith("available (")
    assert available.in_words_so_far("cpu") == available.device_reason("cpu")


@needs_cc
def test_libraries_that_are_missing_are_named(old, tmp_path):
    old.monkeypatch.setattr("yolo_rocm.engines.hip.libraries.torch_folder", lambda: tmp_path)
    # Without the runtime not even the target is known: torch 1.13.1 does not say it.
    why = "neither torch nor the runtime says which gfx target the device is"
    assert available.device_reason("cuda:0") == why
    old.monkeypatch.setattr(torch.version, "hip", None)
    old.monkeypatch.setattr(torch.version, "cuda", "12.8")
    forget()
    assert available.device_reason("cuda:0").startswith("the runtime (libno-such-library.so) cannot be loaded: ")


@needs_cc
@pytest.mark.parametrize("gfx", ["gfx1010:xnack-", "gfx1030", "gfx90a:sramecc+:xnack-"])
def test_the_runtime_says_the_target_where_torch_does_not(old, gfx):
    """Under `HSA_OVERRIDE_GFX_VERSION=10.3.0` an RX 5600 XT is gfx1030 for the runtime, and code for that is loaded."""
    old.monkeypatch.setenv("STAND_IN_GFX", gfx)
    assert target_of("cuda:0") == Target("hip", gfx)
    runtime = driver.driver("hip")
    assert isinstance(runtime, driver.Driver)
    assert runtime.architecture(9) is None  # there is no such device
