"""Kernels for gfx90a and gfx942 have two entries: firmware that fills in arguments skips the loads of them."""

from __future__ import annotations

import pytest
import torch

from tools.emulator import EmulationError, Program
from yolo_rocm.engines.triton.available import missing_reason

from .compiled import Wanted, compile_all

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


def test_both_entries_compute_the_same(tmp_path):
    wanted = [
        Wanted("gfx942", "fp32", (32, 16, 16, 2, 2)),
        Wanted("gfx942", "fp16", (0, 0, 0, 0, 0), "nhwc", 12),
    ]
    for kernel in compile_all(tmp_path, wanted):
        entry = Program.parse(kernel.text).preloaded_entry
        assert entry is not None
        assert kernel.error() <= kernel.allowed
        plain, preloaded = kernel.run(), kernel.run(preloaded=True)
        assert preloaded.known[0].all()
        assert torch.equal(plain.values[0], preloaded.values[0])
        waves = plain.counts["s_endpgm"]
        assert plain.counts.total() - preloaded.counts.total() == entry * waves
        # What was filled in is what it computes with: other arguments are other addresses.
        shifted = kernel.text.replace("kernarg_preload_offset 0", "kernarg_preload_offset 1")
        assert shifted != kernel.text
        with pytest.raises(EmulationError):
            kernel.run(shifted, preloaded=True)
