"""Whoever reads a block's operators finds torch's own: tracers, compilers, exporters, transforms, modes."""

from __future__ import annotations

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


def test_symbolic_tracing_sees_modules(on):
    from torch import fx

    graph = fx.symbolic_trace(block()).graph
    assert [str(node.target) for node in graph.nodes if node.op == "call_module"] == ["conv", "bn", "act"]
