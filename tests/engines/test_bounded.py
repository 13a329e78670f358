"""What is kept for sizes that never come again: so many at most, everywhere, and the results stay right."""

from __future__ import annotations

from yolo_rocm.engines import bounded
from yolo_rocm.engines.bounded import Bounded

from ..blocks.steps import by_one, layers, same, sample, served, stepped


def test_the_older_half_makes_room(monkeypatch):
    monkeypatch.setattr(bounded, "MOST", 4)
    kept: Bounded[int, int] = Bounded()
    for number in range(4):
        kept[number] = kept.setdefault(number, 7) + number
    kept[3] = 0  # is there already
    assert kept.setdefault(4, 5) == 5
    assert kept == {2: 9, 3: 0, 4: 5}


def test_images_of_many_sizes_leave_so_many_plans_routes_and_blocks(monkeypatch):
    monkeypatch.setattr(bounded, "MOST", 5)
    three = layers(padding=1)
    first = sample(2, 4, 7, 8)
    with served() as (patch, norms):
        wanted = stepped(by_one, first, three)
        for size in range(5, 25):
            stepped(by_one, sample(2, 4, 7, size), three)
            kept = (patch.planner._plans, patch._known, norms.planner._plans, *norms._caches.values())
            reports = (patch.report.served, norms.report.served)
            assert max(len(each) for each in (*kept, *reports)) <= 6  # routes go with the next call after their plans
        same(stepped(by_one, first, three), wanted)
