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
from yolo_rocm.preset.evidence import (
    Certificate,
    Evidence,
    evidence_for,
    file_name,
    read_evidence,
    seal,
    shipped_evidence,
)
from yolo_rocm.preset.files import config_root
from yolo_rocm.preset.resolve import resolve

from ..certificates import certificate, write
from ..tables import each_row

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
    "a failure less": lambda data: data["parts"]["kernels"].update(failures=[]),
    "a number": lambda data: data["parts"]["demo"]["results"].update(n=0.2),
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
        (json.dumps(seal({**certificate(), "date": "yesterday"})), "'date' is wrong"),
        (json.dumps(seal({**certificate(), "note": "more"})), "'note' is wrong"),
        (json.dumps(seal({**certificate(), "parts": {}})), "part doctor is missing"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_certificate(text, said, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(EvidenceError, match=f"^x.json .*{re.escape(said)}"):
        read_evidence(tmp_path / "x.json")


HOSTILE = {
    "NaN": ('"n": 0.1', '"n": NaN', "Out of range float"),
    "a number beyond all": ('"n": 0.1', '"n": 1e999', "Out of range float"),
    "a key twice": ('"quick": false', '"quick": true, "quick": false', "the key 'quick' is there twice"),
    "a key twice, deeper": ('"n": 0.1', '"n": 0.2, "n": 0.1', "the key 'n' is there twice"),
    "many digits": ('"n": 0.1', f'"n": {5000 * "9"}', ""),
    "deep": ('"n": 0.1', f'"n": {900 * "["}{900 * "]"}', ""),
    "deeper": ('"n": 0.1', f'"n": {9000 * "["}{9000 * "]"}', ""),
}


@pytest.mark.parametrize(("old", "new", "said"), HOSTILE.values(), ids=HOSTILE)
def test_json_that_python_reads_and_we_do_not_write(old, new, said, sent):
    folder = sent(certificate())
    text = (folder / "0.json").read_text(encoding="utf-8")
    assert old in text
    (folder / "0.json").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(EvidenceError, match=rf"^0\.json .*{re.escape(said)}"):
        read_evidence(folder / "0.json")
    assert resolve("rx5600xt", machine=LINUX).preset.evidence == "none"  # and nobody is kept from training


def test_a_missing_file(tmp_path):
    with pytest.raises(EvidenceError, match=r"no\.json cannot be read: No such file"):
        read_evidence(tmp_path / "no.json")


# certificate -> the presets it speaks for
SPEAKS = {
    "a card by its name": (certificate(), ["rx5600xt"]),
    "another card of its target": (certificate(name="Radeon RX 5700", memory_gb=8.0, preset="rx5700xt"), ["rx5700xt"]),
    "without a name, by memory": (certificate(name=None, memory_gb=5.98), ["rx5600xt"]),
    "a name that says nothing": (certificate(name="AMD Radeon Graphics", memory_gb=5.98), ["rx5600xt"]),
    "that of Windows": (certificate(name="AMD Radeon(TM) Graphics", memory_gb=5.98), ["rx5600xt"]),
    "a name that no preset has": (certificate(name="Radeon Pro 5300"), []),
    "two cards of one name": (
        certificate(name="Instinct MI50/MI60", gfx="gfx906", memory_gb=32.0, preset="mi60"),
        ["mi60"],
    ),
    "a preset of another card": (certificate(preset="rx5700xt"), []),
    "a preset for any card": (certificate(preset="generic"), []),
    "a preset of the user": (certificate(preset="jane-card"), []),
    "under an override": (certificate(presents_as="gfx1030"), ["rx5600xt"]),
    "a target that no preset has": (certificate(name="Radeon RX 580", gfx="gfx803", preset="generic"), ["generic"]),
    "NVIDIA": (H200, ["nvidia"]),
    "a CPU": (CPU, ["cpu"]),
    "NVIDIA that calls itself an AMD card": (certificate("nvidia", preset="rx5600xt"), ["nvidia"]),
    "a quick run": (certificate(quick=True), []),
}


@pytest.mark.parametrize(("data", "presets"), SPEAKS.values(), ids=SPEAKS)
def test_for_which_presets_a_certificate_speaks(data, presets, sent):
    sent(data)
    said = [name for name in yolo_rocm.presets() if resolve(name, machine=LINUX).preset.evidence != "none"]
    assert said == presets
    assert Evidence("x.json", Certificate.model_validate(data)).evidence_of() == (presets or [None])[0]


def test_what_a_preset_says(sent):
    sent(certificate(), certificate(date="2027-01-02", failed=("kernels", "demo")), CPU)
    settings = resolve("rx5600xt", machine=LINUX)
    newest, more = settings.preset.evidence.split("; ")
    stack = "with torch 2.10.0, ROCm 7.0.1, yolo_rocm 0.1.0, engine gemm"
    assert newest == f"Radeon RX 5600 XT, certified 2027-01-02 {stack}: failed in demo, kernels"
    assert more == "1 more file, none of them failed"
    assert settings.origins["evidence"] == "configs/evidence/1.json"
    assert resolve("rx5700xt", machine=LINUX).preset.evidence == "none"


def test_a_pass_hides_no_failure(sent):
    sent(certificate(), certificate(failed=("doctor",)), certificate(date="2026-01-01", failed=("doctor",)))
    newest, more = resolve("rx5600xt", machine=LINUX).preset.evidence.split("; ")
    assert newest.endswith("2026-11-16 with torch 2.10.0, ROCm 7.0.1, yolo_rocm 0.1.0, engine gemm: failed in doctor")
    assert more == "2 more files, 1 of them failed"


@pytest.mark.parametrize(("data", "preset"), [(CPU, "cpu"), (H200, "nvidia")], ids=["cpu", "nvidia"])
def test_what_ran_with_our_engines_says_so_under_a_preset_without_them(data, preset, sent):
    sent(data)
    said = resolve(preset, machine=LINUX).preset.evidence
    assert said.endswith("engine gemm (our engines, not this preset): passed")


WORDS = {
    "under an override": (certificate(presents_as="gfx1030"), "Radeon RX 5600 XT as gfx1030, certified"),
    "as itself": (certificate(presents_as="gfx1010"), "Radeon RX 5600 XT, certified"),
    "a name that says nothing": (certificate(name="AMD Radeon Graphics"), "AMD GPU gfx1010, certified"),
}


@each_row(("data", "words"), WORDS.values(), ids=WORDS)
def test_the_card_in_words(data, words):
    assert Evidence("x.json", Certificate.model_validate(data)).words().startswith(words)


SHOWN = {
    "right": ({}, True),
    "a failure elsewhere": ({"failed": ("demo",)}, True),
    "wrong kernels": ({"failed": ("kernels",)}, False),
    "without Triton": ({"triton": False}, False),
    "a quick run": ({"quick": True}, False),
}


@each_row(("made", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_shows_that_kernels_of_triton_are_right(made, shown):
    assert Evidence("x.json", Certificate.model_validate(certificate(**made))).shows_triton == shown


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
        assert each.file == file_name(each.data)
    for name in yolo_rocm.presets():
        preset = resolve(name, machine=LINUX).preset
        kinds = {each.data.card.kind for each in evidence_for(name, preset.match.model_dump())}
        assert kinds <= {name if name in ("cpu", "nvidia") else "amd"}


def test_no_shipped_preset_types_its_evidence():
    for path in [*(config_root() / "gpu").iterdir(), *(config_root() / "family").iterdir()]:
        assert "evidence" not in yaml.safe_load(path.read_text(encoding="utf-8")), path.name


@each_row(
    ("data", "name"),
    [
        (certificate(), "rx5600xt-gfx1010-torch2.10-2026-11-16-{}.json"),
        (certificate(quick=True), "rx5600xt-gfx1010-torch2.10-2026-11-16-{}-quick.json"),
        (certificate(name=None), "gfx1010-torch2.10-2026-11-16-{}.json"),
        (certificate(name="AMD Radeon Graphics"), "gfx1010-torch2.10-2026-11-16-{}.json"),
        (H200, "nvidia-h200-torch2.10-2026-11-16-{}.json"),
        (CPU, "cpu-aarch64-torch2.10-2026-11-16-{}.json"),
        (certificate(name="Instinct MI50/MI60", gfx="gfx906"), "mi50-mi60-gfx906-torch2.10-2026-11-16-{}.json"),
    ],
    ids=str,
)
def test_names_of_files(data, name):
    assert file_name(Certificate.model_validate(data)) == name.format(data["digest"].removeprefix("sha256:")[:6])


def test_two_owners_of_one_card_do_not_overwrite_each_other():
    first = certificate()
    second = seal({**first, "seconds": 6.0})
    assert file_name(Certificate.model_validate(first)) != file_name(Certificate.model_validate(second))
