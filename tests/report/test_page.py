"""The page as text: what is in it, how large it is, and that nothing in a run can become code."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from yolo_rocm.cli.main import app
from yolo_rocm.report.page import write_page
from yolo_rocm.report.pictures import write_pictures
from yolo_rocm.report.run_data import read_run
from yolo_rocm.telemetry.table import TELEMETRY_FILE

from .made_runs import EVIL, make_run

pytestmark = pytest.mark.once

SECTIONS = ["verdict", "speed", "device", "step", "convolutions", "learning", "setup", "doctor"]


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def test_the_order_of_the_page(tmp_path):
    path, _ = write_page(make_run(tmp_path / "run"))
    assert path == tmp_path / "run" / "report.html"
    page = path.read_text(encoding="utf-8")
    assert sections(page) == SECTIONS
    assert "configs/family/rdna1.yaml" in page
    assert "warning no-kernels" in page
    assert "<p>preset rx5600xt, as asked</p>" in page
    assert [p.name for p in path.parent.iterdir() if "partial" in p.name] == []


def test_nothing_in_a_run_becomes_code_and_nothing_is_loaded_from_elsewhere(tmp_path):
    page = write_page(make_run(tmp_path / f"run {EVIL.replace('/', ':')}"))[0].read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert "&lt;script&gt;window.harmed" in page
    assert "<img" not in page
    assert page.count("</script>") == 1
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:,)""", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """2,000 epochs, 50,000 rows of telemetry, and a `rocm.json` of thousands of everything."""
    run = make_run(tmp_path_factory.mktemp("runs") / "run", epochs=2000, batches=5, layers=2000)
    with (run / TELEMETRY_FILE).open("a") as file:
        file.writelines(f"{9000 + i},{i % 100},4000,6128,60,{i % 250},3500,45,9000,sysfs\n" for i in range(50_000))
    facts, many = json.loads((run / "rocm.json").read_text()), range(8_000)
    facts["settings"]["values"] = {f"key{i}": {"value": i, "origin": "argument"} for i in many}
    facts["settings"]["notes"] = [f"note {i}" for i in many]
    facts["findings"] = [{**facts["findings"][0], "sources": [f"source {s}" for s in range(50)]} for _ in range(1000)]
    facts["machine"].update({f"fact{i}": "x" * 500 for i in range(1000)})
    facts["broken_images"] = {f"{i}.jpg": 1 for i in many}
    for number, row in enumerate(facts["convolutions"]["layers"]):
        row["forward"] = f"algorithm {number} " + "x" * 500
    (run / "rocm.json").write_text(json.dumps(facts))
    return run


def test_what_a_page_holds_is_counted_whatever_a_run_holds(endless):
    page = write_page(endless, endless)[0].read_text(encoding="utf-8")
    paths = re.findall(r'<path class="line [^"]*" d="([^"]*)"', page)
    assert len(paths) > 15
    assert max(len(path) for path in paths) < 400 * len("L123.4 123.4h0")
    assert "rows are left out" in page
    assert 1000 < page.count("<tr") + page.count("<li") < 5000
    assert len(page) < 3_000_000


def test_two_runs_tell_their_differences_first(tmp_path):
    first = make_run(tmp_path / "first", epochs=4)
    second = make_run(tmp_path / "second", wait=0.05, engine="aten", epochs=5)
    path, _ = write_page(first, second)
    assert path == first / "report_compared.html"
    page = path.read_text(encoding="utf-8")
    assert sections(page) == ["differences", *SECTIONS]
    row = '<tr><th scope="row">images/s</th><td data-of="A">'
    assert page.index(row) < page.index('id="verdict"')
    assert "-32.7% worse" in page[page.index(row) :]


def test_the_command(tmp_path):
    run = make_run(tmp_path / "run", wait=0.05)
    other = make_run(tmp_path / "other", busy=None)
    done = CliRunner().invoke(app, ["report", str(run), str(other), "--out", str(tmp_path / "new" / "both.html")])
    assert done.exit_code == 0, done.output
    assert "run: Data-bound: the GPU waited 29.4%" in done.output
    assert "rocm_telemetry.csv is missing" in done.output
    assert (tmp_path / "new" / "both.html").exists()
    told = json.loads(CliRunner().invoke(app, ["report", str(run), str(other), "--json"]).output)
    assert [each["verdict"]["bound"] for each in told["runs"]] == ["data", "compute"]
    assert told["runs"][1]["missing"]
    assert told["differences"]["Outcome"][0]["first"] == "data-bound"
    assert not list(run.glob("*.html"))
    unwritten = CliRunner().invoke(app, ["report", str(run), "--out", str(run / "results.csv" / "page.html")])
    assert "cannot write the page" in str(unwritten.exception)
    for folder, words in ((tmp_path / "nowhere", "there is no folder"), (tmp_path, "is no run folder")):
        assert words in str(CliRunner().invoke(app, ["report", str(folder)]).exception)


def test_the_page_needs_no_torch(tmp_path):
    """A run may be looked at on another machine than the one that trained."""
    run = make_run(tmp_path / "run")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'numpy', 'ultralytics', 'matplotlib')))\n"
        "from pathlib import Path; from yolo_rocm.report.page import write_page\n"
        "print(write_page(Path(sys.argv[1]))[1][0].verdict.name)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "GPU-bound", done.stderr


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    run = read_run(make_run(tmp_path / "run"))
    made = write_pictures(run, tmp_path)
    assert [path.name for path in made] == ["rocm_speed.png", "rocm_device.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and 5_000 < path.stat().st_size < 300_000 for path in made)
