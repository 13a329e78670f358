"""Functions that are known by the words of their source."""

from __future__ import annotations

import functools

import pytest

from yolo_rocm.ultralytics_hooks import sources
from yolo_rocm.ultralytics_hooks.sources import words_of

from ..tables import each_row

pytestmark = pytest.mark.once


def one(values, start=0):
    """Add."""
    total = start  # of all
    for value in values:
        total += value
    return f"{total} of {len(values)}"


same = '''
    def one(values, start=0):

        """Say something else."""
        total = start
        for value in values:  # each

            total += value
        return f"{total} of {len(values)}"
'''
others = {
    "another sign": same.replace("+=", "-="),
    "another default": same.replace("start=0", "start=1"),
    "another text": same.replace(" of ", " from "),
    "a statement further in": same.replace("        return", "            return"),
    "a string that is computed with": same.replace("total = start", 'total = "0"'),
}


def source(monkeypatch, text):
    monkeypatch.setattr(sources.inspect, "getsource", lambda function: text)
    return words_of(one)


def test_comments_docstrings_and_indentation_make_no_difference(monkeypatch):
    expected = words_of(one)
    assert len(expected) == 16
    assert source(monkeypatch, same) == expected


@each_row("name", others)
def test_another_program_is_another(monkeypatch, name):
    expected = words_of(one)
    assert others[name] != same
    assert source(monkeypatch, others[name]) != expected


@pytest.mark.parametrize("nothing", [len, functools.partial(one), 3, eval("lambda: 0")])
def test_what_has_no_source_is_not_known(nothing):
    assert words_of(nothing) == ""


def test_what_somebody_has_wrapped_is_not_known_unless_it_was_us():
    @functools.wraps(one)
    def wrapper(*args):
        return one(*args) + "!"

    assert words_of(wrapper) == ""
    sources.wrapped_by_us.add(wrapper)
    assert words_of(wrapper) == words_of(one)
