"""Evidence: the files that `yolo-rocm certify` wrote on cards, and what they say about the presets for these cards.

A file is sealed with a digest of its content: one that was edited by hand is refused. That keeps honest people from
mistakes; it is no signature. This module imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..errors import EvidenceError
from ..hardware import Gpu, Machine
from ..utils.limited_files import read_json
from .files import config_root, plain, read, shipped_presets
from .select import choose

DIGEST: Final = "digest"
NEEDED_PARTS: Final = ("doctor", "kernels", "bench_train")
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
    def in_words(self) -> str:
        """Its name, and what it ran as where that is another target than its own."""
        return f"{self} as {self.presents_as}" if self.presents_as not in (None, self.gfx) else str(self)


class SoftwareStack(BaseModel):
    """The software it ran with: what is said of it here, and all else that the command has written down."""

    model_config = ConfigDict(extra="allow", frozen=True)

    system: str
    overlays: list[str] = Field(default_factory=list)
    machine: str
    torch: str | None = None
    hip: str | None = None
    cuda: str | None = None
    driver: str | None = None
    triton: str
    ultralytics: str | None = None
    yolo_rocm: str


class Part(_Strict):
    """One part of the examination: what came of it, its failures in full words, and its figures."""

    summary: str
    failures: list[str] = Field(default_factory=list)
    seconds: float
    results: dict[str, Any] = Field(default_factory=dict)


class PresetUsed(_Strict):
    """The preset of the training, and how it computed convolutions."""

    name: str
    engine: str
    vendor: str


class Certificate(_Strict):
    """A file, as `yolo-rocm certify` writes it."""

    card: Card
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    parts: dict[str, Part]
    preset: PresetUsed
    quick: bool
    seconds: float
    stack: SoftwareStack
    digest: str

    @field_validator("parts")
    @classmethod
    def _are_whole(cls, parts: dict[str, Part]) -> dict[str, Part]:
        if missing := [name for name in NEEDED_PARTS if name not in parts]:
            raise ValueError(f"part {missing[0]} is missing")
        return parts

    @property
    def failed(self) -> list[str]:
        """Names of the parts that have failed."""
        return [name for name, part in self.parts.items() if part.failures]

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if not self.failed:
            return "every part passed"
        first = "; ".join(f"{name}: {self.parts[name].failures[0]}" for name in self.failed)
        return f"{len(self.failed)} of {len(self.parts)} parts failed. {first}"


@dataclass(frozen=True)
class Evidence:
    """A certificate, and the file it is in."""

    file: str
    data: Certificate

    def speaks_for(self, preset: str, match: Mapping[str, Any]) -> bool:
        """Return whether it was run with a preset, on the card that the preset is for: `auto` gives it this one.

        A quick run has left things out and says nothing.
        A CPU and an NVIDIA card are certified with our engines, which their presets leave out: `words` says so.

        Args:
            preset: Name of a shipped preset.
            match: Its section `match`.
        """
        card = self.data.card
        if self.data.quick or card.kind != "amd":
            return not self.data.quick and preset == card.kind
        targets, names = match.get("gfx") or [], {plain(each) for each in match.get("names") or []}
        if targets and (card.gfx not in targets or (card.named and plain(card.name) not in names)):
            return False
        return preset == self.data.preset.name == _chosen_for(card.gfx, card.name, card.memory_gb, card.integrated)

    def evidence_of(self) -> str | None:
        """Return the shipped preset that it is evidence for, or None where it is for none."""
        name = self.data.preset.name if self.data.card.kind == "amd" else self.data.card.kind
        path = shipped_presets().get(name)
        match = (read(path).get("match") or {}) if path is not None else {}
        return name if path is not None and self.speaks_for(name, match) else None

    def words(self) -> str:
        """Say on what it ran, when, with what, and with which result."""
        data, card = self.data, self.data.card
        below = next((f", {word} {v}" for word, v in (("ROCm", data.stack.hip), ("CUDA", data.stack.cuda)) if v), "")
        result = f"failed in {', '.join(data.failed)}" if data.failed else "passed"
        other = "" if card.kind == "amd" else " (our engines, not this preset)"
        stack = f"torch {data.stack.torch}{below}, yolo_rocm {data.stack.yolo_rocm}, engine {data.preset.engine}{other}"
        return f"{card.in_words}, certified {data.date} with {stack}: {result}"


def in_short(evidence: Sequence[Evidence]) -> str:
    """Say the newest evidence in words, and how much more there is.

    Args:
        evidence: That for one preset, newest first; at least one.
    """
    newest, *older = evidence
    failed = sum(bool(each.data.failed) for each in older)
    return f"{newest.words()}{f'; {failed} of {len(older)} older files failed' if older else ''}"


def seal(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with its digest: that of the canonical JSON of everything else."""
    rest = {key: value for key, value in data.items() if key != DIGEST}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return {**rest, DIGEST: f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}


def as_text(data: Mapping[str, Any]) -> str:
    """Return a file's text: sorted, with a line for each value."""
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def file_name(data: Certificate) -> str:
    """Return a name for a file by its content, such as `rx5600xt-gfx1010-torch2.10-2026-11-16-0b5c2f.json`.

    The last word is from the digest: another owner, system or ROCm makes another file on the same day.
    """
    card, torch = data.card, ".".join((data.stack.torch or "none").split(".")[:2])
    name = str(card) if card.kind != "amd" else plain(card.name) if card.named else None
    words = (name, card.gfx, f"torch{torch}", data.date, data.digest.rpartition(":")[2][:6], "quick" * data.quick)
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(word for word in words if word).lower()) + ".json"


def read_evidence(path: Path) -> Evidence:
    """Read a file that `yolo-rocm certify` wrote.

    Raises:
        EvidenceError: It cannot be read, is no such file, or was edited after it was written.
    """
    try:
        data = read_json(path)
        certificate = Certificate.model_validate(data)
        is_unedited = seal(data)[DIGEST] == certificate.digest
    except OSError as error:
        raise EvidenceError(f"{path.name} cannot be read: {error.strerror or error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"'{'.'.join(map(str, first['loc']))}': {first['msg']}"
        raise EvidenceError(f"{path.name} is no file of `yolo-rocm certify`: {wrong}.") from None
    except (ValueError, RecursionError) as error:  # no JSON, NaN, 1e999, or nested as deep as can just be read
        raise EvidenceError(f"{path.name} is no file of `yolo-rocm certify`: {error}.") from None
    if not is_unedited:
        raise EvidenceError(
            f"{path.name} was edited after `yolo-rocm certify` had written it: its digest is not that of its content. "
            "Send the file as it was written, or run the command again."
        )
    return Evidence(path.name, certificate)


def evidence_folder() -> Path:
    """Return the folder of the files that are shipped."""
    return config_root() / "evidence"


def newest_first(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Sort by date; of one day a failure is first, so that what is said in short does not hide it."""
    return sorted(evidence, key=lambda each: (each.data.date, bool(each.data.failed)), reverse=True)


@lru_cache(maxsize=64)
def _chosen_for(gfx: str | None, name: str | None, memory_gb: float | None, integrated: bool) -> str:
    """Return the shipped preset that `auto` gives an AMD card."""
    gpu = Gpu("amd", gfx, memory_gb, name, integrated=integrated)
    return choose(Machine(gpus=(gpu,), build="hip"), own=False).name


@lru_cache(maxsize=4)
def _sound_evidence(folder: Path) -> tuple[Evidence, ...]:
    """Return what verifies: a file that does not must not keep anybody from training, it only proves nothing."""
    sound = []
    for path in sorted(folder.glob("*.json")):
        with suppress(EvidenceError):
            sound.append(read_evidence(path))
    return tuple(newest_first(sound))


def evidence_for(preset: str, match: Mapping[str, Any], among: Iterable[Evidence] | None = None) -> list[Evidence]:
    """Return the evidence for a shipped preset, newest first.

    Args:
        preset: Its name.
        match: Its section `match`.
        among: What there is; all that is shipped and verifies by default.
    """
    evidence = _sound_evidence(evidence_folder()) if among is None else among
    return [each for each in evidence if each.speaks_for(preset, match)]
