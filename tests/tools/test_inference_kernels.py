"""Kernels with an activation in their epilogue, for AMD cards that are not there: compiled, and a sample executed."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.engines.triton.available import missing_reason

from .child import python

pytestmark = pytest.mark.once
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))

RUN = """
import json, sys, torch
from tools import compile_kernels, conv_kernels
from tools.emulate_kernels import emulated
torch.set_num_threads(1)
answer = emulated if sys.argv[1] == "execute" else None
kernels = [
    (next(k for k in conv_kernels.curated_inference(target, dtype, layout == "nhwc") if k.name == name), target)
    for target, name, dtype, layout in json.loads(sys.argv[2])
]
rows = compile_kernels.build_all(kernels, 1, answer)
print(json.dumps(rows))
"""


def built(how, wanted, tmp_path):
    ended = python(tmp_path, RUN, how, json.dumps(wanted))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.deep
@with_triton
def test_a_tile_that_adds_a_bias_and_activates_compiles_without_spills(tmp_path):
    wanted = [("gfx1100", "forward_flat silu", "fp32", "nchw"), ("gfx942", "forward silu", "fp16", "nhwc")]
    for row in built("compile", wanted, tmp_path):
        assert not row["error"], row
        assert row["spills"] == 0, row


@with_triton
def test_an_activation_in_the_epilogue_computes_what_fp64_does(tmp_path):
    (row,) = built("execute", [("gfx1100", "depthwise 3x3 silu", "fp32", "nchw")], tmp_path)
    assert not row["error"], row
    assert row["relative_error"] <= row["allowed_error"]
