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
    """A source that answers with a function of how often it was read."""

    def __init__(self, answer, name="made"):
        self.answer, self.name, self.reads = answer, name, 0

    def read(self):
        """Count and answer."""
        self.reads += 1
        return self.answer(self.reads)


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "yolo_rocm telemetry"]


@pytest.fixture
def run(tmp_path):
    """Return a function that starts a sampler over sources, stopped at the end."""
    started = []

    def start(*sources, interval=0.01, log=lambda line: None, table=None):
        table = table or TelemetryTable(tmp_path, fresh=True)
        sampler = Sampler(sources, table, interval, log)
        started.append(sampler)
        sampler.start()
        return sampler, table

    yield start
    for sampler in started:
        sampler.stop()


def test_rows_carry_the_clock_and_what_each_source_told(run):
    def moody(look):
        if look == 2:
            raise OSError("gone")
        return Reading() if look == 3 else Reading(busy_percent=look, power_w=12.25)

    before = time.monotonic()
    _, table = run(Made(moody, "moody"), Made(lambda n: Reading(busy_percent=99, host_memory_mb=7), "host"))
    until(lambda: table.rows >= 4)
    found = rows(table.path)[:4]
    assert tuple(found[0]) == COLUMNS
    assert [row["source"] for row in found] == ["moody+host", "host", "host", "moody+host"]
    assert [row["busy_percent"] for row in found] == ["1", "99", "99", "4"]
    assert (found[0]["power_w"], found[0]["host_memory_mb"], found[0]["temperature_c"]) == ("12.2", "7", "")
    clock = [float(row["time"]) for row in found]
    assert before - 0.001 <= clock[0] < clock[1] < clock[2] <= time.monotonic() + 0.001


def test_a_thread_that_sleeps_is_woken_at_the_end(run):
    sampler, table = run(Made(lambda n: Reading(busy_percent=1)), interval=10 * LONG)
    until(lambda: table.rows == 1)
    sampler.stop()
    until(lambda: not threads())
    sampler.stop()


@pytest.mark.parametrize(("patience", "lines"), [(0.0, 1), (LONG, 0)])
def test_a_driver_that_hangs_is_left_behind_and_writes_nothing_afterwards(run, monkeypatch, patience, lines):
    hanging, logged = threading.Event(), []
    monkeypatch.setattr(samplers, "HANGS_S", patience)
    source = Made(lambda n: Reading(busy_percent=n) if n == 1 or hanging.wait(LONG) else Reading())
    sampler, table = run(source, log=logged.append)
    until(lambda: source.reads == 2)
    sampler.stop()
    assert len(threads()) == 1
    hanging.set()
    until(lambda: not threads())
    assert [row["busy_percent"] for row in rows(table.path)] == ["1"]
    assert [line.endswith("a driver does not answer") for line in logged] == [True] * lines


@pytest.mark.parametrize("log_fails", [False, True])
def test_an_error_of_the_thread_is_one_line_in_the_log(run, tmp_path, monkeypatch, log_fails):
    logged = []

    def log(line):
        logged.append(line)
        if log_fails:
            raise OSError("no log")

    table = TelemetryTable(tmp_path, fresh=True)
    monkeypatch.setattr(table, "add", lambda *row: 1 / 0)
    run(table=table, log=log)
    until(lambda: not threads())
    assert logged == ["telemetry has ended, training goes on: ZeroDivisionError: division by zero"]


def test_rows_that_cannot_be_written_are_said_once(run, tmp_path):
    logged, source = [], Made(lambda n: Reading(busy_percent=n))
    _, table = run(source, interval=0.001, log=logged.append, table=TelemetryTable(tmp_path / "not there", fresh=True))
    until(lambda: source.reads >= 4)
    (line,) = logged
    assert line.startswith(f"rows of {table.path} are lost, training goes on: [Errno 2] No such file")
    assert not table.path.exists()


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


def test_a_costly_look_stretches_the_interval(run):
    def burn(look):
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass
        return Reading(busy_percent=1)

    sampler, _ = run(Made(burn), interval=0.001)
    assert sampler.interval_s == 0.001  # the first look warms up and does not count
    until(lambda: sampler.looks >= 1)
    assert sampler.interval_s >= 0.002 / BUDGET


def test_the_interval_doubles_as_the_table_grows_and_a_resumed_run_knows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_INTERVAL", 10)
    table = TelemetryTable(tmp_path, fresh=True)
    sampler = Sampler((), table, 1.0)
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
    table.add(600_000.123, Reading(100, 191_000, 192_000, 68.5, 750.5, 150_000, 100, 500_000), "sysfs+torch+proc")
    size = len(table.path.read_text().splitlines()[1]) + 1
    seconds = 0.0
    while seconds < 7 * 24 * 3600:
        seconds += table.stretch
        table.rows += 1
    table.close()
    assert table.rows * size < 3e6


def test_a_table_goes_on_after_half_a_row_in_its_own_columns(tmp_path):
    (tmp_path / tables.TELEMETRY_FILE).write_text("time,busy_percent,old,source\n1.000,90,7,sysfs\n2.000,4")
    table = TelemetryTable(tmp_path, fresh=False)
    table.add(3.0, Reading(busy_percent=80, power_w=5), "sysfs")
    table.close()
    table.add(4.0, Reading(), "")  # closed: nothing happens
    assert table.path.read_text().splitlines()[1:] == ["1.000,90,7,sysfs", "3.000,80,,sysfs"]
