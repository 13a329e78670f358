"""Engines and algorithms, and what each refuses, in the words of the reasons that errors give."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import torch

from yolo_rocm.conv.algorithms import ALGORITHMS, Algorithm
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.hip.available import device_reason as hip_reason
from yolo_rocm.engines.names import ENGINES
from yolo_rocm.engines.triton.available import device_reason as triton_reason

from .markdown import code, first_paragraph, joined, table

_ENGINES: Final = {
    "auto": (
        "the fastest of all of these for each layer and pass; `vendor` only where the vendor library is on, by the "
        "preset or because the doctor found it healthy"
    ),
    "vendor": "MIOpen or cuDNN, as torch would",
    "aten": "torch's own kernels with the vendor library off, forward and backward",
    "gemm": "this package, in pure PyTorch (torch >= 1.13)",
    "triton": "this package, in kernels that Triton compiles for the card",
    "hip": "this package, in kernels in C++ that hiprtc or NVRTC, inside torch, compiles for the card (torch >= 1.13)",
}


def _problem(
    kernel: int = 3,
    *,
    stride: int = 1,
    padding: int | None = None,
    dilation: int = 1,
    groups: int = 1,
    transposed: bool = False,
    dtype: torch.dtype = torch.float32,
    spatial: int = 2,
    channels: tuple[int, int] = (64, 64),
    channels_last: bool = False,
) -> ConvProblem:
    into, out = channels
    pad = kernel // 2 * dilation if padding is None else padding
    weight = (into, out // groups) if transposed else (out, into // groups)
    return ConvProblem(
        (16, into, *[40] * spatial), (*weight, *[kernel] * spatial), (stride,) * spatial, (pad,) * spatial,
        (dilation,) * spatial, (0,) * spatial, groups, transposed, dtype, "cuda:0", channels_last,
    )  # fmt: skip


# What convolutions a YOLO has, and some that it has not; for a GPU, in NCHW, with 64 channels unless said otherwise.
PROBLEMS: Final[dict[str, ConvProblem]] = {
    "1x1": _problem(1),
    "3x3": _problem(),
    "3x3, stride 2": _problem(stride=2),
    "3x3, 3 channels in": _problem(stride=2, channels=(3, 16)),
    "3x3, dilated": _problem(dilation=2),
    "3x3, groups": _problem(groups=4),
    "3x3, depthwise": _problem(groups=64),
    "7x7": _problem(7),
    "transposed 2x2": _problem(2, stride=2, padding=0, transposed=True),
    "transposed 3x3": _problem(stride=2, transposed=True),
    "3x3, fp16": _problem(dtype=torch.float16),
    "3x3, bf16": _problem(dtype=torch.bfloat16),
    "3x3, fp64": _problem(dtype=torch.float64),
    "3x3, channels_last": _problem(channels_last=True),
    "1-d": _problem(spatial=1),
    "3-d": _problem(spatial=3),
}


def _by_engine() -> dict[str, list[Algorithm]]:
    names = dict.fromkeys([*ENGINES, *(algorithm.engine for algorithm in ALGORITHMS)])
    return {name: [algorithm for algorithm in ALGORITHMS if algorithm.engine == name] for name in names}


def engines() -> str:
    """Return the engines that a preset may name, each with its algorithms."""
    rows = []
    for name, algorithms in _by_engine().items():
        words = _ENGINES.get(name, "")
        if len(algorithms) > 1:
            words += f": {len(algorithms)} algorithms, the fastest for each layer and pass"
        rows.append((code(name), words))
    return table(("`conv.engine`", "convolutions are computed by"), rows)


def algorithms() -> str:
    """Return every algorithm with what it does and what it supports, in the words of its own docstrings."""
    parts = []
    for engine, members in _by_engine().items():
        if not members:
            continue
        rows = (
            (
                code(label),
                first_paragraph(type(algorithm)),
                first_paragraph(algorithm.not_supported_reasons).removeprefix("Support "),
                "" if algorithm.exact else "its error is measured as well as its time",
            )
            for label, algorithm in _kinds_of(members).items()
        )
        parts += [
            f"### Engine `{engine}`",
            *_role(engine, members),
            table(("algorithm", "how", "what it supports", "note"), rows),
        ]
    return "\n\n".join(parts)


def _kinds_of(members: Sequence[Algorithm]) -> dict[str, Algorithm]:
    """Return one algorithm of each kind: those of one class that support the same differ in nothing a page shows."""
    alike: dict[str, list[Algorithm]] = {}
    for member in members:
        alike.setdefault(f"{type(member)} {_refusals(member)}", []).append(member)
    return {_label([member.name for member in group]): group[0] for group in alike.values()}


def _label(names: Sequence[str]) -> str:
    """Return names as one, what differs in braces: `triton_{s,m}_turned`."""
    if len(names) == 1:
        return names[0]
    start = _shared(names)
    rest = [name[start:] for name in names]
    end = _shared([name[::-1] for name in rest])
    middles = (name[: len(name) - end] for name in rest)
    return f"{names[0][:start]}{{{','.join(middles)}}}{rest[0][len(rest[0]) - end :]}"


def _shared(words: Sequence[str]) -> int:
    """Return how many letters words have in common at their beginning."""
    alike = (len(set(letters)) == 1 for letters in zip(*words, strict=False))
    return len(list(takewhile(bool, alike)))


def _role(engine: str, members: list[Algorithm]) -> list[str]:
    """Return what the modules of an engine with kernels of its own say about themselves."""
    if engine not in ("triton", "hip"):
        return []
    modules = dict.fromkeys(type(member).__module__ for member in members)
    said = dict.fromkeys(" ".join((sys.modules[name].__doc__ or "").split()) for name in modules)
    return [words for words in said if words]


def limits() -> str:
    """Return which algorithm supports what, and every kind of reason given for the rest."""
    refused = {label: _refusals(algorithm) for label, algorithm in _kinds_of(ALGORITHMS).items()}
    never = [name for name, reasons in refused.items() if not any(reasons.values())]
    supported = table(
        ("convolution", "computed by"),
        (
            (what, joined(code(name) for name, reasons in refused.items() if name not in never and not reasons[what]))
            for what in PROBLEMS
        ),
    )
    reasons = table(
        ("algorithm", "reasons it gave against the others"),
        ((code(name), "; ".join(_kinds(found))) for name, found in refused.items() if name not in never),
    )
    return f"Nothing is refused by {joined(map(code, never))}. The others:\n\n{supported}\n\n{reasons}"


def _refusals(algorithm: Algorithm) -> dict[str, list[str]]:
    """Return the reasons against each problem, less those of this machine: against all, or said of its device."""
    found = {name: algorithm.not_supported_reasons(problem) for name, problem in PROBLEMS.items()}
    here = set.intersection(*(set(reasons) for reasons in found.values()))
    for asked in (triton_reason, hip_reason):
        here |= {reason for problem in PROBLEMS.values() if (reason := asked(problem.device)) is not None}
    return {name: [reason for reason in reasons if reason not in here] for name, reasons in found.items()}


def _kinds(found: dict[str, list[str]]) -> list[str]:
    """Return reasons, of those that differ in numbers alone the first."""
    kinds: dict[str, str] = {}
    for reason in (reason for reasons in found.values() for reason in reasons):
        kinds.setdefault(re.sub(r"\d+(, ?\d*)*", "0", reason), reason)
    return list(kinds.values())
