"""Reading run folders: whole ones, and what a killed, resumed or strange training leaves behind."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.report.page import render
from yolo_rocm.report.run_data import read_run

from .made_runs import make_run

pytestmark = pytest.mark.once


def the_page_of(folder) -> tuple:
    run = read_run(folder)
    page = render([run])
    assert all(section in page for section in ('id="verdict"', 'id="doctor"'))
    return run, page


def test_a_whole_run_has_nothing_to_remark(tmp_path):
    run, page = the_page_of(make_run(tmp_path / "run"))
    assert run.remarks == ()
    assert "What is missing" not in page
    assert run.verdict.kind == "compute"
    assert run.images_per_s == pytest.approx(16 * 18 / (18 * 0.101 + 1.999), rel=0.01)
    assert run.memory_share == pytest.approx(4000 / 6128)


def test_a_killed_run(tmp_path):
    folder = make_run(tmp_path / "run", epochs=2, asked=10)
    (folder / "rocm.json").unlink()
    for name in ("results.csv", "rocm_loader.csv", "rocm_telemetry.csv"):
        text = (folder / name).read_bytes()
        (folder / name).write_bytes(text[:-7])  # in the middle of the last line
    run, page = the_page_of(folder)
    assert "1 of 10 epochs are there" in page
    assert "rocm.json is missing" in page
    assert page.count("half-written line, left out") == 3
    assert "No convolution was recorded" in page
    assert run.results.x == [1]
    assert run.verdict.kind == "compute"


def test_a_resumed_run_counts_each_epoch_once_and_goes_on_by_another_clock(tmp_path):
    folder = make_run(tmp_path / "run", epochs=4)
    for name in ("results.csv", "rocm_loader.csv"):
        lines = (folder / name).read_text().splitlines()
        again = [line for line in lines if line.startswith("3,")]
        (folder / name).write_text("\n".join([*lines, *again]) + "\n")
    with (folder / "rocm_telemetry.csv").open("a") as file:
        file.write("5.0,90,4000,6128,60,110,3500,45,9000,sysfs\n6.0,90,4000,6128,60,110,3500,45,9000,sysfs\n")
        file.write("90000.0,90,4000,6128,60,110,3500,45,9000,sysfs\n")
    run, page = the_page_of(folder)
    assert run.results.x == run.loading.x == [1, 2, 3, 4]
    assert run.telemetry.x == sorted(run.telemetry.x)
    assert run.telemetry.x[-1] < 2  # minutes
    assert "run more than once" in page
    assert "2 pauses cut out of the telemetry" in page


FILES = ["rocm.json", "args.yaml", "results.csv", "rocm_loader.csv", "rocm_telemetry.csv"]
STRANGE = [b"", b"\0\xff\xfe\x00,,\n\0", b"[1, 2]", b"{", b"epoch,time\n", b"a: &a [*a]\n"]


@pytest.mark.parametrize("name", FILES)
def test_a_strange_file_costs_its_part_of_the_page_only(name, tmp_path):
    folder = make_run(tmp_path / "run", batches=2, layers=2)
    for content in STRANGE:
        (folder / name).write_bytes(content)
        run, page = the_page_of(folder)
        assert name in " ".join(run.remarks) or name == "args.yaml"
        assert "Training losses" in page or name == "results.csv"


ODD = [None, 3, "text", [], [[]], [None], {}, {"a": None}, {"values": 4}, {"layers": [{"times_ms": 3, "forward": []}]}]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_facts_of_any_shape_give_a_page(odd, tmp_path):
    folder = make_run(tmp_path / "run")
    facts = json.loads((folder / "rocm.json").read_text())
    for key in facts:
        (folder / "rocm.json").write_text(json.dumps({**facts, key: odd}))
        the_page_of(folder)


def test_a_folder_with_only_results_is_a_run(tmp_path):
    (tmp_path / "results.csv").write_text("                  epoch,         train/box_loss\n   1, 2.5\n   2, nan\n")
    run, page = the_page_of(tmp_path)
    assert run.results.values["train/box_loss"] == [2.5, None]  # Ultralytics 8.3.0 pads its columns
    assert run.verdict.kind == "unknown"
    assert page.count("are missing: this package did not train the run") == 1


def test_numbers_of_epochs_with_gaps(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "rocm_loader.csv").write_text(
        "epoch,images,seconds,start_s,wait_s\n1,10,5,1,2\n2,,5,,\n3,10,0,0,0\n4,8,2,0,1\n"
    )
    run = read_run(folder)
    assert run.epoch_rates == [2.0, None, None, 4.0]
    assert run.images_per_s == pytest.approx(28 / 12)
    assert run.wait_share == pytest.approx(3 / 11)
    assert run.epoch_s == 3.5
    (folder / "rocm_loader.csv").write_text("epoch,images,seconds,start_s,wait_s\n1,10,0,0,0\n")
    run = read_run(folder)
    assert (run.images_per_s, run.wait_share, run.verdict.kind) == (None, None, "unknown")
