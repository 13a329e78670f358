"""TF32 is read and switched off without an error, whichever of torch's settings a program has used, and comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from yolo_rocm.conv.triton.common import tf32
from yolo_rocm.engines.precision import tf32_allowed, without_tf32

from ..conv.problems import made_problem

MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn


def asked(read):
    try:
        return read()
    except (RuntimeError, AttributeError, AssertionError) as error:
        return type(error).__name__


def newer() -> bool:
    return asked(lambda: MATMUL.fp32_precision) in ("none", "ieee", "tf32")


def state() -> dict[str, object]:
    """Return everything that torch has to say about TF32, or that it refuses to."""
    return {
        "matmul": asked(lambda: MATMUL.allow_tf32),
        "cudnn": asked(lambda: CUDNN.allow_tf32),
        "precision": asked(torch.get_float32_matmul_precision),
        "newer": asked(lambda: MATMUL.fp32_precision),
        "conv": asked(lambda: CUDNN.conv.fp32_precision),
        "rnn": asked(lambda: CUDNN.rnn.fp32_precision),
        "all": asked(lambda: torch.backends.fp32_precision),
        "mkldnn": asked(lambda: torch.backends.mkldnn.matmul.fp32_precision),
    }


@pytest.fixture(autouse=True)
def torch_begins_and_ends_with_its_defaults():
    def defaults():
        torch.set_float32_matmul_precision("highest")
        MATMUL.allow_tf32, CUDNN.allow_tf32 = False, True
        if newer():
            torch.backends.fp32_precision = MATMUL.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"

    defaults()
    yield
    defaults()


OLDER = {
    "nothing": (lambda: None, False),
    "allow_tf32": (lambda: setattr(MATMUL, "allow_tf32", True), True),
    "cudnn.allow_tf32 off": (lambda: setattr(CUDNN, "allow_tf32", False), False),
    "medium": (lambda: torch.set_float32_matmul_precision("medium"), True),
}
NEWER = {
    "matmul tf32": (lambda: setattr(MATMUL, "fp32_precision", "tf32"), True),
    "all tf32": (lambda: setattr(torch.backends, "fp32_precision", "tf32"), True),
    "all ieee": (lambda: setattr(torch.backends, "fp32_precision", "ieee"), False),
    "conv ieee": (lambda: setattr(CUDNN.conv, "fp32_precision", "ieee"), False),
}
WAYS = {**OLDER, **(NEWER if newer() else {})}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_read_and_off_inside_and_as_it_was_outside_also_after_an_error(way):
    chosen, allowed = WAYS[way]
    chosen()
    assert tf32_allowed() is tf32(made_problem()) is allowed
    assert not tf32(replace(made_problem(), dtype=torch.float16))
    before = state()
    with pytest.raises(KeyboardInterrupt), without_tf32():
        assert not tf32_allowed()
        inside = state()
        assert "tf32" not in (inside["newer"], inside["conv"], inside["rnn"])
        for library in ("matmul", "cudnn"):  # who reads the older setting can go on
            assert before[library] == "RuntimeError" or inside[library] is False
        raise KeyboardInterrupt
    assert state() == before


@pytest.mark.skipif(not newer(), reason="this torch has no fp32_precision")
def test_what_follows_the_setting_above_follows_it_afterwards():
    for precision in ("tf32", "ieee"):
        torch.backends.fp32_precision = precision
        with without_tf32():
            assert MATMUL.fp32_precision == CUDNN.conv.fp32_precision == "ieee"
        assert MATMUL.fp32_precision == precision
