"""Evidence: the files that `yolo-rocm certify` wrote on cards, and what they say about the presets for these cards.

A file is sealed with a digest of its content: one that was edited by hand is refused. That keeps honest people from
mistakes; it is no signature. This module imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ..errors import EvidenceError
from ..hardware import Gpu, Machine, family_of
from ..utils.limited_files import UnreadableError, read_json
from .certificate import PARTS_OF, Certificate
from .files import config_root, plain, read, shipped_presets
from .select import choose

DIGEST: Final = "digest"


@dataclass(frozen=True)
class Evidence:
    """A certificate, and the file it is in."""

    file: str
    data: Certificate

    @property
    def counts(self) -> bool:
        """Whether it says anything about a card: a quick run has left things out."""
        return not self.data.quick

    @property
    def family(self) -> str | None:
        """The family of an AMD card."""
        return family_of(self.data.card.gfx) if self.data.card.kind == "amd" else None

    @property
    def shows_triton(self) -> bool:
        """Whether all kernels of ours were right, some of engine `triton` among them, and the run was no quick one."""
        kernels = self.data.parts["kernels"]
        tried = kernels.results.get("tried")
        names = tried if isinstance(tried, dict) else ()
        return self.counts and kernels.status == "passed" and any(name.startswith("triton/") for name in names)

    def speaks_for(self, preset: str, match: Mapping[str, Any]) -> bool:
        """Return whether it was run with a preset, on the card that the preset is for: `auto` gives it this one.

        A CPU and an NVIDIA card are certified with our engines, which their presets leave out: `words` says so.

        Args:
            preset: Name of a shipped preset.
            match: Its section `match`.
        """
        card = self.data.card
        if card.kind != "amd":
            return preset == card.kind
        targets, names = match.get("gfx") or [], {plain(each) for each in match.get("names") or []}
        if targets and (card.gfx not in targets or (card.named and plain(card.name) not in names)):
            return False
        return preset == self.data.preset.name == _chosen_for(card.gfx, card.name, card.memory_gb, card.integrated)

    def evidence_of(self) -> str | None:
        """Return the shipped preset that it is evidence for, or None where it is for none."""
        name = self.data.preset.name if self.data.card.kind == "amd" else self.data.card.kind
        path = shipped_presets().get(name)
        match = (read(path).get("match") or {}) if path is not None else {}
        return name if path is not None and self.counts and self.speaks_for(name, match) else None

    def words(self) -> str:
        """Say on what it ran, when, with what, and with which result."""
        data, card = self.data, self.data.card
        below = next((f", {word} {v}" for word, v in (("ROCm", data.stack.hip), ("CUDA", data.stack.cuda)) if v), "")
        failed = [name for name in PARTS_OF[data.schema_version] if data.parts[name].status == "failed"]
        result = "passed" if data.verdict.passed else f"failed in {', '.join(failed)}"
        other = "" if card.kind == "amd" else " (our engines, not this preset)"
        stack = f"torch {data.stack.torch}{below}, yolo_rocm {data.stack.yolo_rocm}, engine {data.preset.engine}{other}"
        return f"{card.in_words}, certified {data.date} with {stack}: {result}"


def in_short(found: Sequence[Evidence]) -> str:
    """Say the newest evidence in words, and how much more there is.

    Args:
        found: Evidence for one preset, newest first; at least one.
    """
    older = found[1:]
    failed = sum(not each.data.verdict.passed for each in older)
    files = "1 more file" if len(older) == 1 else f"{len(older)} more files"
    more = f"; {files}, {failed or 'none'} of them failed" if older else ""
    return f"{found[0].words()}{more}"


def seal(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with its digest."""
    return {**data, DIGEST: digest_of(data)}


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the digest of the canonical JSON of everything but the digest."""
    rest = {key: value for key, value in data.items() if key != DIGEST}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


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
        EvidenceError: It cannot be read, is of another version, or was edited after it was written.
    """
    try:
        data = read_json(path, unique_keys=True)
    except (OSError, UnreadableError) as error:
        raise EvidenceError(f"{path.name} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(data, dict) or DIGEST not in data:
        raise EvidenceError(f"{path.name} is no file of `yolo-rocm certify`: it has no '{DIGEST}'.")
    version = data.get("schema_version")
    if isinstance(version, bool) or version not in (*PARTS_OF,):
        known = " and ".join(map(str, PARTS_OF))
        raise EvidenceError(
            f"{path.name} has schema_version {version!r}, this version reads {known}. Run `yolo-rocm certify` again."
        )
    if data[DIGEST] != _digest_of_foreign(data, path.name):
        raise EvidenceError(
            f"{path.name} was edited after `yolo-rocm certify` had written it: its digest is not that of its content. "
            "Send the file as it was written, or run the command again."
        )
    try:
        return Evidence(path.name, Certificate.model_validate(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = f"'{'.'.join(map(str, first['loc']))}' is wrong: " if first["loc"] else ""
        wrong = first["msg"].removeprefix("Value error, ")
        raise EvidenceError(f"{path.name} is no file of `yolo-rocm certify`: {where}{wrong}.") from None


def _digest_of_foreign(data: Mapping[str, Any], name: str) -> str:
    try:
        return digest_of(data)
    except (ValueError, RecursionError) as error:  # NaN, 1e999, or nested as deep as can just be read
        raise EvidenceError(f"{name} is no file of `yolo-rocm certify`: {error}.") from None


def shipped_evidence(folder: Path | None = None) -> list[Evidence]:
    """Return all evidence that is shipped, newest first.

    Raises:
        EvidenceError: A file does not verify.
    """
    paths = sorted((folder or config_root() / "evidence").glob("*.json"))
    return _newest_first(map(read_evidence, paths))


def _newest_first(found: Iterable[Evidence]) -> list[Evidence]:
    """Sort by date; of one day a failure is first, so that what is said in short does not hide it."""
    return sorted(found, key=lambda each: (each.data.date, not each.data.verdict.passed), reverse=True)


@lru_cache(maxsize=64)
def _chosen_for(gfx: str | None, name: str | None, memory_gb: float | None, integrated: bool) -> str:
    """Return the shipped preset that `auto` gives an AMD card."""
    gpu = Gpu("amd", gfx, memory_gb, name, integrated=integrated)
    return choose(Machine(gpus=(gpu,), build="hip"), own=False).name


@lru_cache(maxsize=4)
def _sound_evidence(folder: Path) -> tuple[Evidence, ...]:
    """Return what verifies: a file that does not must not keep anybody from training, it only proves nothing."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read_evidence(path))
        except EvidenceError:
            continue
    return tuple(_newest_first(found))


def evidence_for(preset: str, match: Mapping[str, Any], among: Iterable[Evidence] | None = None) -> list[Evidence]:
    """Return the evidence for a shipped preset, newest first.

    Args:
        preset: Its name.
        match: Its section `match`.
        among: What there is; all that is shipped and verifies by default.
    """
    known = _sound_evidence(config_root() / "evidence") if among is None else among
    return [each for each in known if each.counts and each.speaks_for(preset, match)]
