"""The file that `yolo-rocm certify` writes: its shape, and that it does not contradict itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..engines.names import NATIVE
from .files import plain

SCHEMA_VERSION: Final = 2
PARTS: Final = ("doctor", "kernels", "norms", "training", "bench_conv", "bench_train")
# Files of the first version were written before BatchNorm was computed by engines of ours.
PARTS_OF: Final = {1: tuple(part for part in PARTS if part != "norms"), SCHEMA_VERSION: PARTS}
# `AMD Radeon(TM) Graphics` is what drivers call a card whose name they do not know.
_NAMELESS: Final = ("", "graphics", "tmgraphics")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Card(_Strict):
    """What was certified. `gfx` is the true target, `presents_as` what an override made of it."""

    kind: Literal["amd", "nvidia", "cpu"]
    name: str | None = None
    gfx: str | None = None
    presents_as: str | None = None
    memory_gb: float | None = None
    integrated: bool = False

    def __str__(self) -> str:
        """Name it in a few words."""
        if self.name and (self.named or not self.gfx):
            return self.name
        return " ".join(word for word in (self.kind.upper(), "GPU", self.gfx) if word)

    @property
    def named(self) -> bool:
        """Whether its name tells it from other cards."""
        return plain(self.name) not in _NAMELESS

    @property
    def ran_as(self) -> str | None:
        """The target whose kernels ran."""
        return self.presents_as or self.gfx

    @property
    def in_words(self) -> str:
        """Its name, and what it ran as where that is another target than its own."""
        return str(self) if self.ran_as == self.gfx else f"{self} as {self.ran_as}"


class Stack(_Strict):
    """The software it ran with."""

    system: str
    overlays: list[str] = Field(default_factory=list)
    kernel: str | None = None
    distribution: str | None = None
    machine: str
    driver: str | None = None
    python: str
    torch: str | None = None
    build: str | None = None
    hip: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    triton: str
    ultralytics: str | None = None
    yolo_rocm: str


class Part(_Strict):
    """One part of the examination: what became of it, why it failed in full words, and its figures."""

    status: Literal["passed", "failed"]
    summary: str
    failures: list[str] = Field(default_factory=list)
    seconds: float
    results: dict[str, Any] = Field(default_factory=dict)


class Verdict(_Strict):
    """The answer."""

    passed: bool
    text: str


class PresetUsed(_Strict):
    """The preset of the training, and how it computed convolutions."""

    name: str
    engine: str
    vendor: str


class Certificate(_Strict):
    """A file, as `yolo-rocm certify` writes it."""

    schema_version: Literal[1, 2]
    card: Card
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    parts: dict[str, Part]
    preset: PresetUsed
    quick: bool
    seconds: float
    stack: Stack
    verdict: Verdict
    digest: str

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Certificate:
        wanted = PARTS_OF[self.schema_version]
        if set(self.parts) != set(wanted):
            raise ValueError(f"its parts are {', '.join(self.parts) or 'none'}, not {', '.join(wanted)}")
        for name, part in self.parts.items():
            if (part.status == "failed") != bool(part.failures):
                raise ValueError(f"part {name} has {part.status} with {len(part.failures)} failures")
        if self.verdict.passed != all(part.status == "passed" for part in self.parts.values()):
            raise ValueError("its verdict is not that of its parts")
        if "norms" in self.parts:
            _check_norms(self.parts["norms"])
        return self


def _check_norms(part: Part) -> None:
    """Refuse figures of BatchNorm that do not bear out what the part says of them.

    Raises:
        ValueError: With what is wrong.
    """
    tried = part.results.get("tried", {})
    if not isinstance(tried, dict) or not all(isinstance(facts, dict) for facts in tried.values()):
        raise ValueError("part norms has no table of what was tried")
    if part.status == "passed" and not any(_is_ours(name) for name in tried):
        raise ValueError("part norms has passed without an algorithm of ours")
    for name, facts in tried.items():
        right = facts.get("status") == "ok"
        if right and not _within(facts):
            raise ValueError(f"part norms calls {name} ok, whose error is not within what is allowed")
        if part.status == "passed" and not right and _is_ours(name):
            raise ValueError(f"part norms has passed, and {name} is {facts.get('status')}")


def _is_ours(name: str) -> bool:
    return name.partition("/")[0] not in NATIVE


def _within(facts: Mapping[str, Any]) -> bool:
    error, allowed = facts.get("error"), facts.get("allowed")
    return isinstance(error, int | float) and isinstance(allowed, int | float) and 0 <= error <= allowed
