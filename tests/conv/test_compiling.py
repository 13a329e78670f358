"""The seam under torch.compile: what it promises is what it returns, and nobody gets what was compiled for another."""

from __future__ import annotations

import importlib
import itertools
import shutil
from contextlib import nullcontext

import pytest
import torch

import yolo_rocm
from yolo_rocm.engines.backend_flags import new_memory_unfilled, vendor_off
from yolo_rocm.engines.seam import keep_kernels, release_kernels

pytestmark = pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch < 2 has no torch.compile")

CPU = ("cpu",)
FORMATS = {2: "channels_last", 3: "channels_last_3d"}


def same_layout(one, other):
    """Return whether two tensors are laid out alike; a dimension of one element has no stride worth the name."""
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    return one.shape == other.shape and all(a == b for size, a, b in pairs if size > 1)


def laid(tensor, channels_last):
    if not channels_last:
        return tensor
    if tensor.dim() == 3:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor.contiguous(memory_format=getattr(torch, FORMATS[tensor.dim() - 2]))


def passes(x, weight, geometry):
    y = torch.ops.aten.convolution(x, weight, None, *geometry)
    grads = torch.ops.aten.convolution_backward(torch.ones_like(y), x, weight, None, *geometry, [True, True, False])
    return y, grads[0], grads[1]


def forget_promises():
    """Clear torch's cache of what it has promised, which does not know that the vendor library was switched."""
    kind = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
    getattr(kind, "cache_clear", lambda: None)()


def promised(calls):
    """Return the results that torch promises, as tensors without values."""
    mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    with mode:
        return [passes(mode.from_tensor(x), mode.from_tensor(weight), geometry) for x, weight, geometry in calls]


def convolutions(device="cpu"):
    """Return input, weight and geometry of convolutions of every kind, in both layouts and mixed ones."""
    found = []
    for spatial, kernel, groups, transposed in itertools.product((1, 2, 3), (1, 3), (1, 4), (False, True)):
        each = [[value] * spatial for value in (1, kernel // 2, 1, 0)]
        geometry = (*each[:3], transposed, each[3], groups)
        for layouts in itertools.product((False, True), repeat=2):
            x = laid(torch.rand(2, 4, *[5] * spatial, device=device), layouts[0])
            weight = laid(torch.rand(4, 4 // groups, *[kernel] * spatial, device=device), layouts[1])
            found.append((x, weight, geometry))
    return found


def alike(some, others):
    """Return for each call whether all its results are laid out alike."""
    return [all(map(same_layout, one, other)) for one, other in zip(some, others, strict=True)]


def check_promises(device, engine, vendor):
    """Check that results are laid out as promised, by the seam while it is on and by torch before and afterwards."""
    calls = convolutions(device)
    forget_promises()
    with nullcontext() if vendor else vendor_off(device):
        before = promised(calls)
        with yolo_rocm.patched((device,), engine):
            ours, found = promised(calls), [passes(*call) for call in calls]
        after = promised(calls)
    assert [call for call, kept in zip(calls, alike(ours, found), strict=True) if not kept] == []
    assert all(alike(before, after))
    return alike(before, ours)


def test_the_promise_is_kept_between_two_runs():
    """Kernels stay in for an owner of runs, and what was compiled in one of them may run beside it."""
    calls, owner = convolutions(), nullcontext()
    with vendor_off("cpu"):
        keep_kernels(owner)
        try:
            with yolo_rocm.patched(CPU, "gemm"):
                inside = promised(calls)
            outside, results = promised(calls), [passes(*call) for call in calls]
        finally:
            release_kernels(owner)
        assert all(alike(inside, outside))
        assert all(alike(outside, results))


@pytest.mark.parametrize("vendor", [False, True], ids=["vendor off", "vendor on"])
def test_results_are_laid_out_as_promised(vendor):
    assert not all(check_promises("cpu", "gemm", vendor))  # torch promises something else


def test_what_torch_promises_of_an_empty_batch_stays():
    """No engine computes one."""
    calls = [(x[:0], weight, geometry) for x, weight, geometry in convolutions() if x.dim() == 4]
    with vendor_off("cpu"):
        forget_promises()
        before = promised(calls)
        with yolo_rocm.patched(CPU, "gemm"):
            ours = promised(calls)
    assert [[each.stride() for each in call] for call in ours] == [[each.stride() for each in call] for call in before]


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("shapes", [((1, 8, 3, 3), (4, 1, 3, 3)), ((8, 8, 6, 6), (8, 4, 1, 1))], ids=str)
def test_what_comes_after_one_channel_or_one_pixel_is_laid_out_as_promised(shapes, last):
    """Such a result lies the same way in both layouts, and its strides decide how the next one is laid out."""
    tensors = [laid(torch.rand(shape), last) for shape in ((2, 8, 6, 6), *shapes)]

    def chained(x, first, second):
        y = torch.conv2d(x, first, None, 1, 1 if first.shape[2] == 3 else 0)
        return torch.conv_transpose2d(y, second, None, 3, 0, 2) if y.shape[2] == 1 else torch.conv2d(y, second)

    mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    with vendor_off("cpu"), yolo_rocm.patched(CPU, "gemm"):
        found = chained(*tensors)
        with mode:
            expected = chained(*map(mode.from_tensor, tensors))
    assert same_layout(found, expected)
    assert same_layout(found, laid(found, last))


def quick_inductor():
    """Return Inductor's settings that only cost time here."""
    config = importlib.import_module("torch._inductor.config")
    wanted = {"cpp_cache_precompile_headers": False, "cpp.simdlen": 1, "cpp.vec_isa_ok": True, "compile_threads": 1}
    return config.patch({name: value for name, value in wanted.items() if name in config._config})


@pytest.fixture
def inductor(monkeypatch, tmp_path):
    """Inductor with caches of its own, and nothing compiled before or afterwards."""
    if shutil.which("g++") is None:
        pytest.skip("Inductor compiles C++ with g++, which is not here")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    importlib.import_module("torch._dynamo").reset()
    with vendor_off("cpu"), new_memory_unfilled(), quick_inductor():  # or else the seam's would be part of the key
        yield
    torch._dynamo.reset()


def test_no_model_gets_the_graph_of_another(inductor):
    """Neither in one process, nor from the caches on disk; of three dimensions torch promises contiguous results."""
    x = laid(torch.rand(2, 3, 6, 6, 6), True)
    model = torch.nn.Conv3d(3, 4, 3, bias=False).to(memory_format=torch.channels_last_3d)

    def step(run):
        model.zero_grad()
        y = run(x)
        y.square().sum().backward()
        return y.detach(), model.weight.grad.clone()

    expected = step(model)
    for ours in (True, False):
        with yolo_rocm.patched(CPU, "gemm") if ours else nullcontext() as report:
            torch.testing.assert_close(step(torch.compile(model, dynamic=False)), expected)
        assert report is None or [(s.forward_calls, s.backward_calls) for s in report.served.values()] == [(1, 1)]
        importlib.import_module("torch._dynamo").reset()


def test_what_was_compiled_is_forgotten_only_where_it_matters(monkeypatch):
    dynamo, resets = importlib.import_module("torch._dynamo"), []
    dynamo.reset()
    reset = dynamo.reset
    monkeypatch.setattr(dynamo, "reset", lambda: (resets.append(1), reset()))
    twice = torch.compile(lambda x: x * 2, backend="eager")
    x, compiled = torch.rand(2, 3, 5, 5), torch.compile(torch.nn.Conv2d(3, 4, 3), backend="eager")
    with yolo_rocm.patched(CPU, "gemm"):
        torch.nn.Conv2d(3, 4, 3)(x)
        twice(x)
    assert not resets  # nothing was there before, and no convolution was compiled
    with yolo_rocm.patched(CPU, "gemm"):
        assert len(resets) == 1  # whatever there is, it might convolve
        compiled(x)
        with yolo_rocm.patched(CPU, "vendor"):
            compiled(x)
        assert len(resets) == 1  # another engine, the same layouts
    assert len(resets) == 2


def test_torch_is_as_it_was(monkeypatch):
    """Also what is keyed: graphs by all they depend on, timings by what has been timed."""
    caches = importlib.import_module("torch._inductor.codecache")
    if not hasattr(caches, "FxGraphHashDetails"):
        pytest.skip("this torch keeps no graphs on disk")
    places = [
        (torch._C, "_select_conv_backend"), (torch._C, "_conv_determine_backend_memory_format"),
        (caches.FxGraphHashDetails, "__init__"), (caches.PersistentCache, "lookup"),
    ]  # fmt: skip
    seen = []
    monkeypatch.setattr(caches.PersistentCache, "lookup", lambda *args, **kwargs: seen.append(args[2:4]))
    before = [vars(owner)[name] for owner, name in places]
    with yolo_rocm.patched(CPU, "gemm"):
        torch.compile(torch.nn.Conv2d(3, 4, 3), backend="eager")(torch.rand(2, 3, 5, 5))
        assert all(vars(owner)[name] is not was for (owner, name), was in zip(places, before, strict=True))
        for operator in ("mm", "convolution"):
            caches.PersistentCache.lookup(None, [], operator, "shapes", None)
    assert [vars(owner)[name] for owner, name in places] == before
    assert seen[0] == ("mm", "shapes")
    assert seen[1][1] != "shapes"
    assert "('cpu', 'gemm')" in seen[1][1]


def test_a_compiler_that_measures_calls_the_kernels_that_are_there_now():
    # While it compiles, torch dispatches in Python and remembers kernels; a forgotten one ends the process.
    dispatching = importlib.import_module("torch._dispatch.python").enable_python_dispatcher
    x, weight = torch.rand(1, 2, 4, 4), torch.rand(3, 2, 3, 3)
    with dispatching():
        expected = torch.conv2d(x, weight)
    for _ in range(2):
        with yolo_rocm.patched(CPU, "gemm") as report, dispatching():
            torch.testing.assert_close(torch.conv2d(x, weight), expected)
        assert [served.forward_calls for served in report.served.values()] == [1]
        with dispatching():
            assert torch.equal(torch.conv2d(x, weight), expected)
