"""The interpreter of the tests leaves a Triton that compiles: where there is a GPU, both run in one process."""

from __future__ import annotations

import sys

import pytest
import torch

from tools import compile_kernels, kernel_assembly
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.triton.available import missing_reason

from .interpreted import interpreter

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


def language() -> dict[tuple[str, str], object]:
    """Return every name of Triton's language: of its modules, and of the classes that the interpreter changes."""
    import triton.language as tl

    modules = {name: module for name, module in sys.modules.items() if name.startswith("triton.language")}
    classes = {"tensor": tl.tensor, "dtype": tl.dtype, "descriptor": tl.core.tensor_descriptor_base}
    return {(owner, name): value for owner, of in (modules | classes).items() for name, value in vars(of).items()}


def test_what_has_been_interpreted_compiles_afterwards(tmp_path, monkeypatch):
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    before = language()
    problem = ConvProblem((1, 2, 5, 5), (3, 2, 3, 3), *[(1, 1)] * 3, (0, 0), 1, False, torch.float32, "cpu")
    operands = Operands.of(problem)
    with interpreter():
        y = CONVOLUTION.run(BY_NAME["triton_s"], problem, "forward", operands, 1 << 30)
        assert isinstance(sys.modules["yolo_rocm.conv.triton.kernels.implicit_gemm"].gather_gemm, InterpretedFunction)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(operands.x, operands.weight, padding=1))
    after = language()
    assert [name for name, value in before.items() if after[name] is not value] == []
    kernel = next(compile_kernels.curated("gfx1100", "fp32", True))  # it calls `tl.cdiv`
    assert isinstance(kernel_assembly.kernel_of(kernel.call), JITFunction)
    assert "v_dual_fmac" in kernel_assembly.assembly(kernel, "gfx1100")[0]
