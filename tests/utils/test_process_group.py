"""Who speaks for the ranks of a training, and in which order they take their turns."""

from __future__ import annotations

import pytest
from torch import distributed

from yolo_rocm.utils import process_group
from yolo_rocm.utils.process_group import Place, in_turn, is_first_to

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("rank", "local", "order"),
    [(0, 0, ["work", "wait", "wait"]), (2, 0, ["wait", "work", "wait"]), (3, 1, ["wait", "wait", "work"])],
    ids=["rank 0", "first of another machine", "another rank"],
)
def test_ranks_take_turns(monkeypatch, rank, local, order):
    """Each waits twice, so that nobody waits alone."""
    done: list[str] = []
    monkeypatch.setattr(distributed, "barrier", lambda: done.append("wait"))
    with in_turn(Place(rank, local, 4, 2)):
        done.append("work")
    assert done == order


def test_one_rank_of_each_machine_speaks_where_the_group_cannot_be_asked(monkeypatch):
    def gone() -> None:
        raise RuntimeError("Connection reset by peer")

    assert is_first_to("anything")  # no group
    monkeypatch.setattr(process_group, "is_joined", lambda: True)
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", gone)
    for local, speaks in (("0", True), ("1", False)):
        for name, value in {"RANK": "2", "LOCAL_RANK": local, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
            monkeypatch.setenv(name, value)
        assert is_first_to("anything") is speaks
