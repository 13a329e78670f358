"""What the kernels of the triton engine need and did on AMD targets, from the CSV that `emulate_kernels` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from yolo_rocm.hardware import family_of
from yolo_rocm.preset.evidence import Evidence

from .benchmarks import read
from .evidence import shipped_evidence
from .markdown import code, escaped, joined, table

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
        "legal on", "executed", "largest error, of what is allowed", "multiply-adds of the GEMMs' vector instructions",
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
            sum(bool(row["instructions"]) for row in members),
            f"{max(_share(row) for row in members):.0%}",
            _multiply_adds(members),
        )
        for (target, dtype), members in groups.items()
    )
    stamp = f"Triton {joined(row['triton'] for row in rows)}, {joined(row['date'] for row in rows)}"
    said = f"{stamp}, all {len(rows)} kernels: [{FILE}]({FILE}). Executed in emulation: no AMD card was there."
    return f"{said}\n\n{table(heads, lines)}"


def rungs(folder: Path) -> str:
    """Return for each target how far the evidence goes: compiled, executed in emulation, run on a card."""
    rows, sent = read(folder / FILE), shipped_evidence()
    heads = ("target", "family", "kernels compiled", "executed in emulation", "largest error", "run on a card")
    lines = []
    for target in dict.fromkeys(row["target"] for row in rows):
        own = [row for row in rows if row["target"] == target]
        executed = [row for row in own if row["instructions"]]
        cards = [each.data.card for each in sent if _shows_triton(each)]
        cards = [card for card in cards if target == (card.presents_as or card.gfx)]
        lines.append(
            (
                code(target),
                (family_of(target) or "").upper(),
                sum(not row["error"] for row in own),
                len(executed),
                joined(_largest(executed, dtype) for dtype in dict.fromkeys(row["dtype"] for row in own)),
                joined(escaped(card.in_words) for card in cards) or "no",
            )
        )
    return table(heads, lines)


def _shows_triton(evidence: Evidence) -> bool:
    """Return whether all our kernels were right, some of engine `triton` among them, in a run that was no quick one."""
    kernels = evidence.data.parts["kernels"]
    names = kernels.results.get("tried") or ()
    return not evidence.data.quick and not kernels.failures and any(str(name).startswith("triton/") for name in names)


def executed(folder: Path, family: str | None) -> str:
    """Return the targets of a family whose kernels were executed in emulation, and how many of how many."""
    rows = [row for row in read(folder / FILE) if _row_of(row["target"]) == family]
    targets = dict.fromkeys(row["target"] for row in rows)
    if not targets:
        return "no"
    done = sum(bool(row["instructions"] and not row["error"]) for row in rows)
    return f"{joined(map(code, targets))}: {done} of {len(rows)} kernels"


def _row_of(target: str) -> str:
    """Return the family that a row of the README is for: all of CDNA have one."""
    family = family_of(target) or ""
    return "cdna" if family.startswith("cdna") else family


def _share(row: dict[str, str]) -> float:
    """Return the error of a kernel as a part of what it may be."""
    allowed = float(row["allowed_error"] or 0)
    return float(row["relative_error"]) / allowed if allowed else 0.0


def _largest(rows: Sequence[dict[str, str]], dtype: str) -> str:
    return f"{max(float(row['relative_error']) for row in rows if row['dtype'] == dtype):.1e} ({dtype})"


def _multiply_adds(rows: Sequence[dict[str, str]]) -> str:
    """Return the smallest and largest share of multiply-adds among the GEMMs' vector instructions."""
    shares = [float(row["fma_share"]) for row in rows if row["kernel"] in GEMMS]
    return f"{min(shares):.0%} to {max(shares):.0%}"


def _multipliers(rows: Sequence[dict[str, str]]) -> str:
    """Return the instructions that most products of a GEMM are made by, of all kernels."""
    first = (row["multiplies_by"].split()[:1] for row in rows if row["kernel"] in GEMMS)
    return joined(code(name) for names in first for name in names)


def _legal_on(rows: Sequence[dict[str, str]]) -> str:
    """Return the target itself, and any other on which every one of these kernels is legal too."""
    others = {row["also_legal_on"] for row in rows}
    return joined(code(name) for name in (rows[0]["target"], *(others if len(others) == 1 else ())) if name)
