"""What has to be known to read the table of `bench train`, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from .faster import FEWEST_ROUNDS, preset_way
from .train_table import TrainRow
from .way import Way
from .ways import COMPILE, OFF_KIND, PRESET, STOCK_KIND


def footnote(rows: Sequence[TrainRow]) -> str:
    """Explain the words and the numbers that are in a table."""
    sentences = []
    if any(row.of_preset for row in rows):
        sentences.append(f"*: what the preset {PRESET} runs.")
    if any(row.way.endswith("channels_last") for row in rows):
        sentences.append("NHWC: channels_last.")
    sentences.append(
        "A step is forward, loss, backward, clipping and SGD; the median of interleaved turns, TF32 off, the vendor "
        "library searching for its fastest kernels (cudnn.benchmark)."
    )
    columns = ((STOCK_KIND, "to_stock"), (OFF_KIND, "to_vendor_off"))
    peers = [name for name, column in columns if any(getattr(row, column) is not None for row in rows)]
    if peers:
        memory = ", in time and in memory" if any(row.peak_mb for row in rows) else ""
        compiled = ", but for what is compiled" if any(COMPILE in row.way and row.step_ms for row in rows) else ""
        sentences.append(f"Ratios are to the faster layout of {' and of '.join(peers)}{memory};")
        sentences.append(f"those of times are medians of the ratios of each round{compiled}.")
    if any(row.loss is not None for row in rows):
        sentences.append("Loss: after two steps.")
    return " ".join(sentences)


def warnings(ways: Sequence[Way], rounds: int) -> list[str]:
    """Return a line for each thing that makes numbers of a run harder to compare.

    Args:
        ways: What has run.
        rounds: How many turns each of them was to take.
    """
    ran = [way for way in ways if way.step_ms is not None]
    lines = []
    chosen = preset_way(ways)
    apart = [way for way in ran if chosen and way.follows == chosen.kind and way.channels_last != chosen.channels_last]
    if chosen and apart:  # they had to take a layout before all rounds were done
        kinds, layout = ", ".join(way.kind for way in apart), apart[0].layout
        lines.append(
            f"{kinds}: measured in {layout}, in which {chosen.kind} had its fastest step until then, while the row of "
            f"the preset is {chosen.layout} by all rounds. Compare with {chosen.kind} {layout}."
        )
    if rounds < FEWEST_ROUNDS and len(ran) > 1:
        lines.append(
            "With so few steps ratios are of single steps, and tables and summary may contradict: give steps=30."
        )
    return lines
