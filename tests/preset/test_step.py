"""The section `step`: what `auto` is on a card, and which layout a preset asks for."""

from __future__ import annotations

import pytest

from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.schema import Preset
from yolo_rocm.preset.step import layout_of, memory_for

from ..tables import each_row
from .test_schema import with_gpu

pytestmark = pytest.mark.once


@each_row(
    ("memory_gb", "shared", "memory"),
    [
        (None, False, "full"),
        (5.98, False, "lean"),
        (11.4, False, "lean"),
        (11.98, False, "full"),
        (16.0, True, "lean"),
        (32.0, True, "full"),
    ],
)
def test_auto_is_lean_below_12_gb(memory_gb, shared, memory):
    assert memory_for(memory_gb, shared=shared) == memory


@each_row(
    ("source", "machine", "memory", "origin"),
    [
        ("auto", with_gpu("gfx1010", 5.98), "lean", "default (auto: 6 GB)"),
        ("auto", with_gpu("gfx1100", 24.0), "full", "default (auto: 24 GB)"),
        ("rx5600xt", Machine(), "lean", "default (auto: 6 GB of the card it is for)"),
        ("generic", Machine(), "full", "default (auto: memory not known)"),
        ("auto", Machine(gpus=(Gpu("nvidia", vram_gb=8.0),), build="cuda"), "full", "default (auto: engine vendor)"),
        ("cpu", Machine(), "full", "default (auto: engine vendor)"),
        ({"base": "rx5600xt", "step": {"memory": "full"}}, Machine(), "full", "preset argument"),
        ({"base": "rx5600xt", "step": {"memory": "auto"}}, Machine(), "lean", "preset argument (auto: 6 GB of the"),
        ({"base": "cpu", "step": {"memory": "lean"}}, Machine(), "lean", "preset argument"),
    ],
    ids=str,
)
def test_a_resolved_preset_says_how_much_it_keeps_and_why(source, machine, memory, origin):
    rows = {key: (value, set_by) for key, value, set_by in resolve(source, machine=machine).rows()}
    assert rows["step.memory"][0] == memory
    assert rows["step.memory"][1].startswith(origin)


@each_row(
    ("preset", "layout"),
    [
        ({}, "auto"),
        ({"step": {"layout": "nchw"}}, "nchw"),
        ({"step": {"layout": "channels_last"}}, "channels_last"),
        ({"conv": {"engine": "vendor", "vendor": "on"}}, None),
        ({"conv": {"engine": "vendor", "vendor": "on"}, "step": {"layout": "channels_last"}}, "channels_last"),
        ({"step": {"layout": "nchw"}, "train": {"channels_last": True}}, "channels_last"),
        ({"step": {"layout": "channels_last"}, "train": {"channels_last": False}}, "nchw"),
    ],
    ids=str,
)
def test_ultralytics_own_argument_wins_and_engine_vendor_leaves_the_layout_to_it(preset, layout):
    assert layout_of(Preset(**preset)) == layout
