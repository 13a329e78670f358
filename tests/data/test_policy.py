"""The loader policy over DataLoader arguments."""

from __future__ import annotations

from pathlib import Path

from yolo_rocm.data.main_guard import DEFAULT_METHOD
from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.hardware.system import cores

GIVEN = {"dataset": range(100), "batch_size": 10, "num_workers": 3, "pin_memory": True, "prefetch_factor": 4}


def test_a_policy_sets_what_it_knows_and_leaves_the_callers_numbers():
    result = LoaderPolicy(context="forkserver", workers=1, prefetch=2, timeout=30, persistent=False).apply(GIVEN)
    ours = {"num_workers": 1, "prefetch_factor": 2, "timeout": 30, "persistent_workers": False}
    assert result == {**GIVEN, **ours, "multiprocessing_context": "forkserver"}
    one, defaults = {**GIVEN, "num_workers": 1}, {"timeout": 120, "persistent_workers": True}
    assert LoaderPolicy().apply(one) == {**one, **defaults, "multiprocessing_context": DEFAULT_METHOD}


def test_no_workers_where_the_caller_wants_none_unless_the_user_insists():
    none = {**GIVEN, "num_workers": 0, "prefetch_factor": None}
    assert LoaderPolicy(workers=4, timeout=5).apply(none) == {k: v for k, v in none.items() if k != "prefetch_factor"}
    assert LoaderPolicy(workers=4, insist=True).apply(none)["num_workers"] == 4


def test_validation_does_not_get_twice_the_workers_of_training(monkeypatch):
    told: list[str] = []
    monkeypatch.setattr("yolo_rocm.hardware.system.cores", lambda root: 64)
    monkeypatch.setattr("yolo_rocm.data.resources.ram_available", lambda: 256 << 30)
    monkeypatch.setattr("yolo_rocm.data.resources.training_processes", lambda: 1)
    policy = LoaderPolicy(tell=told.append)
    assert policy.apply({**GIVEN, "num_workers": 8})["num_workers"] == 4
    assert policy.apply({**GIVEN, "num_workers": 8, "shuffle": True})["num_workers"] == 8
    assert LoaderPolicy(trains=lambda: False).apply({**GIVEN, "num_workers": 8})["num_workers"] == 8  # not doubled
    assert told == []


def test_fewer_workers_than_wanted_are_explained_in_one_line(monkeypatch):
    told: list[str] = []
    monkeypatch.setattr("yolo_rocm.hardware.system.cores", lambda root: 2)
    assert LoaderPolicy(workers=8, tell=told.append).apply(GIVEN)["num_workers"] <= 2
    assert len(told) == 1
    assert "2 CPU cores" in told[0]
    monkeypatch.setattr("yolo_rocm.data.resources.system_name", lambda: "windows")
    assert LoaderPolicy(workers=0, tell=told.append).apply(GIVEN)["num_workers"] == 0
    assert "Windows" in told[1]


def test_never_more_workers_than_batches_and_a_preset_gives_way_to_the_cores():
    assert LoaderPolicy(workers=64, insist=True).apply(GIVEN)["num_workers"] == 10
    assert LoaderPolicy(workers=10**6).apply(GIVEN)["num_workers"] <= cores(Path("/"))
