"""Engine `hip` on a real GPU: streams, graphs, threads, shared memory, storage types. NVRTC compiles on NVIDIA."""

from __future__ import annotations

import ctypes

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.hip import available
from yolo_rocm.engines.hip.program import Kernel, Program
from yolo_rocm.engines.hip.target import target_of
from yolo_rocm.engines.kernel_errors import LaunchError
from yolo_rocm.hardware.catalogue import wave_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SOURCE = """
KERNEL(256) void add(const T* a, const T* b, T* c, i64 n, float s) {
    i64 i = i64(block_x()) * 256 + thread_x();
    if (i < n) c[i] = from_float<T>(fma_f(to_float(a[i]), s, to_float(b[i])));
}
KERNEL(256) void sums(const float* a, float* c) {
    u32 i = block_x() * 256 + thread_x();
    c[i] = wave_sum(a[i]);
}
KERNEL(256) void turned(const float* a, float* c, i32 n) {
    DYNAMIC_SHARED(float, kept);
    for (i32 i = thread_x(); i < n; i += 256) kept[i] = a[i];
    barrier();
    for (i32 i = thread_x(); i < n; i += 256) c[i] = kept[n - 1 - i];
}
KERNEL(256) void functions(const T* a, T* c) {
    u32 i = 4 * (block_x() * 256 + thread_x());
    f4 v = load4f(a + i);
    v.x = sigmoid_f(v.x);
    v.y = exp_f(v.y);
    v.z = rsqrt_f(v.z);
    store4f(c + i, v);
}
"""
N = 1 << 16
TYPES = {torch.float32: "float", torch.float16: "half_t", torch.bfloat16: "bf16_t"}


@pytest.fixture(autouse=True)
def _anew(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    STATE.clear()
    why = available.device_reason("cuda:0")
    if why is not None:
        pytest.skip(why)
    yield
    STATE.clear()


def made(dtype: torch.dtype = torch.float32, **defines: int) -> Program:
    """Return the program for a data type."""
    return Program(SOURCE, "test.cpp", {"T": TYPES[dtype], **defines})


def operands(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return two tensors and a result that is all NaN."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    a, b = (torch.randn(N, device="cuda", generator=generator).to(dtype) for _ in range(2))
    return a, b, torch.full_like(a, float("nan"))


def run(kernel: Kernel, grid: tuple[int, int, int], *arguments: object, block: int = 256) -> None:
    """Launch a kernel once, on tensors and numbers."""
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    settled = (None if isinstance(each, torch.Tensor) else each for each in arguments)
    kernel.bound(grid, block, *settled)(*(each.data_ptr() for each in tensors))


def add(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Compute `c = 2.5 a + b`."""
    run(kernel, (-(-a.numel() // 256), 1, 1), a, b, c, ctypes.c_int64(a.numel()), 2.5)


def right(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Return whether it is."""
    expected = (a.double() * 2.5 + b.double()).to(c.dtype)
    return torch.allclose(c.double(), expected.double(), rtol=2 * torch.finfo(c.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_storage_types_and_functions_of_the_prelude(dtype):
    a, b, c = operands(dtype)
    kernel = made(dtype).kernel("add", "cuda:0")
    add(kernel, a, b, c)
    assert right(a, b, c)
    assert kernel.local_bytes == 0
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -0.0, 6e-8], device="cuda").to(dtype)
    a = torch.zeros(N, device="cuda", dtype=dtype)
    a[:6] = special
    add(kernel, torch.zeros_like(a), a, c)
    assert torch.equal(c[:6].nan_to_num(7.0), special.nan_to_num(7.0))
    x = (torch.rand(N, device="cuda") * 4 + 0.5).to(dtype)
    run(made(dtype).kernel("functions", "cuda:0"), (N // 1024, 1, 1), x, c)
    v = x.double().view(-1, 4)
    expected = torch.stack((v[:, 0].sigmoid(), v[:, 1].exp(), v[:, 2].rsqrt(), v[:, 3]), 1).view(-1)
    assert float(((c.double() - expected) / expected).abs().max()) <= 4 * torch.finfo(dtype).eps


def test_sums_over_a_wave_and_64_kb_of_shared_memory():
    a, _, c = operands()
    run(made().kernel("sums", "cuda:0"), (N // 256, 1, 1), a, c)
    expected = a.double().view(-1, wave_of(target_of("cuda:0").gfx) or 32).sum(1, keepdim=True)
    assert torch.allclose(c.double().view(len(expected), -1), expected.expand(len(expected), -1), atol=1e-4)
    size = 16384
    run(made().kernel("turned", "cuda:0", 4 * size), (1, 1, 1), a, c, size)
    assert torch.equal(c[:size], a[:size].flip(0))


def test_a_graph_is_recorded_even_where_the_kernel_is_loaded_meanwhile():
    a, b, c = operands()
    c.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(made(ANOTHER=1).kernel("add", "cuda:0"), a, b, c)
    torch.cuda.synchronize()
    assert float(c.abs().sum()) == 0.0
    graph.replay()
    assert right(a, b, c)


def test_a_refused_launch_leaves_the_device_alive():
    a, b, c = operands()
    kernel = made().kernel("add", "cuda:0")
    with pytest.raises(LaunchError, match=r"test.cpp:add on cuda:0 was not launched: .+ \(\d+\)"):
        run(kernel, (1, 1, 1), a, b, c, ctypes.c_int64(N), 2.5, block=4096)
    add(kernel, a, b, c)
    assert right(a, b, c)
