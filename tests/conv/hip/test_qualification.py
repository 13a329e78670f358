"""What kernels of engine hip have to show before their first use on a device, shown by their host code."""

from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Planner
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of

from ..problems import made_problem
from . import on_host

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("fresh", "host"),
]
HIP = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "hip"]
KERNELS = {algorithm.tested_by().kernel: algorithm.tested_by() for algorithm in HIP}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are qualified, whether or not other tests interpret those of Triton."""
    monkeypatch.setattr(checks, "interpreted", lambda: False)


@pytest.mark.parametrize(("channels_last", "dtype"), [(False, torch.float32), (True, torch.float16)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_qualifies(kernel: str, channels_last: bool, dtype: torch.dtype) -> None:
    algorithm = KERNELS[kernel]
    problem = replace(made_problem(device="cpu"), channels_last=channels_last)
    small = CONVOLUTION.small(replace(problem, dtype=dtype if algorithm.exact else torch.float32), kernel)
    assert algorithm.not_supported_reasons(small) == small.problems() == []
    checks.check(CONVOLUTION, algorithm, small)
    assert record_of("cpu").quarantine_reason("conv", kernel, small.dtype) is None


@pytest.mark.parametrize("engine", ["hip", "auto"])
def test_what_is_measured_has_every_kernel_that_supports_the_layer(engine: str, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    problem = made_problem((1, 16, 8, 8), 16, device="cpu")
    planner = Planner(engine, remember=False)
    found = {a.name for a in planner.checked_candidates(problem) if a.engine == "hip"}
    tiles = {a.name for a in HIP if a.tested_by().kernel == "hip_gemm"} - {"hip_transposed"}
    assert found == tiles | {"hip_winograd"}
    timings = planner.tune([problem])[problem]
    timed = {which: {t.algorithm for t in timings[which] if t.algorithm.startswith("hip_")} for which in PASSES}
    for which in PASSES:
        assert timed[which] == {a.name for a in HIP if a.name in found and a.worth_measuring(problem, which)}
    assert "hip_winograd" in timed["forward"]
