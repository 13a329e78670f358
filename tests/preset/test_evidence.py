"""Evidence: a file that was edited is refused, and a file speaks for the preset of its own card and for no other."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml

import yolo_rocm
from yolo_rocm.errors import EvidenceError
from yolo_rocm.hardware import Machine
from yolo_rocm.preset import evidence
from yolo_rocm.preset.evidence import Certificate, evidence_for, file_name, read_evidence, seal, shipped_evidence
from yolo_rocm.preset.files import config_root
from yolo_rocm.preset.resolve import resolve

from ..certificates import certificate, write

pytestmark = pytest.mark.once
LINUX = Machine(system="linux", overlays=("linux",))
H200 = certificate("nvidia", "NVIDIA H200", None, 140.0, preset="generic")
CPU = certificate("cpu", "CPU aarch64", None, None, preset="cpu")


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Return a function that makes certificates the only ones that are shipped."""
    root = tmp_path / "configs"
    shutil.copytree(config_root(), root, ignore=shutil.ignore_patterns("evidence"))
    monkeypatch.setattr(evidence, "config_root", lambda: root)

    def send(*certificates):
        for number, data in enumerate(certificates):
            write(root / "evidence", f"{number}.json", data)
        evidence._sound_evidence.cache_clear()
        return root / "evidence"

    yield send
    evidence._sound_evidence.cache_clear()


def test_a_file_comes_back_as_it_was_written(tmp_path):
    path = write(tmp_path, "card.json", certificate())
    found = read_evidence(path)
    assert (found.file, found.data.card.gfx, found.family) == ("card.json", "gfx1010", "rdna1")
    assert list(json.loads(path.read_text())) == sorted(certificate())
    path.write_text(json.dumps(json.loads(path.read_text())), encoding="utf-8")  # the same on one line
    assert read_evidence(path) == found


EDITS = {
    "a verdict": lambda data: data["verdict"].update(passed=True),
    "a number": lambda data: data["parts"]["training"]["results"].update(n=0.2),
    "a card": lambda data: data["card"].update(name="Radeon RX 9070 XT"),
    "a part less": lambda data: data["parts"].pop("kernels"),
    "a key more": lambda data: data.update(note="I was here"),
    "a digest": lambda data: data.update(digest="sha256:" + 64 * "0"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_file_is_refused_by_its_name(edit, tmp_path):
    data = certificate(failed=("kernels",))
    edit(data)
    path = write(tmp_path / "sent", "my-card.json", data)
    with pytest.raises(EvidenceError, match=r"my-card\.json was edited after `yolo-rocm certify`"):
        read_evidence(path)
    with pytest.raises(EvidenceError, match=r"my-card\.json"):
        shipped_evidence(path.parent)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read: not JSON"),
        ("[]", "no file of `yolo-rocm certify`"),
        ('{"a": 1}', "it has no 'digest'"),
        (json.dumps(seal({"schema_version": 2})), "has schema_version 2, this version reads 1"),
        (json.dumps(seal({**certificate(), "date": "yesterday"})), "'date' is wrong"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_certificate(text, said, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(EvidenceError, match=f"^x.json .*{re.escape(said)}"):
        read_evidence(tmp_path / "x.json")


def test_a_missing_file(tmp_path):
    with pytest.raises(EvidenceError, match=r"no\.json cannot be read: No such file"):
        read_evidence(tmp_path / "no.json")


# certificate -> the presets it speaks for
SPEAKS = {
    "a card by its name": (certificate(), ["rx5600xt"]),
    "another card of its target": (certificate(name="Radeon RX 5700", memory_gb=8.0, preset="rx5700xt"), ["rx5700xt"]),
    "without a name, by memory": (certificate(name=None, memory_gb=5.98), ["rx5600xt"]),
    "a name that no preset has": (certificate(name="Radeon Pro 5300"), []),
    "two cards of one name": (certificate(name="Instinct MI50/MI60", gfx="gfx906", memory_gb=32.0), ["mi60"]),
    "a target that no preset has": (certificate(name="Radeon RX 580", gfx="gfx803", preset="generic"), ["generic"]),
    "NVIDIA": (H200, ["nvidia"]),
    "a CPU": (CPU, ["cpu"]),
    "NVIDIA that calls itself an AMD card": (certificate("nvidia", preset="rx5600xt"), ["nvidia"]),
    "a quick run": (certificate(quick=True), []),
}


@pytest.mark.parametrize(("data", "presets"), SPEAKS.values(), ids=SPEAKS)
def test_for_which_presets_a_certificate_speaks(data, presets, sent):
    sent(data)
    said = {name for name in yolo_rocm.presets() if resolve(name, machine=LINUX).preset.evidence != "none"}
    assert said == set(presets)


def test_what_a_preset_says(sent):
    sent(certificate(), certificate(date="2027-01-02", failed=("kernels", "training")), CPU)
    settings = resolve("rx5600xt", machine=LINUX)
    newer, older = settings.preset.evidence.split("; ")
    stack = "with torch 2.10.0, ROCm 7.0.1, yolo_rocm 0.1.0, engine gemm"
    assert newer == f"Radeon RX 5600 XT, certified 2027-01-02 {stack}: failed in kernels, training"
    assert older == f"Radeon RX 5600 XT, certified 2026-11-16 {stack}: passed"
    assert settings.origins["evidence"] == "configs/evidence/1.json, configs/evidence/0.json"
    assert resolve("rx5700xt", machine=LINUX).preset.evidence == "none"


def test_a_preset_of_the_user_has_its_own_words_or_those_of_its_base(sent):
    sent(CPU)
    own = resolve({"base": "cpu", "name": "mine", "evidence": "my desk"}, machine=LINUX)
    assert own.preset.evidence == "my desk"
    assert resolve({"base": "cpu", "name": "mine"}, machine=LINUX).preset.evidence.startswith("CPU aarch64, certified")


def test_an_edited_file_proves_nothing_and_stops_nobody(sent):
    sent({**certificate(), "date": "2027-01-01"})
    assert resolve("rx5600xt", machine=LINUX).preset.evidence == "none"


def test_every_shipped_file_verifies_and_has_the_name_of_its_content():
    found = shipped_evidence()
    assert "cpu" in {each.data.card.kind for each in found}
    for each in found:
        assert each.counts, f"{each.file} is of a quick run"
        assert each.file == file_name(each.data.card, each.data.stack)
    for name in yolo_rocm.presets():
        preset = resolve(name, machine=LINUX).preset
        kinds = {each.data.card.kind for each in evidence_for(name, preset.match.model_dump())}
        assert kinds <= {name if name in ("cpu", "nvidia") else "amd"}


def test_no_shipped_preset_types_its_evidence():
    for path in [*(config_root() / "gpu").iterdir(), *(config_root() / "family").iterdir()]:
        assert "evidence" not in yaml.safe_load(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (certificate(), "rx5600xt-gfx1010-torch2.10.json"),
        (certificate(name=None), "gfx1010-torch2.10.json"),
        (H200, "nvidia-h200-torch2.10.json"),
        (CPU, "cpu-aarch64-torch2.10.json"),
        (certificate(name="Instinct MI50/MI60", gfx="gfx906"), "mi50-mi60-gfx906-torch2.10.json"),
    ],
    ids=str,
)
def test_names_of_files(data, name):
    made = Certificate.model_validate(data)
    assert file_name(made.card, made.stack) == name
