"""Why a device cannot use engine `hip`, what it is compiled for, and that nothing of it is needed elsewhere."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines.hip import available, driver, rtc
from yolo_rocm.engines.hip.compiler import compiler
from yolo_rocm.engines.hip.target import Target, target_of, wave_size

from .stand_in import forget, needs_cc


@pytest.fixture(autouse=True)
def _anew():
    forget()
    yield
    forget()


def test_a_cpu_has_none():
    assert available.device_reason("cpu") == "there are kernels for GPUs, and none for cpu"
    assert available.in_words("cpu") == "there are kernels for GPUs, and none for cpu"
    assert wave_size("cpu") == 32


def test_a_torch_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert available.device_reason("cuda:0") in ("there is no GPU", f"torch {torch.__version__} was built without GPUs")


def test_a_torch_that_was_built_without_gpus_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert available.device_reason("cuda:0") == f"torch {torch.__version__} was built without GPUs"


def test_the_doctor_asks_without_torch():
    assert available.in_words_unasked(None) == "torch is not installed"
    script = (
        "import sys; from yolo_rocm.engines.hip import available, libraries, rtc, driver; "
        "available.in_words_unasked('2.10.0'); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_the_compiling_process_needs_the_standard_library_alone():
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
    forget()
    why = available.device_reason("cuda:0")
    assert why is not None
    # Without the runtime not even the target is known: torch 1.13.1 does not say it.
    assert why == "neither torch nor the runtime says which gfx target the device is"
    old.monkeypatch.setattr(torch.version, "hip", None)
    old.monkeypatch.setattr(torch.version, "cuda", "12.8")
    forget()
    why = available.device_reason("cuda:0")
    assert why is not None
    assert why.startswith("the runtime (libno-such-library.so) cannot be loaded: ")


@needs_cc
@pytest.mark.parametrize("gfx", ["gfx1010:xnack-", "gfx1030", "gfx90a:sramecc+:xnack-"])
def test_the_runtime_says_the_target_where_torch_does_not(old, gfx):
    """Under `HSA_OVERRIDE_GFX_VERSION=10.3.0` an RX 5600 XT is gfx1030 for the runtime, and code for that is loaded."""
    old.monkeypatch.setenv("STAND_IN_GFX", gfx)
    assert target_of("cuda:0") == Target("hip", gfx)
    runtime = driver.driver("hip")
    assert isinstance(runtime, driver.Driver)
    assert runtime.architecture(9) is None  # there is no such device


@needs_cc
def test_what_torch_says_comes_first(old):
    properties = SimpleNamespace(name="AMD Instinct MI250X", gcnArchName="gfx90a:sramecc+:xnack-")
    old.monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    forget()
    assert target_of("cuda:0") == Target("hip", "gfx90a:sramecc+:xnack-")
    assert wave_size(torch.device("cuda:0")) == 64
    assert target_of("cuda:0").gfx == "gfx90a"
    assert target_of("cuda:0").options()[0] == "--offload-arch=gfx90a:sramecc+:xnack-"


def test_code_for_gfx1030_is_made_without_what_gfx1010_lacks():
    assert "-ffp-contract=on" in Target("hip", "gfx1030").options()  # or clang makes v_dot2c_f32_f16 of two products
    assert Target("hip", "gfx1030").wave == 32


@needs_cc
def test_a_compiler_is_looked_for_once(old, monkeypatch):
    target = Target("hip", "gfx1010")
    found = compiler(target)
    assert compiler(target) is found
    assert [line.split()[0] for line in old.calls()] == ["create", "compile", "destroy"]
