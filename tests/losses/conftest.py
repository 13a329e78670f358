"""Where kernels of a loss run: Triton's interpreter on a CPU, and a GPU."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.engines.triton.available import missing_reason

from ..interpreted import interpreter


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request):
    if missing_reason() is not None:
        pytest.skip(str(missing_reason()))
    if request.param == "cpu":
        with interpreter():
            yield "cpu"
    elif torch.cuda.is_available():
        yield "cuda"
    else:
        pytest.skip("no GPU")
