"""Evidence: a file that was edited is refused, and a file speaks for the preset of its own card and for no other."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import yolo_rocm
from yolo_rocm.errors import EvidenceError
from yolo_rocm.hardware import Machine
from yolo_rocm.preset import evidence
from yolo_rocm.preset.evidence import Certificate, Evidence, file_name, read_evidence, seal
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
    assert (found.file, found.data.card.gfx) == ("card.json", "gfx1010")
    path.write_text(json.dumps(json.loads(path.read_text())), encoding="utf-8")  # the same on one line
    assert read_evidence(path) == found


EDITS = {
    "a failure less": lambda data: data["parts"]["kernels"].update(failures=[]),
    "a number": lambda data: data["parts"]["demo"]["results"].update(n=0.2),
    "a card": lambda data: data["card"].update(name="Radeon RX 9070 XT"),
    "a digest": lambda data: data.update(digest="sha256:" + 64 * "0"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_file_is_refused_by_its_name(edit, tmp_path):
    data = certificate(failed=("kernels",))
    edit(data)
    path = write(tmp_path / "sent", "my-card.json", data)
    with pytest.raises(EvidenceError, match=r"my-card\.json was edited after `yolo-rocm certify`"):
        read_evidence(path)


N = '"n": 0.1'
NONE = {
    "a brace": (lambda text: "{", "not JSON"),
    "nothing": (lambda text: "{}", "'card': Field required"),
    "a date": (lambda text: json.dumps(seal({**json.loads(text), "date": "yesterday"})), "'date': "),
    "a key more": (lambda text: json.dumps(seal({**json.loads(text), "note": "more"})), "'note': Extra inputs"),
    "no parts": (lambda text: json.dumps(seal({**json.loads(text), "parts": {}})), "part doctor is missing"),
    "NaN": (lambda text: text.replace(N, '"n": NaN', 1), "Out of range float"),
    "deep": (lambda text: text.replace(N, f'"n": {9000 * "["}{9000 * "]"}', 1), "nested too deep"),
}


@pytest.mark.parametrize(("change", "said"), NONE.values(), ids=NONE)
def test_what_is_no_certificate_is_refused_and_keeps_nobody_from_training(change, said, sent):
    folder = sent(certificate())
    (folder / "0.json").write_text(change((folder / "0.json").read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(EvidenceError, match=rf"^0\.json .*{re.escape(said)}"):
        read_evidence(folder / "0.json")
    assert resolve("rx5600xt", machine=LINUX).preset.evidence == "none"


# certificate -> the presets it speaks for
SPEAKS = {
    "a card by its name": (certificate(), ["rx5600xt"]),
    "without a name, by memory": (certificate(name=None, memory_gb=5.98), ["rx5600xt"]),
    "a name that says nothing": (certificate(name="AMD Radeon Graphics", memory_gb=5.98), ["rx5600xt"]),
    "a name that no preset has": (certificate(name="Radeon Pro 5300"), []),
    "two cards of one name": (
        certificate(name="Instinct MI50/MI60", gfx="gfx906", memory_gb=32, preset="mi60"),
        ["mi60"],
    ),
    "a preset of another card": (certificate(preset="rx5700xt"), []),
    "a preset of the user": (certificate(preset="jane-card"), []),
    "under an override": (certificate(presents_as="gfx1030"), ["rx5600xt"]),
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
    """The newest file, of one day a failure before a pass; a preset of the user has its own words or its base's."""
    older = certificate(date="2026-01-01", failed=("doctor",))
    newest = {"date": "2027-01-02", "presents_as": "gfx1030"}
    sent(certificate(**newest), certificate(**newest, failed=("kernels", "demo")), older, CPU)
    settings = resolve("rx5600xt", machine=LINUX)
    stack = "certified 2027-01-02 with torch 2.10.0, ROCm 7.0.1, yolo_rocm 0.1.0, engine gemm"
    assert settings.preset.evidence == (
        f"Radeon RX 5600 XT as gfx1030, {stack}: failed in demo, kernels; 1 of 2 older files failed"
    )
    assert settings.origins["evidence"] == "configs/evidence/1.json"
    own = {"base": "cpu", "name": "mine"}
    assert resolve({**own, "evidence": "my desk"}, machine=LINUX).preset.evidence == "my desk"
    of_cpu = resolve(own, machine=LINUX).preset.evidence
    assert of_cpu.startswith("CPU aarch64, certified")
    assert of_cpu.endswith("engine gemm (our engines, not this preset): passed")


def test_every_shipped_file_verifies_and_has_the_name_of_its_content():
    shipped = [read_evidence(path) for path in (config_root() / "evidence").glob("*.json")]
    assert "cpu" in {each.data.card.kind for each in shipped}
    for each in shipped:
        assert not each.data.quick
        assert each.file == file_name(each.data)


@each_row(
    ("data", "name"),
    [
        (certificate(), "rx5600xt-gfx1010-torch2.10-2026-11-16-{}.json"),
        (certificate(quick=True), "rx5600xt-gfx1010-torch2.10-2026-11-16-{}-quick.json"),
        (certificate(name="AMD Radeon Graphics"), "gfx1010-torch2.10-2026-11-16-{}.json"),
        (CPU, "cpu-aarch64-torch2.10-2026-11-16-{}.json"),
    ],
    ids=str,
)
def test_names_of_files(data, name):
    assert file_name(Certificate.model_validate(data)) == name.format(data["digest"].removeprefix("sha256:")[:6])
