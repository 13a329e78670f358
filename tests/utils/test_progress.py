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
from ..tables import each_row

pytestmark = pytest.mark.once
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = SimpleNamespace(t=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.t))
    return now


def lines_of(clock, seconds, total, **options):
    """Run `total` timed steps of so many seconds and return what was written."""
    stream = io.StringIO()
    with progress("working", timed=True, stream=stream, **options) as show:
        show(0, total)
        for done in range(1, total + 1):
            clock.t += seconds
            show(done, total)
    return stream.getvalue().splitlines()


def test_short_work_says_nothing(clock):
    assert lines_of(clock, 0.05, 30) == []


def test_long_work_says_how_far_it_is_and_what_is_left(clock):
    assert lines_of(clock, 1.0, 20) == [
        "working: 2 of 20, about 18 s left",
        "working: 7 of 20, about 13 s left",
        "working: 12 of 20, about 8 s left",
        "working: 17 of 20, about 3 s left",
        "working: 20 of 20 in 20 s",
    ]


def test_known_long_work_says_so_at_once_and_a_limit_ends_the_wait(clock):
    assert lines_of(clock, 6.0, 4, slow=True, limit_s=20)[:3] == [
        "working: 0 of 4",
        "working: 1 of 4",  # one step tells no speed: it holds what happens once, a compilation
        "working: 2 of 4, about 8 s left",  # not 12: then time is up
    ]


def test_work_that_ends_in_an_error_says_where(clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), progress("working", timed=True, stream=stream) as show:
        clock.t += 3.0
        show(1, 4)
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1] == "working: 1 of 4, stopped after 3 s"


@each_row("seconds", [0.2, 59.6, 150, 7300])
def test_durations(seconds):
    assert duration(seconds) == {0.2: "1 s", 59.6: "60 s", 150: "2 min", 7300: "2 h 2 min"}[seconds]


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
        progress("measuring", timed=timed, slow=True, stream=stream) as show,
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


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
@pytest.mark.parametrize("long", [True, False])
def test_a_wait_without_steps_shows_a_bar_only_where_it_is_long(long, monkeypatch):
    import pty

    started, start = threading.Event(), module.Pace.start
    monkeypatch.setattr(module.Pace, "start", lambda self: (start(self), started.set()))
    monkeypatch.setattr(module, "_SHORT_S", 0.01 if long else 1e6)
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream, progress("reading", stream=stream):
        assert started.wait(60 if long else 0) is long
    assert ("reading" in all_of(ours)) is long


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


def test_inside_a_training_a_terminal_gets_ultralytics_own_bar(clock, monkeypatch):
    from ultralytics import utils

    from yolo_rocm.ultralytics_hooks import log
    from yolo_rocm.ultralytics_hooks.log import progress_bar

    made = []

    class Bar:
        def __init__(self, total: int, desc: str, initial: int) -> None:
            self.n, self.seen = initial, [(initial, total, desc)]
            made.append(self)

        def update(self, more: int) -> None:
            self.n += more
            self.seen.append(self.n)

        def close(self) -> None:
            self.seen.append("closed")

    monkeypatch.setattr(utils, "TQDM", Bar)
    monkeypatch.setattr(log, "is_terminal", lambda stream: True)
    with progress_bar("measuring convolutions", 60) as show:
        for done in range(4):
            show(done, 3)
            clock.t += 4.0
    assert [bar.seen for bar in made] == [[(1, 3, "yolo-rocm: measuring convolutions"), 2, 3, "closed"]]
