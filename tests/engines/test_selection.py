"""From times to choices: the fastest, by whose clock, and without engines that bring next to nothing."""

from __future__ import annotations

import pytest

from yolo_rocm.engines.selection import LEAST_GAIN, fastest, winners
from yolo_rocm.engines.tuning import Timing

ENGINE = {"windows": "gemm", "columns": "gemm", "triton_m": "triton", "vendor": "vendor", "aten": "aten"}


def problem(number: int) -> str:
    return f"problem {number}"


def chosen(*rows: dict[str, tuple[float, float]], **options) -> list[str]:
    """Return the choice for the forward pass of several problems, from (device, host) times of algorithms."""
    timings = {
        problem(number + 1): {"forward": [Timing(name, *spent) for name, spent in row.items()]}
        for number, row in enumerate(rows)
    }
    found = winners(timings, ENGINE.__getitem__, **options)
    assert list(found) == list(timings)
    return [passes["forward"] for passes in found.values()]


def test_python_counts_where_the_device_would_wait_for_it():
    small = {"windows": (0.02, 0.15), "triton_m": (0.03, 0.05)}
    assert chosen(small, small) == ["triton_m", "triton_m"]
    # With a large layer beside it, Python is ahead all the time.
    large = {"windows": (5.0, 0.15), "triton_m": (9.0, 0.05)}
    assert chosen(small, large, least_gain=0.0) == ["windows", "windows"]
    slow = {"windows": (0.5, 0.4), "triton_m": (0.9, 0.3)}
    assert chosen(small, slow, least_gain=0.0) == ["triton_m", "windows"]


@pytest.mark.parametrize(("saved", "kept"), [(0.5, False), (2.0, True)])
def test_an_engine_has_to_bring_something(saved, kept):
    gain = saved * LEAST_GAIN * 2
    mostly = {"triton_m": (1.0, 0.0), "windows": (2.0, 0.0)}
    elsewhere = {"triton_m": (1.0 + gain, 0.0), "windows": (1.0, 0.0)}
    assert chosen(mostly, elsewhere) == ["triton_m", "windows" if kept else "triton_m"]
    assert chosen(mostly, elsewhere, least_gain=0.0) == ["triton_m", "windows"]


def test_an_engine_that_alone_serves_a_layer_stays():
    mostly = {"triton_m": (1.0, 0.0), "windows": (2.0, 0.0)}
    assert chosen(mostly, mostly, {"windows": (0.001, 0.0)}) == ["triton_m", "triton_m", "windows"]


def test_one_engine_after_the_other_is_left_out_but_not_more_than_allowed_in_all():
    part = 0.45 * LEAST_GAIN * 3
    rows = [
        {"triton_m": (1.0, 0.0), "windows": (9.0, 0.0), "vendor": (9.0, 0.0), "aten": (9.0, 0.0)},
        {"triton_m": (1.0 + part, 0.0), "windows": (1.0, 0.0), "vendor": (9.0, 0.0), "aten": (9.0, 0.0)},
        {"triton_m": (1.0 + part, 0.0), "windows": (9.0, 0.0), "vendor": (1.0, 0.0), "aten": (9.0, 0.0)},
    ]
    assert chosen(*rows) == ["triton_m"] * 3
    rows.append({"triton_m": (1.0 + part, 0.0), "windows": (9.0, 0.0), "vendor": (9.0, 0.0), "aten": (1.0, 0.0)})
    assert len(set(chosen(*rows))) == 2


def test_alone_the_device_counts_and_every_engine_may_serve():
    rows = {
        problem(1): {"forward": [Timing("windows", 0.02, 0.15), Timing("triton_m", 0.03, 0.05)], "grad_input": []},
        problem(2): {"forward": [Timing("windows", 1.01, 0.1), Timing("triton_m", 1.0, 0.1)]},
    }
    assert fastest(rows) == {problem(1): {"forward": "windows"}, problem(2): {"forward": "triton_m"}}
