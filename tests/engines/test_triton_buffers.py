"""Triton compiles for RDNA1 without buffer descriptors, and for everything else as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.engines.triton import launch
from yolo_rocm.engines.triton.buffers import KNOB, VARIABLE, broken_on, without_broken_buffers
from yolo_rocm.engines.triton.call import Call

from ..pages import PROJECT


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_rdna1_alone():
    assert [gfx for gfx in ("gfx1010", "gfx1012", "gfx1030", "gfx1100", "gfx90a", "gfx906", "") if broken_on(gfx)] == [
        "gfx1010",
        "gfx1012",
    ]


@pytest.mark.parametrize("before", [None, "1", "0"])
def test_the_variable_is_put_back_even_after_an_error(monkeypatch, before):
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    with pytest.raises(ValueError, match="no such tile"), without_broken_buffers("gfx1010"):
        with without_broken_buffers("gfx1011"):
            assert os.environ[VARIABLE] == "0"
        assert os.environ[VARIABLE] == "0"  # nested use counts
        raise ValueError("no such tile")
    assert os.environ.get(VARIABLE) == before
    with without_broken_buffers("gfx1030"):
        assert os.environ.get(VARIABLE) == before


@pytest.mark.parametrize("variable", [None, "1", "0"])
@pytest.mark.parametrize("before", [None, True, False])
def test_a_knob_that_was_set_in_python_takes_precedence_over_the_variable(monkeypatch, before, variable):
    """Triton does not look at the variable then: the knob itself is turned off, and put back."""
    amd = getattr(pytest.importorskip("triton.knobs"), "amd", None)
    if not hasattr(amd, KNOB):
        pytest.skip("this Triton has no such knob")
    with amd.scope():
        if before is not None:
            setattr(amd, KNOB, before)
        if variable is None:
            monkeypatch.delenv(VARIABLE, raising=False)
        else:
            monkeypatch.setenv(VARIABLE, variable)
        read = getattr(amd, KNOB)
        with pytest.raises(ValueError, match="no such tile"), without_broken_buffers("gfx1010"):
            with without_broken_buffers("gfx1011"):
                assert not getattr(amd, KNOB)
            assert not getattr(amd, KNOB)
            assert os.environ[VARIABLE] == "0"
            raise ValueError("no such tile")
        assert getattr(amd, KNOB) == read
        assert vars(amd).get(KNOB) == before
        assert os.environ.get(VARIABLE) == variable
        with without_broken_buffers("gfx1030"):
            assert getattr(amd, KNOB) == read


COMPILED = """
from triton import knobs
from tools import compile_kernels, kernel_assembly
kernel_assembly.broken_on = lambda gfx: False  # small pointers, as launches have them: what descriptors are made for
kernel = next(k for k in compile_kernels.curated("gfx1010", "fp32", True) if k.name == "transpose")
knobs.amd.use_buffer_ops = True
print(kernel_assembly.assembly(kernel, "gfx1010")[0].count("buffer_store"))
"""


@pytest.mark.deep
def test_a_knob_that_was_set_in_python_does_not_bring_descriptors_back(tmp_path):
    if not hasattr(getattr(pytest.importorskip("triton.knobs"), "amd", None), KNOB):
        pytest.skip("this Triton has no such knob")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr[-2000:]


@pytest.mark.parametrize("module", [None, SimpleNamespace(), SimpleNamespace(amd=SimpleNamespace())])
def test_the_variable_alone_where_triton_has_no_knob(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace() if module is None else SimpleNamespace(knobs=module))
    with without_broken_buffers("gfx1010"):
        assert os.environ[VARIABLE] == "0"
    assert VARIABLE not in os.environ


def test_threads_that_compile_at_once_count():
    entered, leave, seen = threading.Event(), threading.Event(), []

    def compile_slowly():
        with without_broken_buffers("gfx1010"):
            entered.set()
            leave.wait(60)
            seen.append(os.environ.get(VARIABLE))

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    assert entered.wait(60)
    with without_broken_buffers("gfx1010"):
        pass
    assert os.environ[VARIABLE] == "0"  # the other one is not done
    leave.set()
    thread.join(60)
    assert seen == ["0"]
    assert VARIABLE not in os.environ


class Kernel:
    """Stands for a kernel of Triton, and remembers what it was compiled under."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def __getitem__(self, grid):
        return self._compile

    def warmup(self, *arguments, **options):
        """Compile ahead of time."""
        return self._compile()

    def _compile(self, *arguments, **options):
        self.seen.append(os.environ.get(VARIABLE))
        return SimpleNamespace(n_spills=0)


@pytest.mark.parametrize(
    ("gfx", "hip", "expected"), [("gfx1010", "6.4", "0"), ("gfx1030", "6.4", None), ("", None, None)]
)
def test_launches_and_compilations_ahead_of_time(monkeypatch, gfx, hip, expected):
    kernel = Kernel()
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(launch, "gfx_target", lambda device: gfx)
    monkeypatch.setattr(launch, "kernel_of", lambda call: kernel)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(launch.direct, "direct", lambda *given: None)
    monkeypatch.setattr(launch.direct, "specialisation", lambda *given: object())
    monkeypatch.setattr(launch.direct, "spills", lambda compiled: compiled.n_spills)
    call = Call("module", "kernel", (1, 1, 1), (), {}, 4, 1)
    tensor = SimpleNamespace(data_ptr=lambda: 256, get_device=lambda: 0)
    launch._launch(object(), lambda: call, (tensor,))
    launch._prepare(call, (torch.float32,))
    assert kernel.seen == [expected, expected]
    assert VARIABLE not in os.environ
