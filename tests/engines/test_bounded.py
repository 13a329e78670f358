"""What is kept for sizes that never come again: so many at most, everywhere, and the results stay right."""

from __future__ import annotations

from yolo_rocm.engines import bounded
from yolo_rocm.engines.bounded import Bounded


def test_the_older_half_makes_room(monkeypatch):
    monkeypatch.setattr(bounded, "MOST", 4)
    kept: Bounded[int, int] = Bounded()
    for number in range(4):
        kept[number] = kept.setdefault(number, 7) + number
    kept[3] = 0  # is there already
    assert kept.setdefault(4, 5) == 5
    assert kept == {2: 9, 3: 0, 4: 5}
