"""The thread and the table: gaps instead of errors, a prompt end, a bounded file."""

from __future__ import annotations

import csv
import threading
import time

import pytest

from yolo_rocm.telemetry import table as tables
from yolo_rocm.telemetry.reading import Reading
from yolo_rocm.telemetry.sampler import Sampler
from yolo_rocm.telemetry.table import TELEMETRY_FILE, TelemetryTable

LONG = 300.0  # seconds until a test gives up; none waits for them unless it fails


class Made:
    """A source that answers with a function of how often it was read."""

    def __init__(self, answer, name="made"):
        self.answer, self.name, self.reads = answer, name, 0

    def read(self):
        """Count and answer."""
        self.reads += 1
        return self.answer(self.reads)


def rows(folder):
    with (folder / TELEMETRY_FILE).open() as file:
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

    def start(*sources, interval=0.01, log=lambda line: None):
        table = TelemetryTable(tmp_path, fresh=True)
        sampler = Sampler(sources, table, interval, log)
        started.append(sampler)
        sampler.start()
        return sampler, table

    yield start
    for sampler in started:
        sampler.stop()


def test_rows_carry_the_clock_and_what_each_source_told(run, tmp_path):
    def moody(look):
        if look == 2:
            raise OSError("gone")
        return Reading() if look == 3 else Reading(busy_percent=look, power_w=12.25)

    before = time.monotonic()
    _, table = run(Made(moody, "moody"), Made(lambda n: Reading(busy_percent=99, host_memory_mb=7), "host"))
    until(lambda: table.rows >= 4)
    found = rows(tmp_path)[:4]
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


def test_a_driver_that_hangs_is_left_behind_and_writes_nothing_afterwards(run, tmp_path):
    hanging = threading.Event()
    source = Made(lambda n: Reading(busy_percent=n) if n == 1 or hanging.wait(LONG) else Reading())
    sampler, _ = run(source)
    until(lambda: source.reads == 2)
    sampler.stop()
    assert len(threads()) == 1
    hanging.set()
    until(lambda: not threads())
    assert [row["busy_percent"] for row in rows(tmp_path)] == ["1"]


def test_a_full_disk_ends_the_thread_with_a_line(run, tmp_path, monkeypatch):
    def full(*written):
        raise OSError(28, "No space left on device")

    logged = []
    monkeypatch.setattr(TelemetryTable, "add", full)
    run(Made(lambda n: Reading()), log=logged.append)
    until(lambda: not threads())
    assert logged == ["telemetry has ended, training goes on: OSError: [Errno 28] No space left on device"]
    assert rows(tmp_path) == []


def test_the_table_stays_small_and_a_resumed_run_goes_on_after_half_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_INTERVAL", 10)
    table, stretches = TelemetryTable(tmp_path, fresh=True), []
    for look in range(35):
        stretches.append(table.stretch)
        table.add(look, Reading(), "")
    table.close()
    assert (stretches[9], stretches[10], stretches[20], stretches[34]) == (1, 2, 4, 8)
    with (tmp_path / TELEMETRY_FILE).open("a") as file:
        file.write("35.000,4")
    again = TelemetryTable(tmp_path, fresh=False)
    assert (again.rows, again.stretch) == (35, 8)
    again.add(36, Reading(busy_percent=80, power_w=5), "sysfs")
    again.close()
    assert [row["time"] for row in rows(tmp_path)[-2:]] == ["34.000", "36.000"]
    TelemetryTable(tmp_path, fresh=True).close()
    assert rows(tmp_path) == []
