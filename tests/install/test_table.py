"""The table of installations: every card of a preset has a row, every row a source, and rows fit each other."""

from __future__ import annotations

import pytest

from yolo_rocm.install.table import table
from yolo_rocm.preset.files import read, shipped_presets

pytestmark = pytest.mark.once


def test_every_card_with_a_preset_has_a_row():
    known = {gfx for path in shipped_presets().values() for gfx in (read(path).get("match") or {}).get("gfx", [])}
    without = {gfx for gfx in known if table().cards_of(gfx) is None}
    assert without == {"gfx90c"}  # no wheel has kernels for it


def test_rows_name_stacks_that_have_kernels_for_their_cards():
    found = table()
    for row in found.cards:
        for name in row.stacks:
            assert set(row.targets) <= set(found.stacks[name].targets), name
    for row in found.before:
        for target in row.targets:
            assert found.cards_of(target) is not None
