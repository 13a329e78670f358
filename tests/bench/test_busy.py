"""Time of a device by class of operator, from recorded events and from a step on the CPU."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm.bench import busy
from yolo_rocm.bench.busy import LOSS_RANGE, OPTIMIZER_RANGE, Work, classify
from yolo_rocm.telemetry.classes import CLASSES, class_of

from ..tables import each_row

pytestmark = pytest.mark.once

FUNCTION = ast.FunctionDef
NODE = "autograd::engine::evaluate_function: "

# As torch's profiler has recorded them: the kernel, and the operators around it, innermost first.
RECORDED = {
    "convolution": [
        Work(1, "sm90_xmma_fprop_implicit_gemm_f32", ("aten::cudnn_convolution", "aten::_convolution", "aten::conv2d")),
        Work(1, "gather_rows", ("aten::convolution_backward", f"{NODE}ConvolutionBackward0"), node=3),
        Work(1, "ampere_sgemm_64x64_nn", ("aten::mm", "aten::thnn_conv2d", "aten::conv2d")),
    ],
    "normalisation": [
        Work(1, "at::native::batch_norm_collect_statistics_kernel", ("aten::native_batch_norm", "aten::batch_norm")),
        Work(1, "sums_of_rows", ("aten::native_batch_norm_backward", f"{NODE}NativeBatchNormBackward0"), node=9),
        Work(1, "gradients", ("_NormActBackward", f"{NODE}_NormActBackward"), node=4),
        Work(1, "cudnn::bn_bw_1C11_kernel_new"),
    ],
    "activation": [
        Work(1, "at::native::vectorized_elementwise_kernel<4, silu>", ("aten::silu_",)),
        Work(1, "vectorized_elementwise_kernel", ("aten::silu_backward", f"{NODE}SiluBackward0"), node=8),
    ],
    "loss": [
        Work(1, "at::native::sigmoid_kernel", ("aten::sigmoid", LOSS_RANGE)),
        Work(1, "vectorized_elementwise_kernel", ("aten::mul", f"{NODE}MulBackward0"), node=7),
    ],
    "optimizer": [
        Work(1, "multi_tensor_apply_kernel", ("aten::_foreach_norm", "aten::linalg_vector_norm", OPTIMIZER_RANGE)),
        Work(1, "multi_tensor_apply_kernel", ("aten::_foreach_add_", "Optimizer.step#SGD.step")),
    ],
    "other": [
        Work(1, "CatArrayBatchedCopy", ("aten::cat",)),
        Work(1, "Memcpy DtoD (Device -> Device)"),
        Work(1, "vectorized_elementwise_kernel", ("aten::mul", f"{NODE}MulBackward0"), node=6),
    ],
}


@each_row("kind", CLASSES)
def test_work_has_the_class_of_who_asked_for_it(kind):
    assert [classify(work, frozenset({7})) for work in RECORDED[kind]] == [kind] * len(RECORDED[kind])


@pytest.mark.parametrize(("room", "kind"), [("conv", "convolution"), ("norm", "normalisation")])
def test_kernels_of_ours_are_known_by_name(room, kind):
    """Each that is launched, and none of the functions that they call."""
    sources = list((Path(yolo_rocm.__file__).parent / room / "triton" / "kernels").glob("*.py"))
    functions = [f for source in sources for f in ast.walk(ast.parse(source.read_text())) if isinstance(f, FUNCTION)]
    launched = [f.name for f in functions for mark in f.decorator_list if ast.unparse(mark).startswith("triton.jit(")]
    assert len(launched) >= 8
    texts = [source.read_text() for source in (Path(yolo_rocm.__file__).parent / room / "hip").glob("*.cpp")]
    in_cpp = [name for text in texts for name in re.findall(r"^KERNEL\w*\([^)]*\)\s+void\s+(\w+)", text, re.M)]
    assert len(in_cpp) >= 6
    launched += in_cpp
    assert {class_of(name) for name in launched} == {kind}


def event(name, start=0.0, end=0.0, *, kernels=(), parent=None, sequence=-1, device="CPU"):
    return SimpleNamespace(
        name=name,
        device_type=f"DeviceType.{device}",
        time_range=SimpleNamespace(start=start, end=end),
        kernels=[SimpleNamespace(name=kernel, duration=us) for kernel, us in kernels],
        cpu_parent=parent,
        sequence_nr=sequence,
        self_cpu_time_total=end - start,
    )


def test_kernels_at_the_same_time_count_once_and_shadows_of_ranges_not_at_all():
    loss = event(LOSS_RANGE, kernels=[(LOSS_RANGE, 900.0)])
    node = event(f"{NODE}MulBackward0", sequence=7)
    events = [
        loss,
        event("aten::mul", kernels=[("times", 100.0)], parent=loss, sequence=7),
        event("aten::mul", kernels=[("times", 50.0)], parent=node),
        event("aten::conv2d", kernels=[("fast", 200.0)]),
        event(LOSS_RANGE, 0, 900, device="CUDA"),
        event("times", 0, 100, device="CUDA"),
        event("fast", 50, 250, device="CUDA"),
        event("times", 300, 350, device="CUDA"),
        event("Memset (Device)", 400, 402, device="CUDA"),  # nobody is known to have launched it
        event("wgrad_alone", 500, 510, device="CUDA"),
    ]
    found = busy.busy(events, on_gpu=True, steps=2)
    assert found.total_ms == pytest.approx((250 + 50 + 2 + 10) / 2e3)
    assert found.by_class == pytest.approx(
        {
            **dict.fromkeys(CLASSES, 0.0),
            "loss": 150 / 2e3,
            "convolution": 210 / 2e3,
            "other": 2 / 2e3,
        }
    )


def test_a_step_on_the_cpu_shows_all_classes():
    conv, norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
    optimizer = torch.optim.SGD([*conv.parameters(), *norm.parameters()], lr=0.1, momentum=0.9)
    x = torch.rand(4, 3, 32, 32)

    def step():
        y = torch.nn.functional.silu(norm(conv(x))).flatten(1)
        with torch.profiler.record_function(LOSS_RANGE):
            loss = (y.sigmoid() * y).sum()
        loss.backward()
        with torch.profiler.record_function(OPTIMIZER_RANGE):
            torch.nn.utils.clip_grad_norm_(conv.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    found = busy.measure(step, torch.device("cpu"), steps=2)
    assert not found.on_gpu
    assert min(found.by_class.values()) > 0
    assert sum(found.by_class.values()) == pytest.approx(found.total_ms)
