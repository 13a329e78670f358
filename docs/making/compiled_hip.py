"""What the kernels of engine hip need and did on AMD targets, from the CSVs of `compile_hip` and `emulate_hip`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .benchmarks import read
from .markdown import code, joined, table

COMPILED: Final = "compiled_hip.csv"
EXECUTED: Final = "executed_hip.csv"
_ENOUGH: Final = 4  # waves of a SIMD
Rows = list[dict[str, str]]


def compiled(folder: Path) -> str:
    """Return one row for each target and compiler; the file has one for each algorithm, pass, data type and layout."""
    heads = (
        "target", "compiler", "kernels", "spilling vector registers or arrays", "spilling scalar registers",
        "most registers", "fewest waves of a SIMD", f"under {_ENOUGH} waves",
    )  # fmt: skip
    lines = (
        (
            code(target),
            compiler,
            len(members),
            sum(row["vgpr_spills"] != "0" or row["private_bytes"] != "0" for row in members),
            sum(row["sgpr_spills"] != "0" for row in members),
            max(int(row["registers"]) for row in members),
            min((int(row["waves"]) for row in members if row["waves"]), default="-"),
            _few(members),
        )
        for (target, compiler), members in _groups(read(folder / COMPILED), ("target", "compiler")).items()
    )
    return table(heads, lines)


def executed(folder: Path) -> str:
    """Return one row for each target, compiler, algorithm and pass, with both layouts in it."""
    heads = (
        "target", "compiler", "algorithm", "pass", "layouts", "largest error, of what is allowed",
        "multiply-adds of vector instructions",
    )  # fmt: skip
    lines = (
        (
            code(target),
            compiler,
            code(algorithm),
            which,
            joined(row["layout"].upper() for row in members),
            f"{max(float(row['relative_error']) / float(row['allowed_error']) for row in members):.0%}",
            _from_to([f"{float(row['fma_share']):.0%}" for row in members]),
        )
        for (target, compiler, algorithm, which), members in _groups(
            read(folder / EXECUTED), ("target", "compiler", "algorithm", "pass")
        ).items()
    )
    return table(heads, lines)


def _few(rows: Rows) -> str:
    """Return the passes of algorithms that leave room for few waves."""
    if not any(row["waves"] for row in rows):
        return "-"
    few = (row for row in rows if int(row["waves"]) < _ENOUGH)
    return joined(f"{code(row['algorithm'])} {row['pass']}" for row in few) or "none"


def _from_to(values: Sequence[str]) -> str:
    return joined(dict.fromkeys(sorted(values))).replace(", ", " to ")


def _groups(rows: Rows, names: Sequence[str]) -> dict[tuple[str, ...], Rows]:
    found: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
