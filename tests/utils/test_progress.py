"""Progress: a bar on a terminal, lines elsewhere, none for short work, no thread where something is measured."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from types import SimpleNamespace

import pytest

from yolo_rocm.utils import progress as module
from yolo_rocm.utils.progress import duration, progress

from ..pseudo_terminal import all_of

pytestmark = pytest.mark.once
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = SimpleNamespace(t=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.t))
    return now


def lines_of(clock, seconds, total, **options):
    """Run `total` steps of so many seconds and return what was written."""
    stream = io.StringIO()
    with progress("working", stream=stream, **options) as show:
        show(0, total)
        for done in range(1, total + 1):
            clock.t += seconds
            show(done, total)
    return stream.getvalue().splitlines()


def test_long_work_says_how_far_it_is_and_what_is_left(clock):
    assert lines_of(clock, 0.05, 30, timed=False) == []  # short work says nothing
    assert lines_of(clock, 1.0, 20, timed=False) == [
        "working: 2 of 20, about 18 s left",
        "working: 7 of 20, about 13 s left",
        "working: 12 of 20, about 8 s left",
        "working: 17 of 20, about 3 s left",
        "working: 20 of 20 in 20 s",
    ]


def test_work_that_ends_in_an_error_says_where(clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), progress("working", timed=True, stream=stream) as show:
        clock.t += 7300.0
        show(1, 4)
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1] == "working: 1 of 4, stopped after 2 h 2 min"
    assert [duration(seconds) for seconds in (0.2, 59.6, 150)] == ["1 s", "60 s", "2 min"]


def test_what_is_measured_says_so_at_once_and_a_limit_ends_the_wait(clock):
    assert lines_of(clock, 6.0, 4, timed=True, limit_s=20)[:3] == [
        "working: 0 of 4",
        "working: 1 of 4",  # one step tells no speed: it holds what happens once, a compilation
        "working: 2 of 4, about 8 s left",  # not 12: then time is up
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
@pytest.mark.parametrize("no_color", ["", "1"])
@pytest.mark.parametrize("timed", [True, False])
def test_a_terminal_gets_a_bar_that_vanishes(no_color, timed, monkeypatch):
    import pty

    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pty.openpty()
    threads = set(threading.enumerate())
    with (
        os.fdopen(theirs, "w", encoding="utf-8") as stream,
        progress("measuring", timed=timed, stream=stream) as show,
    ):
        for done in range(4):
            show(done, 3)
        assert (set(threading.enumerate()) <= threads) is timed  # nothing runs next to what is measured
    for thread in set(threading.enumerate()) - threads:  # rich does not wait for its own
        thread.join(60)
        assert not thread.is_alive()
    written = all_of(ours)
    assert not timed or "2 of 3, about" in written
    assert "3 of 3" in written
    assert written.rstrip("\r\n").endswith("\x1b[2K")  # the last thing done is to wipe the line
    assert bool(STYLE.search(written)) is (not no_color)


def test_inside_a_training_lines_go_through_the_logger(clock, events, capsys):
    from yolo_rocm.ultralytics_hooks.log import progress_bar

    for seconds in (4.0, 0.1):
        with progress_bar("measuring convolutions", 60) as show:
            for done in range(5):
                show(done, 4)
                clock.t += seconds
    assert events.of("progress") == [  # of the long work alone
        "measuring convolutions: 1 of 4",
        "measuring convolutions: 3 of 4, about 4 s left",
    ]
    assert "\r" not in capsys.readouterr().out  # no bar
