"""`yolo-rocm bench predict-model`: latency of the network alone, as a predictor calls it, next to its rivals.

All ways of one batch run in one process of its own, in turns, so that a clock that changes hits all of them; a process
that crashes or hangs costs its batch and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ConfigError
from ..preset.resolve import resolve
from ..ultralytics_hooks import models
from ..utils.child_process import run_module
from .checks import check, loaded

STOCK, TORCHSCRIPT, COMPILED, COMPILED_GRAPHS = "stock", "torchscript", "compile", "compile reduce-overhead"
OURS, OURS_FUSED, OURS_GRAPH = "ours", "ours fused", "ours fused + graph"
WAYS: Final = (STOCK, TORCHSCRIPT, COMPILED, COMPILED_GRAPHS, OURS, OURS_FUSED, OURS_GRAPH)
_TIMEOUT_S: Final = 900


@dataclass(frozen=True)
class Latency:
    """What one way takes for one batch.

    Attributes:
        way: One of `WAYS`.
        batch: Images.
        median_ms: Of all calls, from the call until the device is done.
        p95_ms: Of all calls.
        to_stock: The median, divided by that of stock.
        setup_s: From the first call until it is as fast as it gets: compiling, measuring, recording.
        departure: Distance from stock's predictions in fp32 on the same device, relative to their length.
        said: What our own ways have decided, in words.
        error: Why there is nothing else.
    """

    way: str
    batch: int
    median_ms: float | None = None
    p95_ms: float | None = None
    to_stock: float | None = None
    setup_s: float | None = None
    departure: float | None = None
    said: str = ""
    error: str = ""


def rows(given: dict[str, Any], progress: Callable[[int, int], None]) -> list[Latency]:
    """Return the latencies of every way for every batch.

    Args:
        given: `model`, `batch` (one, or several by commas), `imgsz`, `half`, `ways` (names by commas, or `all`),
            `preset` of our ways, `rounds` and `calls` of each round.
        progress: Called with (batches done, all).

    Raises:
        ConfigError: One of them is wrong.
    """
    batches, ways = _numbers(given["batch"]), _names(given["ways"])
    check({key: value for key, value in given.items() if key != "batch"})
    if given.get("preset") is not None:
        resolve(given["preset"])
    loaded(models.torch_module, given["model"], given["imgsz"])
    found: list[Latency] = []
    for done, batch in enumerate(batches):
        progress(done, len(batches))
        found += _in_child({**given, "batch": batch, "ways": ways})
    progress(len(batches), len(batches))
    return found


def _numbers(text: Any) -> list[int]:
    try:
        numbers = [int(part) for part in str(text).strip("[]()").split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"batch takes numbers above 0 joined by commas, such as 1,8,32; got {text!r}.")
    return numbers


def _names(text: Any) -> list[str]:
    names = list(WAYS) if text == "all" else [part.strip() for part in str(text).split(",")]
    unknown = [name for name in names if name not in WAYS]
    if unknown:
        raise ConfigError(f"unknown way {unknown[0]!r}. Allowed: all, or some of: {', '.join(WAYS)}.")
    return list(dict.fromkeys([STOCK, *names]))


def _in_child(given: dict[str, Any]) -> list[Latency]:
    result = run_module("yolo_rocm.bench.predict_model_child", given, _TIMEOUT_S)
    by_way = {way: Latency(**row) for way, row in result.answer.items()}
    return [by_way.get(way) or Latency(way, given["batch"], error=result.error) for way in given["ways"]]
