"""Names of presets: what cards are sold as, the user's own files, and YOLO_ROCM_PRESET."""

from __future__ import annotations

import pytest

import yolo_rocm
from yolo_rocm.errors import PresetError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.files import find
from yolo_rocm.preset.listing import grouped
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.select import PRESET_VARIABLE

from ..fake_trees import write
from ..tables import each_row

pytestmark = pytest.mark.once

CARD = Machine(gpus=(Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT"),), build="hip", torch="1.13.1", hip="5.2")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a function that writes a preset into the user's own folder."""
    monkeypatch.setenv("YOLO_ROCM_CONFIG", str(tmp_path))
    return lambda name, text: write(tmp_path / "presets" / f"{name}.yaml", text)


@each_row(
    ("name", "preset"),
    [
        *(("RX 6650 XT", "rx6600"), ("rx6650xt", "rx6600"), ("AMD Radeon RX 9070", "rx9070xt"), ("mi250x", "mi250")),
        *(("7900xtx", "rx7900xtx"), ("7900 XTX", "rx7900xtx"), ("6650 XT", "rx6600"), ("W7800", "w7800")),
        *(("Ryzen AI Max+ 395", "strixhalo"), ("AMD Ryzen AI 9 HX 370", "radeon890m"), ("Vega 64", "vega64")),
        *(("Radeon VII", "radeonvii"), ("780M", "radeon780m"), ("vega56", "vega64"), ("rx5600xt", "rx5600xt")),
    ],
)
def test_cards_by_what_they_are_sold_as(name, preset):
    assert yolo_rocm.load_preset(name).name == preset


@each_row(
    ("name", "near"),
    [("rx5601", "rx5600xt"), ("7900", "rx7900xtx"), ("mi300", "mi300x"), ("RX 7900 XTZ", "rx7900xtx")],
)
def test_an_unknown_name_is_answered_with_a_few(name, near):
    with pytest.raises(PresetError) as error:
        find(name)
    told = str(error.value)
    for none in ("", "family/../gpu/cpu", "../gpu/cpu", "zzzz"):
        with pytest.raises(PresetError, match="unknown preset"):
            find(none)
    with pytest.raises(PresetError, match="a preset is a name"):
        yolo_rocm.load_preset(True)
    assert yolo_rocm.load_preset(6800).name == yolo_rocm.load_preset("6800").name  # as YAML reads it
    named = [preset for preset in yolo_rocm.presets() if f" {preset}" in told.partition("Near it:")[2]]
    assert near in named
    assert len(told.partition("Near it: ")[2].partition(".")[0].split(", ")) <= 5
    assert "`yolo-rocm presets` lists all" in told


def test_presets_may_stand_on_a_family_but_not_on_each_other(tmp_path):
    assert yolo_rocm.load_preset({"base": "family/rdna1", "name": "mine"}, machine=CARD).train["amp"] is False
    one = write(tmp_path / "one.yaml", f"base: {tmp_path / 'two.yaml'}\n")
    write(tmp_path / "two.yaml", f"base: {one}\n")
    with pytest.raises(PresetError, match="its own base"):
        resolve(one, machine=CARD)


def test_the_users_own_of_a_shipped_name_stands_on_the_shipped_one(own):
    own("rx5600xt", "base: rx5600xt\ntrain: {batch: 2}\n")
    settings = resolve("rx5600xt", machine=CARD)
    assert settings.preset.train["batch"] == 2
    assert settings.preset.loader.workers == 4


def test_auto_takes_the_users_own_that_matches(own):
    own("mine", "match: {gfx: [gfx1010]}\ntrain: {batch: 5}\n")
    settings = resolve("auto", machine=CARD)
    assert settings.why.startswith("your own preset mine: AMD Radeon RX 5600 XT")
    assert settings.preset.train["batch"] == 5
    assert settings.preset.train["amp"] is False


def test_a_broken_file_of_the_user_is_named_and_left_out(own):
    broken = own("broken", "match: [\n")
    own("odd", "match: {gfx: 3}\n")
    settings = resolve("auto", machine=CARD)
    assert settings.preset.name == "rx5600xt"
    assert str(broken) in settings.notes[0]
    assert len(settings.notes) == 2
    groups = dict(grouped(CARD))
    assert [row.name for row in groups["your own"]] == ["broken", "odd"]
    assert "cannot be used" in groups["your own"][0].title


def test_the_variable_says_what_auto_is(monkeypatch, tmp_path, own):
    monkeypatch.setenv(PRESET_VARIABLE, "RX 6700 XT")
    settings = resolve("auto", machine=CARD)
    assert settings.preset.name == "rx6700xt"
    assert settings.why == "preset RX 6700 XT, as asked (YOLO_ROCM_PRESET)"
    assert resolve({"train": {"batch": 1}}, machine=CARD).preset.name == "rx6700xt"
    assert resolve("cpu", machine=CARD).preset.name == "cpu"  # who names a preset in the call means it
    own("mine", "train: {batch: 7}\n")
    monkeypatch.setenv(PRESET_VARIABLE, "mine")
    assert resolve("auto", machine=CARD).preset.train["batch"] == 7
    path = write(tmp_path / "file.yaml", "train: {batch: 9}\n")
    monkeypatch.setenv(PRESET_VARIABLE, str(path))
    assert resolve("auto", machine=CARD).preset.train["batch"] == 9
    monkeypatch.setenv(PRESET_VARIABLE, " ")
    assert resolve("auto", machine=CARD).preset.name == "rx5600xt"
    monkeypatch.setenv(PRESET_VARIABLE, "rx6701xt")
    with pytest.raises(PresetError, match="did you mean 'rx6"):
        resolve("auto", machine=Machine())


def test_the_list_has_every_preset_once():
    rows = [row for _, group in grouped(CARD) for row in group]
    assert sorted(row.name for row in rows) == yolo_rocm.presets()
    assert [group for group, _ in grouped(CARD)][-1] == "any"
    assert all(row.title for row in rows)
