"""What the kernels of the triton engine need on AMD cards, from the CSV that compiling them for each target wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .benchmarks import read
from .markdown import code, joined, table

FILE: Final = "compiled.csv"
# Kernels with a matrix to multiply; the others move bytes.
GEMMS: Final = ("forward", "grad_input", "grad_weight", "grad_weight_rows", "forward_flat")


def compiled(folder: Path) -> str:
    """Return one row for each target and data type; the file has one for each kernel, tile and layout."""
    rows = read(folder / FILE)
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["target"], row["dtype"]), []).append(row)
    heads = (
        "target", "dtype", "kernels", "failed", "spilling", "most registers", "least occupancy", "GEMMs multiply by",
        "legal on",
    )  # fmt: skip
    lines = (
        (
            code(target),
            dtype,
            len(members),
            sum(bool(row["error"]) for row in members),
            sum(row["spills"] != "0" for row in members),
            max(int(row["registers"]) for row in members),
            min(int(row["occupancy"]) for row in members),
            _multipliers(members),
            _legal_on(members),
        )
        for (target, dtype), members in groups.items()
    )
    stamp = f"Triton {joined(row['triton'] for row in rows)}, {joined(row['date'] for row in rows)}"
    said = f"{stamp}, all {len(rows)} kernels: [{FILE}]({FILE}). Compiled, not run: no AMD card was there."
    return f"{said}\n\n{table(heads, lines)}"


def _multipliers(rows: Sequence[dict[str, str]]) -> str:
    """Return the instructions that most products of a GEMM are made by, of all kernels."""
    first = (row["multiplies_by"].split()[:1] for row in rows if row["kernel"] in GEMMS)
    return joined(code(name) for names in first for name in names)


def _legal_on(rows: Sequence[dict[str, str]]) -> str:
    """Return the target itself, and any other on which every one of these kernels is legal too."""
    others = {row["also_legal_on"] for row in rows}
    return joined(code(name) for name in (rows[0]["target"], *(others if len(others) == 1 else ())) if name)
