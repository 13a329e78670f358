"""A value of the process that is replaced for a while, and what remains of it afterwards: nothing."""

from __future__ import annotations

import sys
import threading
import types
from contextlib import ExitStack

import pytest

from yolo_rocm.utils.scoped_patch import ScopedPatch, attribute


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


def test_the_value_is_replaced_while_the_context_is_open(place):
    with patch(place).on(lambda below: f"new {below}"):
        assert place.name == "new plain"
    assert place.name == "plain"


def test_the_newest_user_decides_and_the_last_one_restores(place):
    first, second = ExitStack(), ExitStack()
    first.enter_context(patch(place).on(lambda below: f"1 {below}"))
    second.enter_context(patch(place).on(lambda below: f"2 {below}"))
    assert place.name == "2 plain"
    first.close()  # in any order
    assert place.name == "2 plain"
    second.close()
    assert place.name == "plain"


def test_the_older_user_decides_again_when_the_newest_has_left(place):
    with patch(place).on(lambda below: f"1 {below}"):
        with patch(place).on(lambda below: f"2 {below}"):
            pass
        assert place.name == "1 plain"


def test_different_purposes_wrap_each_other_and_leave_in_any_order(place):
    first, second = ExitStack(), ExitStack()
    first.enter_context(patch(place).on(lambda below: f"a({below})", "a"))
    second.enter_context(patch(place).on(lambda below: f"b({below})", "b"))
    assert place.name == "b(a(plain))"
    first.close()
    assert place.name == "b(plain)"
    second.close()
    assert place.name == "plain"


def test_a_replacement_is_made_once_for_each_value_below(place):
    made = []
    first = patch(place).on(lambda below: made.append(below) or f"1 {below}", "a")
    with first, patch(place).on(lambda below: f"2 {below}", "b"):
        pass
    assert made == ["plain"]


def test_an_inherited_method_is_inherited_again(place):
    with patch(place, "method", ":Child").on(lambda below: lambda self: f"new {below(self)}"):
        assert place.Child().method() == "new base"
        assert place.Base().method() == "base"
    assert "method" not in vars(place.Child)
    assert place.Child().method() == "base"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_or_ctrl_c_restores(place, error):
    with pytest.raises(error), patch(place).on(lambda below: "new"):
        raise error
    assert place.name == "plain"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_replacement_that_cannot_be_made_changes_nothing(place, error):
    def make(below):
        raise error

    with patch(place).on(lambda below: "older"):
        with pytest.raises(error), patch(place).on(make):
            pass
        assert place.name == "older"
    assert place.name == "plain"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 5))
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
    assert not flag.in_use


def test_what_somebody_else_has_put_there_since_stays(place):
    with patch(place).on(lambda below: "ours"):
        place.name = "theirs"
    assert place.name == "theirs"
    with patch(place).on(lambda below: f"over {below}"):
        assert place.name == "over theirs"
    assert place.name == "theirs"


def test_nothing_is_imported_before_the_first_use():
    later = attribute("yolo_rocm_has_no_such_module", "name")
    with pytest.raises(ModuleNotFoundError), later.on(lambda below: below):
        pass
    attribute.cache_clear()


def test_a_name_that_is_not_there_is_an_error_and_changes_nothing(place):
    with pytest.raises(AttributeError), patch(place, "absent").on(lambda below: 1):
        pass
    assert not hasattr(place, "absent")


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
