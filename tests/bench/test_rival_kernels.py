"""Inductor and FlagGems as rivals: when they are imported, what is asked of them, and what they leave behind."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.bench import rival_kernels
from yolo_rocm.bench.layers import ModelLayer
from yolo_rocm.bench.rival_kernels import FlagGems, Inductor, chosen
from yolo_rocm.bench.rivals import BACKWARD, NOT_RUNNABLE, WRONG, NotRunnableError, bench_rivals
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.errors import ConfigError

needs_compile = pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch 1.13 compiles nothing")


def layer_of(channels_last=False, transposed=False, dtype=torch.float32, needs_grad_input=True):
    x, weight = torch.zeros(2, 4, 9, 7, dtype=dtype), torch.zeros(4, 2, 3, 3, dtype=dtype)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    problem = ConvProblem.of(x, weight, (2, 2), (1, 1), (1, 1), transposed, (0, 0), 2)
    return ModelLayer(problem, ("model.0",), needs_grad_input)


def outcomes(rival, layer):
    operands = Operands.of(layer.problem)
    return {which: found for _, which, found in bench_rivals({rival: ""}, layer, operands, 1 << 62, 1)}


def test_nothing_is_a_rival_unless_asked_for():
    assert chosen(None) == chosen("") == []
    assert [rival.name for rival in chosen("all")] == ["inductor", "flag_gems"]
    assert [rival.name for rival in chosen("flag_gems, inductor,all")] == ["flag_gems", "inductor"]
    with pytest.raises(ConfigError, match=r"unknown rival 'induktor'; did you mean 'inductor'\? Allowed: all, "):
        chosen("induktor")


def test_on_a_cpu_nothing_is_imported(monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert {rival.name: bool(rival.missing("cpu")) for rival in chosen("all")} == {"inductor": True, "flag_gems": True}


# FlagGems


@pytest.fixture
def gems(monkeypatch):
    """Return a function that puts a stand-in for the module in place, by its conv2d."""

    def put(conv2d):
        module = ModuleType("flag_gems")
        module.__version__ = "5.0.2"
        module.conv2d = conv2d
        monkeypatch.setitem(sys.modules, "flag_gems", module)

    return put


def test_flag_gems_that_cannot_be_imported(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "flag_gems", None)
    why = FlagGems().missing("cuda:0")
    assert "flag_gems" in why
    assert why.endswith("; `pip install --no-deps flag_gems sqlalchemy` brings it")
    monkeypatch.delitem(sys.modules, "flag_gems")
    (tmp_path / "flag_gems.py").write_text("raise RuntimeError('No device were detected on your machine !\\n More')")
    monkeypatch.syspath_prepend(tmp_path)
    why = FlagGems().missing("cuda:0")
    assert why == "importing flag_gems: RuntimeError: No device were detected on your machine !"


def test_flag_gems_without_conv2d(gems):
    gems(F.conv2d)
    assert not FlagGems().missing("cuda:0")
    del sys.modules["flag_gems"].conv2d
    assert FlagGems().missing("cuda:0") == "flag_gems 5.0.2 has no conv2d"


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("needs_grad_input", [False, True])
def test_flag_gems_computes_both_passes(gems, channels_last, needs_grad_input):
    gems(F.conv2d)
    layer = layer_of(channels_last, needs_grad_input=needs_grad_input)
    found = outcomes(FlagGems(), layer)
    assert found.keys() == {"forward", BACKWARD}
    assert all(each.milliseconds > 0 for each in found.values()), found
    results = FlagGems().call(layer, BACKWARD, Operands.of(layer.problem))()
    assert list(results) == list(layer.passes[1:])
    if channels_last:
        assert all(result.is_contiguous(memory_format=torch.channels_last) for result in results.values())


def test_flag_gems_with_a_wrong_gradient_alone(gems):
    """As where strides of one layout are used for a tensor of the other: forward is right, and it is no help."""
    gems(lambda x, weight, *rest: F.conv2d(x, 3 * weight - 2 * weight.detach(), *rest))
    found = outcomes(FlagGems(), layer_of())
    assert not found["forward"].verdict
    assert (found[BACKWARD].verdict, found[BACKWARD].why) == (WRONG, "grad_weight is off by 2 of its size")


def test_flag_gems_has_no_transposed_convolutions(gems):
    gems(F.conv2d)
    found = outcomes(FlagGems(), layer_of(transposed=True))
    assert {each.verdict for each in found.values()} == {NOT_RUNNABLE}
    assert "not transposed" in found["forward"].why


# Inductor


def test_inductor_needs_torch_compile_and_its_setting(monkeypatch):
    with monkeypatch.context() as older:
        older.delattr(torch, "compile", raising=False)
        assert Inductor().missing("cuda:0") == f"torch {torch.__version__} has no torch.compile"
    if hasattr(torch, "compile"):
        assert not Inductor().missing("cuda:0")
        monkeypatch.delitem(importlib.import_module("torch._inductor.config")._config, "max_autotune_conv_backends")
        assert "cannot be kept to its Triton templates" in Inductor().missing("cuda:0")


@needs_compile
def test_inductor_may_not_take_aten_and_gets_its_settings_back():
    """The real compiler: for a CPU it has no template, so with ATen out of the choices there is none left."""
    config = importlib.import_module("torch._inductor.config")
    before = config.get_config_copy()
    found = outcomes(Inductor(), layer_of())
    assert config.get_config_copy() == before
    assert found["forward"].verdict == NOT_RUNNABLE
    assert "No choices" in found["forward"].why
    for which in PASSES[1:]:
        assert found[which].why == f"Inductor of torch {torch.__version__} leaves backward passes to ATen"


@pytest.fixture
def stand_in(monkeypatch):
    """Stand in for the compiler: eager passes, and the code that it is to show."""
    inductor, asked = {name: importlib.import_module(f"torch._inductor.{name}") for name in ("utils", "lowering")}, []

    def put(*codes):
        monkeypatch.setattr(inductor["lowering"], "fallbacks", set())  # a torch that has backward passes too
        monkeypatch.setattr(torch, "compile", lambda call, **options: (asked.append(options), call)[1])
        monkeypatch.setattr(inductor["utils"], "run_and_get_code", lambda call, *a: (call(*a), list(codes)))
        return asked

    return put


TEMPLATE = "# Original ATen: [aten.convolution]\ntriton_tem_fused_convolution_0.run(arg0_1, arg1_1, buf0, grid=grid)"


@needs_compile
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_inductor_computes_every_pass_that_it_has(stand_in, channels_last):
    asked = stand_in(TEMPLATE)
    layer = layer_of(channels_last)
    found = outcomes(Inductor(), layer)
    assert list(found) == list(PASSES)
    assert all(each.milliseconds > 0 for each in found.values()), found
    known = importlib.import_module("torch._inductor.config").get_config_copy()
    for options in asked:
        assert (options["fullgraph"], options["dynamic"]) == (True, False)
        assert options["options"]["max_autotune_conv_backends"] == "TRITON"
        assert options["options"].keys() == rival_kernels._OPTIONS.keys() <= known.keys()


@needs_compile
@pytest.mark.parametrize(
    ("codes", "why"),
    [
        ([], "does not show"),
        ([TEMPLATE, "buf2 = extern_kernels.convolution(buf0, buf1, stride=(1, 1))"], "call of ATen"),
        (["buf0 = torch.ops.aten.convolution_backward.default(arg0_1, arg1_1)"], "call of ATen"),
    ],
    ids=["nothing", "forward", "backward"],
)
def test_what_inductor_leaves_to_aten_is_not_its_own(stand_in, codes, why):
    stand_in(*codes)
    layer = layer_of()
    with pytest.raises(NotRunnableError, match=why):
        Inductor().call(layer, "grad_input", Operands.of(layer.problem))
