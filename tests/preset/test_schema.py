"""Presets: shipped ones are sound, layers merge in order, and every mistake is named."""

from __future__ import annotations

import pytest
import yaml

import yolo_rocm
from yolo_rocm.errors import PresetError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.files import config_root
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.session.arguments import train_arguments
from yolo_rocm.session.session import Session

from ..tables import each_row

pytestmark = pytest.mark.once

LINUX = Machine(system="linux", overlays=("linux",), torch="1.13.1", build="hip", hip="5.2.21151")


def with_gpu(gfx: str, vram: float | None = None, **changes) -> Machine:
    facts = {"system": "linux", "overlays": ("linux",), "torch": "2.10.0", "build": "hip", "hip": "7.0.1", **changes}
    return Machine(gpus=(Gpu("amd", gfx, vram),), **facts)


@each_row("name", yolo_rocm.presets())
def test_every_shipped_preset_is_sound(name):
    """It resolves to itself, repeats nothing that its base sets, and its variables say why."""
    settings = resolve(name, machine=LINUX)
    assert settings.preset.name == name
    assert settings.preset.title
    again = resolve({**settings.preset.model_dump(), "base": "cpu"}, machine=Machine())
    assert again.preset.model_dump(exclude={"base"}) == settings.preset.model_dump(exclude={"base"})
    for variable in settings.preset.env.values():
        assert variable.why
        assert variable.why.count("(") == variable.why.count(")")  # YAML takes ` #` for a comment
        assert not variable.required or variable.when.os == ["linux"]
    data = yaml.safe_load((config_root() / "gpu" / f"{name}.yaml").read_text())
    if "base" in data:
        base = resolve({"base": data["base"], "name": "base"}, machine=LINUX).preset.model_dump()
        for section in ("conv", "train"):
            for key, value in (data.get(section) or {}).items():
                assert base[section].get(key) != value, f"{section}.{key} of its base again"


def test_every_family_file_is_used_and_is_no_preset():
    families = {f"family/{path.stem}" for path in (config_root() / "family").iterdir()}
    files = [*(config_root() / "gpu").iterdir(), *(config_root() / "family").iterdir()]
    assert {yaml.safe_load(path.read_text()).get("base") for path in files} - {None} == families
    assert not {name.removeprefix("family/") for name in families} & set(yolo_rocm.presets())


@each_row("name", yolo_rocm.presets())
def test_shipped_presets_name_only_arguments_ultralytics_knows_or_knew(name):
    from ultralytics.utils import DEFAULT_CFG_DICT

    preset = resolve(name, machine=LINUX).preset
    assert set(preset.train) <= set(DEFAULT_CFG_DICT)
    known = "channels_last" in DEFAULT_CFG_DICT  # the oldest does not know it
    layout = {"channels_last": False} if preset.step.layout == "nchw" and known else {}
    settings = Session(name, None).settings
    assert train_arguments(settings, {"epochs": 1}) == {**preset.train, **layout, "epochs": 1}
    assert train_arguments(settings, {"channels_last": True})["channels_last"] is True
    if known and preset.conv.engine != "vendor":
        assert train_arguments(settings, {"device": "0,1"})["channels_last"] is False


def test_layers_merge_in_order(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("base: rx5600xt\nloader: {workers: 2}\ntrain: {batch: 4}\nconv: {memory_mb: 64}\n")
    windows = Machine(system="windows", overlays=("windows",))
    settings = resolve(own, {"conv": {"engine": "aten"}}, {"workers": 3}, machine=windows)
    rows = {key: (value, origin) for key, value, origin in settings.rows()}
    assert rows["loader.workers"] == (3, "argument")
    assert rows["loader.context"] == ("spawn", "configs/os/windows.yaml")
    assert rows["train.batch"] == (4, str(own))
    assert rows["train.amp"] == (False, "configs/family/rdna1.yaml")
    assert rows["match.vram_gb"] == (6, "configs/gpu/rx5600xt.yaml")
    assert rows["conv.engine"] == ("aten", "rocm")
    assert rows["conv.memory_mb"] == (64, str(own))
    assert rows["loader.timeout"] == (120, "default")
    assert [settings.is_explicit(key) for key in ("loader.workers", "loader.context")] == [True, False]


@pytest.mark.parametrize("path", ["configs/mine.yaml", "default.yaml"])
def test_a_file_of_the_user_is_no_shipped_one_wherever_it_is(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("loader: {workers: 2, context: fork}\n")
    settings = resolve(path, machine=Machine(system="windows", overlays=("windows",)))
    assert (settings.preset.name, settings.preset.loader.context) == ("cpu", "fork")
    assert settings.is_explicit("loader.workers")


def test_yaml_on_and_off_are_words_here():
    for word, value in (("on", "on"), ("off", "off"), ("true", "on")):
        data = yaml.safe_load(f"conv: {{vendor: {word}}}")
        assert resolve({"base": "cpu", "conv": {**data["conv"], "engine": "gemm"}}).preset.conv.vendor == value


WRONG = [
    ("rx5600", "unknown preset 'rx5600'; did you mean 'rx5600xt'?"),
    ("no-such-file.yaml", "preset no-such-file.yaml cannot be read"),
    ({"conv": {"engin": "gemm"}}, "unknown key 'conv.engin' in preset argument; did you mean 'engine'?"),
    ({"convs": {}}, "unknown key 'convs' in preset argument; did you mean 'conv'?"),
    ({"conv": {"engine": "gemm+"}}, "triton, hip, or several of the last 5 joined by '+'"),
    ({"conv": {"devices": ["gpu"]}}, "'cuda' or 'cpu'"),
    ({"conv": {"memory_mb": 0}}, "greater than or equal to 1"),
    ({"conv": {"engine": "vendor"}, "base": "generic"}, "conv.vendor 'off' (from configs/family/amd.yaml)"),
    ({"conv": []}, "wrong value for 'conv'"),
    ({"loader": {"context": "threads"}}, "'spawn', 'forkserver' or 'fork'"),
    ({"env": {"HSA_X": {"value": "1", "whn": {}}}}, "did you mean 'when'?"),
    ({"env": {"HSA_X": {"value": "1", "when": {"trch": "<2"}}}}, "did you mean 'torch'?"),
    ({"env": {"HSA_X": {"value": "1", "when": {"os": ["beos"]}}}}, "env.HSA_X.when.os"),
]


@each_row(("source", "text"), WRONG, ids=[text for _, text in WRONG])
def test_mistakes_are_named(source, text):
    with pytest.raises(PresetError) as error:
        yolo_rocm.load_preset(source)
    assert text in str(error.value)
