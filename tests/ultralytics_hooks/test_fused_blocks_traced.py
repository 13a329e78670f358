"""Whoever reads a block's operators finds torch's own: tracers, compilers, exporters, transforms, modes."""

from __future__ import annotations

import inspect
import io
import re

import pytest
import torch

from .one_block import FORWARD, block, image

HAS_COMPILE = hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_has_the_operators_of_torch(on):
    traced = torch.jit.trace(block(), image(), check_trace=False)
    operators = {node.kind() for node in traced.inlined_graph.nodes()}
    assert {"aten::_convolution", "aten::batch_norm"} <= operators
    assert not {kind for kind in operators if "PythonOp" in kind}
    torch.jit.trace(block().eval(), image())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore::UserWarning")
def test_onnx_gets_the_operators_of_torch(on):
    onnx = pytest.importorskip("onnx")
    options = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    file = io.BytesIO()
    torch.onnx.export(block(), image(), file, training=torch.onnx.TrainingMode.TRAINING, **options)
    kinds = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    assert kinds == ["Conv", "BatchNormalization", "Sigmoid", "Mul"]


@pytest.mark.skipif(not HAS_COMPILE, reason="this torch has no compiler, or does not say when it compiles")
def test_a_compiled_block_has_the_operators_of_torch(on, called):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    module = block()
    found = torch.compile(module, backend=backend, fullgraph=True)(image())
    torch.testing.assert_close(found, FORWARD(block(), image()))
    assert re.search(r"batch_norm|bn\(", graphs[0].code)  # torch 2.4 names the module
    torch._dynamo.reset()


@pytest.mark.skipif(not hasattr(getattr(torch, "export", None), "draft_export"), reason="torch < 2.7 has other names")
@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_block_has_the_operators_of_torch(on, strict):
    program = torch.export.export(block(), (image(),), strict=strict)
    names = {getattr(node.target, "__name__", "").partition(".")[0] for node in program.graph.nodes}
    assert {"conv2d", "batch_norm", "silu"} <= names


def test_transforms_of_functions_are_refused_by_torch_itself(on, called):
    try:
        from torch.func import grad
    except ImportError:
        grad = pytest.importorskip("functorch").grad
    module = block()
    with pytest.raises(RuntimeError, match="mutate a captured Tensor"):
        grad(lambda x: module(x).square().sum())(image())
    with pytest.raises(RuntimeError, match="mutate a captured Tensor"):
        grad(lambda x: FORWARD(module, x).square().sum())(image())
    assert len(called) == 2


def test_a_transform_is_seen_where_the_input_is_no_part_of_it():
    func = pytest.importorskip("torch.func")
    from yolo_rocm.engines.torch_state import is_plain_eager

    x, seen = image(), []
    func.grad(lambda weight: seen.append(is_plain_eager(x)) or weight.sum())(torch.ones(2))
    assert seen == [False]
    assert is_plain_eager(x)


def test_symbolic_tracing_sees_modules(on):
    from torch import fx

    graph = fx.symbolic_trace(block()).graph
    assert [str(node.target) for node in graph.nodes if node.op == "call_module"] == ["conv", "bn", "act"]


def test_a_mode_that_watches_operators_sees_those_of_torch(on, called):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Watch():
        block()(image())
    assert len(called) == 1
