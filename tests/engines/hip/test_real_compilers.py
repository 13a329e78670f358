"""The prelude under the compiler that is here: NVRTC of torch's own wheels, which needs no GPU to compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from yolo_rocm.engines.hip.libraries import STACKS, candidates, folders, torch_folder
from yolo_rocm.engines.hip.program import Program
from yolo_rocm.engines.hip.target import Target
from yolo_rocm.engines.hip.workers import Pool

from .test_gpu import SOURCE

# Everything in the prelude, in all storage types.
EVERYTHING = """
KERNEL(256) void everything(const T* a, T* c, float* f, i64 n) {
    SHARED f4 tile[256];
    DYNAMIC_SHARED(float, more);
    i64 i = (i64(block_z()) * 7 + block_y() * 3 + block_x()) * 256 + thread_x();
    if (i >= n) return;
    f4 v = load4f(a + 4 * i);
    v.x = wave_sum(fma_f(v.x, v.y, v.z)) + to_float(a[i]);
    v.y = max_f(sigmoid_f(v.y), min_f(exp_f(v.z), rsqrt_f(v.w)));
    tile[thread_x()] = v;
    more[thread_x()] = rcp_f(v.x);
    barrier();
    f2 pair = load2(more + 2 * (thread_x() / 2));
    store2(f + 2 * i, pair);
    store4(f + 4 * i, tile[255 - thread_x()]);
    store4f(c + 4 * i, load4(f + 4 * i));
    c[i] = from_float<T>(v.y + float(WAVE + IS_AMD + IS_NVIDIA + RDNA));
}
KERNEL_WAVES(128, 4) void waves(float* f) { UNROLL for (i32 k = 0; k < 4; k++) f[thread_x() * 4 + k] = float(k); }
"""


@pytest.fixture(scope="module")
def pool():
    """Compile in processes of their own."""
    made = Pool(most=1)
    yield made
    made.close()


def nvrtc() -> str | None:
    """Return NVRTC of the installed torch."""
    stack = STACKS["cuda", "linux"]
    places = folders(stack, torch_folder(), {})
    return next((path for path in candidates(stack.compiler, places, []) if Path(path).is_absolute()), None)


pytestmark = pytest.mark.skipif(nvrtc() is None, reason="this torch brings no NVRTC")


def built(pool: Pool, text: str, name: str, kind: str) -> bytes:
    """Compile a program for one data type."""
    program, target = Program(text, name, {"T": kind}), Target("cuda", "sm_80")
    return pool.compile(str(nvrtc()), target.family, program.text(), program.name, target.options(), 120.0)[0]


@pytest.mark.parametrize("kind", ["float", "half_t", "bf16_t"])
def test_nvrtc_compiles_the_prelude_and_the_source_of_the_gpu_tests(pool, kind):
    code = built(pool, EVERYTHING, "everything.cpp", kind)
    assert code.startswith(b"\x7fELF")
    assert all(kernel in code for kernel in (b"everything", b"waves"))
    assert built(pool, SOURCE, "gpu.cpp", kind)
