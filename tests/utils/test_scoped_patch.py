"""A value of the process that is replaced for a while, and what remains of it afterwards: nothing."""

from __future__ import annotations

import sys
import threading
import types
from contextlib import ExitStack
from itertools import product

import pytest

from yolo_rocm.utils.scoped_patch import ScopedPatch, attribute

from ..tables import each_row


@pytest.fixture
def place(monkeypatch):
    module = types.ModuleType("made_for_scoped_patch")

    class Base:
        def method(self):
            return "base"

    class Child(Base):
        pass

    module.name, module.Base, module.Child = "plain", Base, Child
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield module
    attribute.cache_clear()


def patch(place, name="name", target=""):
    return attribute(place.__name__ + target, name)


def test_the_newest_user_decides_and_the_last_one_restores(place):
    first, second = ExitStack(), ExitStack()
    first.enter_context(patch(place).on(lambda below: f"1 {below}"))
    second.enter_context(patch(place).on(lambda below: f"2 {below}"))
    assert place.name == "2 plain"
    first.close()  # in any order
    assert place.name == "2 plain"
    second.close()
    assert place.name == "plain"


def test_different_purposes_wrap_each_other_and_leave_in_any_order(place):
    first, second = ExitStack(), ExitStack()
    first.enter_context(patch(place).on(lambda below: f"a({below})", "a"))
    second.enter_context(patch(place).on(lambda below: f"b({below})", "b"))
    assert place.name == "b(a(plain))"
    first.close()
    assert place.name == "b(plain)"
    second.close()
    assert place.name == "plain"


def test_an_inherited_method_is_inherited_again(place):
    with patch(place, "method", ":Child").on(lambda below: lambda self: f"new {below(self)}"):
        assert place.Child().method() == "new base"
        assert place.Base().method() == "base"
    assert "method" not in vars(place.Child)
    assert place.Child().method() == "base"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_replacement_that_cannot_be_made_changes_nothing(place, error):
    def make(below):
        raise error

    with patch(place).on(lambda below: "older"):
        with pytest.raises(error), patch(place).on(make):
            pass
        assert place.name == "older"
    assert place.name == "plain"


@each_row(("moment", "call"), product(("before", "after"), range(1, 5)))
def test_ctrl_c_at_the_writing_of_the_value_leaves_nothing_behind(moment, call):
    state = {"value": "plain", "calls": 0}

    def write(value):
        state["calls"] += 1
        if state["calls"] == call and moment == "before":
            raise KeyboardInterrupt
        state["value"] = value
        if state["calls"] == call and moment == "after":
            raise KeyboardInterrupt

    flag = ScopedPatch(lambda: state["value"], write)
    with pytest.raises(KeyboardInterrupt), flag.on(lambda below: "1"), flag.on(lambda below: "2"):
        pass
    assert state["value"] == "plain"


def test_what_somebody_else_has_put_there_since_stays(place):
    with patch(place).on(lambda below: "ours"):
        place.name = "theirs"
    assert place.name == "theirs"
    with patch(place).on(lambda below: f"over {below}"):
        assert place.name == "over theirs"
    assert place.name == "theirs"


def test_threads_come_and_go_without_losing_the_original(place):
    start, wrong = threading.Barrier(8), []

    def work():
        start.wait()
        for _ in range(200):
            with patch(place).on(lambda below: f"new {below}"):
                if place.name != "new plain":
                    wrong.append(place.name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert place.name == "plain"
