"""Progress: a bar on a terminal, lines elsewhere, nothing for short work, no thread where something is measured."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from types import SimpleNamespace

import pytest

from yolo_rocm.utils import progress as module
from yolo_rocm.utils.progress import Pace, duration, progress

from ..pseudo_terminal import all_of

pytestmark = pytest.mark.once
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is told to go on."""
    now = SimpleNamespace(t=0.0)
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
    lines = lines_of(clock, 1.0, 20)
    assert lines[0] == "working: 2 of 20"  # the first steps tell no speed yet, but they took two seconds
    assert lines[1:-1] == [
        "working: 7 of 20, about 13 s left",
        "working: 12 of 20, about 8 s left",
        "working: 17 of 20, about 3 s left",
    ]
    assert lines[-1] == "working: 20 of 20 in 20 s"


def test_known_long_work_says_so_at_once_and_a_limit_ends_the_wait(clock):
    lines = lines_of(clock, 6.0, 4, slow=True, limit_s=20)
    assert lines[0] == "working: 0 of 4"
    assert lines[1] == "working: 1 of 4, about 14 s left"  # not 18: then time is up


def test_work_that_ends_in_an_error_says_where(clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), progress("working", timed=True, stream=stream) as show:
        clock.t = 3.0
        show(1, 4)
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1] == "working: stopped at 1 of 4 after 3 s"


def test_the_estimate_follows_steps_that_get_shorter(clock):
    """Convolutions are measured from the largest to the smallest."""
    pace = Pace()
    for done in range(1, 41):
        clock.t += 10.0 if done <= 5 else 0.1
        pace.reached(done, 50)
    assert pace.left_s() == pytest.approx(1.0)


def test_nothing_runs_beside_what_is_measured():
    before = threading.active_count()
    with progress("measuring", timed=True, slow=True, stream=io.StringIO()) as show:
        show(1, 2)
        assert threading.active_count() == before
    with progress("waiting", stream=io.StringIO()):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_wait_without_steps_speaks_by_itself(monkeypatch):
    monkeypatch.setattr(module, "SHORT_S", 0.05)
    stream = io.StringIO()
    spoken = threading.Event()
    write = stream.write
    monkeypatch.setattr(stream, "write", lambda text: (write(text), spoken.set())[0])
    with progress("reading", stream=stream):
        assert spoken.wait(10)
    assert stream.getvalue().splitlines() == ["reading: ...", "reading: done in 1 s"]


@pytest.mark.parametrize("seconds", [0.2, 59.6, 150, 7300])
def test_durations(seconds):
    assert duration(seconds) == {0.2: "1 s", 59.6: "60 s", 150: "2 min", 7300: "2 h 2 min"}[seconds]


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_a_bar_that_vanishes(no_color, monkeypatch):
    import pty

    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pty.openpty()
    with (
        os.fdopen(theirs, "w", encoding="utf-8") as stream,
        progress("measuring", timed=True, slow=True, stream=stream) as show,
    ):
        for done in range(4):
            show(done, 3)
    written = all_of(ours)
    assert "1 of 3, about" in written
    assert "so far" in written
    assert written.rstrip("\r\n").endswith("\x1b[2K")  # the last thing done is to wipe the line
    assert bool(STYLE.search(written)) is (not no_color)


def test_inside_a_training_lines_go_through_the_logger(clock, monkeypatch, capsys):
    from yolo_rocm import ultralytics_hooks as hooks
    from yolo_rocm.ultralytics_hooks import log

    said = []
    monkeypatch.setattr(log, "say", said.append)
    with hooks.progress("measuring convolutions", 60) as show:
        for done in range(5):
            show(done, 4)
            clock.t += 4.0
    assert said == [
        "measuring convolutions: 1 of 4, about 12 s left",
        "measuring convolutions: 3 of 4, about 4 s left",
    ]
    with hooks.progress("measuring convolutions", 60) as show:
        for done in range(5):
            show(done, 4)
            clock.t += 0.1
    assert len(said) == 2
    assert "\r" not in capsys.readouterr().out  # no bar


def test_inside_a_training_a_terminal_gets_ultralytics_own_bar(clock, monkeypatch):
    from ultralytics import utils

    from yolo_rocm import ultralytics_hooks as hooks
    from yolo_rocm.ultralytics_hooks import log

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
    with hooks.progress("measuring convolutions", 60) as show:
        for done in range(4):
            show(done, 3)
            clock.t += 4.0
    assert [bar.seen for bar in made] == [[(1, 3, "ROCm: measuring convolutions"), 2, 3, "closed"]]
