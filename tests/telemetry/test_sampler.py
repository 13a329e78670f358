"""The thread and the table: gaps instead of errors, a bounded cost, a prompt end."""

from __future__ import annotations

import csv
import errno
import threading
import time

import pytest

from yolo_rocm.telemetry import sampler as samplers
from yolo_rocm.telemetry import table as tables
from yolo_rocm.telemetry.reading import Reading
from yolo_rocm.telemetry.sampler import BUDGET, Sampler
from yolo_rocm.telemetry.table import COLUMNS, TelemetryTable

LONG = 300.0  # seconds until a test gives up; none waits for them unless it fails


class Made:
    """A source that answers with a function."""

    def __init__(self, answer, name="made"):
        self.answer, self.name, self.reads, self.closed = answer, name, 0, 0

    def why_not(self):
        """Be usable."""
        return None

    def read(self):
        """Count and answer."""
        self.reads += 1
        return self.answer(self.reads)

    def close(self):
        """Count."""
        self.closed += 1


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


@pytest.fixture
def run(tmp_path):
    """Return a function that starts a sampler over sources, stopped at the end."""
    started = []

    def start(*sources, interval=0.01):
        sampler = Sampler(lambda: sources, TelemetryTable(tmp_path, fresh=True), interval)
        started.append(sampler)
        sampler.start()
        return sampler, sampler._table

    yield start
    for sampler in started:
        sampler.stop()


def test_rows_carry_the_clock_and_what_each_source_told(run):
    before = time.monotonic()
    _, table = run(
        Made(lambda n: Reading(busy_percent=50, power_w=12.25), "a"),
        Made(lambda n: Reading(busy_percent=99, host_memory_mb=7)),
    )
    until(lambda: table.rows >= 3)
    found = rows(table.path)
    assert tuple(found[0]) == COLUMNS
    assert found[0]["source"] == "a+made"
    assert (found[0]["busy_percent"], found[0]["power_w"], found[0]["host_memory_mb"]) == ("50", "12.2", "7")
    assert found[0]["temperature_c"] == ""
    clock = [float(row["time"]) for row in found]
    assert before - 0.001 <= clock[0] < clock[1] < clock[2] <= time.monotonic() + 0.001


def test_a_source_that_raises_or_vanishes_is_a_gap_and_may_come_back(run):
    def moody(look):
        if look == 2:
            raise OSError("gone")
        return Reading() if look == 3 else Reading(busy_percent=look)

    _, table = run(Made(moody, "moody"), Made(lambda n: Reading(host_memory_mb=1), "host"))
    until(lambda: table.rows >= 4)
    found = rows(table.path)[:4]
    assert [row["busy_percent"] for row in found] == ["1", "", "", "4"]
    assert [row["source"] for row in found] == ["moody+host", "host", "host", "moody+host"]


def test_a_thread_that_sleeps_is_woken_at_the_end(run):
    source = Made(lambda n: Reading(busy_percent=1))
    sampler, table = run(source, interval=10 * LONG)
    until(lambda: table.rows == 1)
    sampler.stop()
    sampler._thread.join(LONG)
    assert not sampler._thread.is_alive()
    assert source.closed == 1
    sampler.stop()


def test_a_read_that_hangs_is_left_behind_and_writes_nothing_afterwards(run):
    hanging = threading.Event()
    source = Made(lambda n: Reading(busy_percent=n) if n == 1 or hanging.wait(LONG) else Reading())
    sampler, table = run(source)
    until(lambda: source.reads == 2)
    sampler.stop()
    assert sampler._thread.is_alive()
    hanging.set()
    sampler._thread.join(LONG)
    assert not sampler._thread.is_alive()
    assert [row["busy_percent"] for row in rows(table.path)] == ["1"]
    assert source.closed == 1


def test_a_driver_that_does_not_answer_is_said_at_the_end(tmp_path, monkeypatch):
    said, hanging = [], threading.Event()
    monkeypatch.setattr(samplers, "HANGS_S", 0.0)
    source = Made(lambda n: hanging.wait(LONG) and Reading())
    sampler = Sampler(lambda: (source,), TelemetryTable(tmp_path, fresh=True), say=said.append)
    sampler.start()
    until(lambda: source.reads == 1)
    sampler.stop()
    hanging.set()
    sampler._thread.join(LONG)
    sampler.stop()
    assert len(said) == 1
    assert said[0].endswith("a driver does not answer")


def test_an_end_by_an_error_is_one_line_in_the_log_and_one_in_the_table(tmp_path):
    def broken():
        raise RuntimeError('no "sources", none\nat all')

    said: list[str] = []
    sampler = Sampler(broken, TelemetryTable(tmp_path, fresh=True), say=said.append)
    sampler.start()
    sampler._thread.join(LONG)
    sampler.stop()
    assert said == ['telemetry has ended, training goes on: RuntimeError: no "sources", none\nat all']
    (row,) = rows(sampler._table.path)
    assert row.pop("source") == "ended: RuntimeError: no 'sources'; none at all"
    assert float(row.pop("time")) <= time.monotonic() + 0.001  # the table rounds
    assert set(row.values()) == {""}


def test_a_log_that_fails_and_an_error_after_the_end_do_not_show(tmp_path):
    def unheard(line):
        raise OSError("no log")

    def broken():
        raise RuntimeError("no sources")

    said: list[str] = []
    for say, stopped in ((unheard, False), (said.append, True)):
        sampler = Sampler(broken, TelemetryTable(tmp_path, fresh=True), say=say)
        if stopped:
            sampler.stop()
        sampler.start()
        sampler._thread.join(LONG)
        assert not sampler._thread.is_alive()
    assert said == []


def test_rows_that_cannot_be_written_are_said_once(tmp_path):
    said: list[str] = []
    source = Made(lambda n: Reading(busy_percent=n))
    table = TelemetryTable(tmp_path / "not there", fresh=True)
    sampler = Sampler(lambda: (source,), table, 0.001, said.append)
    sampler.start()
    until(lambda: source.reads >= 4)
    sampler.stop()
    assert len(said) == 1
    assert said[0].startswith(f"rows of {table.path} are lost, training goes on: [Errno 2] No such file")


def test_a_full_disk_loses_rows_and_says_why(tmp_path, monkeypatch):
    def full(descriptor, line):
        raise OSError(errno.ENOSPC, "No space left on device")

    table = TelemetryTable(tmp_path, fresh=True)
    with monkeypatch.context() as patch:
        patch.setattr(tables.os, "write", full)
        table.add(1.0, Reading(), "")
    table.add(2.0, Reading(), "")  # there is room again
    table.close()
    assert table.lost == "[Errno 28] No space left on device"
    assert [row["time"] for row in rows(table.path)] == ["2.000"]


def test_a_table_of_an_earlier_version_goes_on_in_its_columns(tmp_path):
    (tmp_path / tables.TELEMETRY_FILE).write_text("time,busy_percent,old,source\n1.000,90,7,sysfs\n")
    table = TelemetryTable(tmp_path, fresh=False)
    table.add(2.0, Reading(busy_percent=80, own_cpu_percent=5), "sysfs")
    table.close()
    assert table.path.read_text().splitlines()[2:] == ["2.000,80,,sysfs"]


def test_a_slow_source_is_asked_less_and_less(monkeypatch):
    monkeypatch.setattr(samplers, "SLOW_S", 0.0)
    source = Made(lambda n: Reading(busy_percent=1))
    watched = samplers._Watched(source)
    asked = [bool(watched.read().busy_percent) for _ in range(13)]
    assert asked == [True, True, False, True, False, False, True, *[False] * 4, True, False]
    monkeypatch.setattr(samplers, "SLOW_S", 10.0)
    while not watched.read().busy_percent:
        pass
    assert all(watched.read().busy_percent for _ in range(3))  # quick again: asked every time


def test_a_single_look_that_had_to_wait_makes_no_gap(monkeypatch):
    watched = samplers._Watched(Made(lambda n: Reading(busy_percent=1)))
    for slow in (True, False, True, False, False, True):
        monkeypatch.setattr(samplers, "SLOW_S", 0.0 if slow else 10.0)
        assert watched.read().busy_percent


def test_a_costly_look_stretches_the_interval(tmp_path):
    def burn(look):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return Reading(busy_percent=1)

    class Waits(list):
        """Stands in for the event that ends the thread: takes down how long it would wait, three times."""

        def wait(self, seconds):
            self.append(seconds)
            return len(self) > 3

    sampler = Sampler(lambda: (), TelemetryTable(tmp_path, fresh=True), 0.001)
    sampler._ended = waits = Waits()
    sampler._sample([samplers._Watched(Made(burn))])
    assert sampler.looks == 3
    assert waits[0] == 0.001  # the first read warms up and does not count
    assert all(seconds >= 0.004 / BUDGET for seconds in waits[1:])


def test_the_interval_doubles_as_the_table_grows_and_a_resumed_run_knows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_INTERVAL", 10)
    table = TelemetryTable(tmp_path, fresh=True)
    sampler = Sampler(lambda: (), table, 1.0)
    intervals = []
    for look in range(35):
        intervals.append(sampler.interval_s)
        table.add(look, Reading(), "")
    assert (intervals[9], intervals[10], intervals[20], intervals[34]) == (1, 2, 4, 8)
    table.close()
    again = TelemetryTable(tmp_path, fresh=False)
    assert (again.rows, again.stretch) == (35, 8)
    again.close()
    assert TelemetryTable(tmp_path, fresh=True).rows == 0


def test_a_week_stays_small(tmp_path):
    table = TelemetryTable(tmp_path, fresh=True)
    full = Reading(100, 191_000, 192_000, 68.5, 750.5, 150_000, 100, 500_000)
    table.add(600_000.123, full, "sysfs+amdsmi+torch+psutil")
    size = len(table.path.read_text().splitlines()[1]) + 1
    seconds = 0.0
    while seconds < 7 * 24 * 3600:
        seconds += table.stretch
        table.rows += 1
    table.close()
    assert table.rows * size < 3e6


def test_a_table_goes_on_after_half_a_row(tmp_path):
    table = TelemetryTable(tmp_path, fresh=True)
    table.add(1.0, Reading(busy_percent=3), "a")
    table.close()
    with table.path.open("a") as file:
        file.write("2.000,4")  # killed in mid-row
    table = TelemetryTable(tmp_path, fresh=False)
    table.add(3.0, Reading(busy_percent=5), "a")
    table.close()
    table.add(4.0, Reading(), "")  # closed: nothing happens
    assert [row["time"] for row in rows(table.path)] == ["1.000", "3.000"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    table = TelemetryTable(tmp_path / "not there", fresh=True)
    table.add(1.0, Reading(), "")
    table.close()
    assert not table.path.exists()
