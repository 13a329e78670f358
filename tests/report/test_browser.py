"""The page in a real Chromium; see conftest.py for where that is skipped."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.report.page import write_page

from .made_runs import EVIL, make_run

pytestmark = pytest.mark.once

CONTRASTS = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, noscript")) continue;
    const style = getComputedStyle(element);
    const ink = numbers(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    let below = element, back = null;
    while (below && !back) {
      const colour = numbers(getComputedStyle(below).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) back = colour;
      below = below.parentElement;
    }
    const [high, low] = [light(ink.slice(0, 3)), light((back || [255, 255, 255]).slice(0, 3))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), element.tagName, walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.fixture(scope="module")
def folders(browser, tmp_path_factory):
    """Two runs of 300 epochs of 500 batches; the name of one of them is a script."""
    root = tmp_path_factory.mktemp("runs")
    gpu = make_run(root / f"gpu {EVIL.replace('/', '-')}", epochs=300, batches=500, layers=60)
    data = make_run(root / "data", epochs=300, batches=500, layers=60, wait=0.05, busy=60.0)
    return gpu, data


def test_a_long_run_that_is_gpu_bound(visit, folders):
    page = visit(write_page(folders[0])[0])
    assert page.locator(".verdict").get_attribute("data-kind") == "compute"
    assert page.locator(".verdict").inner_text().startswith("GPU-bound: only 1.0%")
    assert page.locator("h1").inner_text().startswith("gpu <script>")
    assert page.locator("figure.chart").count() == 11


def test_a_long_run_that_is_data_bound(visit, folders):
    page = visit(write_page(folders[1])[0])
    assert page.locator(".verdict").get_attribute("data-kind") == "data"
    assert "33.3%" in page.locator(".verdict").inner_text()


def test_the_table_sorts_and_filters(visit, folders):
    page = visit(write_page(folders[1])[0])
    rows = page.locator("table.sortable tbody tr")

    def column(number: int) -> list[str]:
        return rows.evaluate_all(f"rows => rows.map(row => row.cells[{number}].textContent)")

    head = page.locator("table.sortable thead button")
    time = next(i for i in range(head.count()) if head.nth(i).inner_text().startswith("time"))
    arrow = "each => getComputedStyle(each, '::after').content"
    assert head.nth(time).evaluate(arrow) == '" \u25bc"'  # the slowest first, before any click
    assert head.nth(0).evaluate(arrow) == "none"
    found = [float(text) for text in column(time)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    head.nth(time).click()
    assert [float(text) for text in column(time)] == sorted(found)
    assert head.nth(time).evaluate(arrow) == '" \u25b2"'
    head.nth(0).click()
    assert column(0)[:11] == [f"model.{i}.conv" for i in range(11)]  # by number, not 0 1 10 11
    page.locator(".finder input").fill("3x3 model.1")
    seen = page.locator("table.sortable tbody tr:visible")
    assert seen.count() == 6  # 1, 11, 13, 15, 17, 19
    assert page.locator(".count").inner_text() == "6 of 60 rows"
    page.locator(".finder input").fill("")
    assert seen.count() == 60


def test_the_timeline_zooms_moves_and_tells(visit, folders):
    page = visit(write_page(folders[1])[0])
    lanes = page.locator(".lanes")

    def window() -> tuple[float, float]:
        return tuple(float(lanes.get_attribute(f"data-{end}")) for end in ("from", "to"))

    first = window()
    page.locator('[data-do="in"]').click()
    second = window()
    assert second[1] - second[0] == pytest.approx((first[1] - first[0]) / 2)
    assert first[0] < second[0] < second[1] < first[1]
    page.locator('[data-do="right"]').click()
    assert window()[0] > second[0]
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    before = window()
    page.mouse.wheel(0, -100)
    page.wait_for_function("from => document.querySelector('.lanes').dataset.from != from", arg=str(before[0]))
    assert window()[1] - window()[0] < before[1] - before[0]
    before = window()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 80, box["y"] + 20, steps=4)
    page.mouse.up()
    assert window()[0] > before[0]
    page.locator('[data-do="all"]').click()
    assert window()[0] <= 0
    assert lanes.locator("rect.gap").count() > 0  # between the stretches that were kept
    page.locator(".timeline select").select_option(label="2")
    lanes.locator("rect.step").nth(3).hover()
    assert "images, worker" in page.locator("#tip").inner_text()
    assert "step: 100.0 ms" in page.locator("#tip").inner_text()
    page.locator(".timeline select").select_option(label="300")
    assert "epoch 300:" in page.locator(".told").inner_text()
    chart = page.locator("figure.chart svg").first
    chart.hover()
    assert "share of the epoch: 33." in page.locator("#tip").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("chosen", [False, True], ids=["by the system", "by the button"])
def test_every_text_is_legible(visit, folders, scheme, chosen):
    system = scheme if not chosen else {"light": "dark", "dark": "light"}[scheme]
    page = visit(write_page(*folders)[0], color_scheme=system)
    if chosen:
        page.locator("#scheme").click()
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.locator("figure.chart svg").first.hover()
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is (scheme == "light")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 500
    assert found[0][0] >= 4.5, found[:5]


def test_layers_that_were_not_timed_are_there_when_asked_for(visit, tmp_path):
    folder = make_run(tmp_path / "run", layers=8)
    facts = json.loads((folder / "rocm.json").read_text())
    for row in facts["convolutions"]["layers"][:3]:
        del row["times_ms"]
    (folder / "rocm.json").write_text(json.dumps(facts))
    page = visit(write_page(folder)[0], viewport={"width": 390, "height": 800})
    seen = page.locator("table.sortable tbody tr:visible")
    assert (seen.count(), page.locator(".count").inner_text()) == (5, "5 of 8 rows")
    page.locator(".finder input.untimed").check()
    assert (seen.count(), page.locator(".count").inner_text()) == (8, "8 rows")
    assert page.locator(".cue").is_visible()  # the table is wider than a phone


def test_charts_of_two_runs_tell_both_under_the_pointer(visit, tmp_path):
    page = visit(write_page(make_run(tmp_path / "a", epochs=3), make_run(tmp_path / "b", epochs=9, wait=0.05))[0])
    chart = page.locator("figure.chart", has_text="Images per second").locator("svg")
    chart.hover(position={"x": chart.bounding_box()["width"] - 20, "y": 40})
    first, *lines = page.locator("#tip").inner_text().splitlines()
    assert first == "epoch 9"
    assert [line.partition(":")[0] for line in lines] == ["A images/s", "B images/s"]


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_needs_no_scrolling_sideways(visit, folders, width):
    page = visit(write_page(*folders)[0], viewport={"width": width, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".tick").first.evaluate("each => each.getBoundingClientRect().height") >= 8


def test_paper_shows_what_was_folded(visit, folders, tmp_path):
    page = visit(write_page(folders[1])[0], color_scheme="dark", viewport={"width": 794, "height": 1123})  # A4
    page.pdf(path=tmp_path / "page.pdf")  # prints; the events of printing fold and unfold
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details").evaluate_all("all => all.every(each => each.open)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert not page.locator(".controls").first.is_visible()
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_a_killed_run_in_the_browser(visit, tmp_path):
    folder = make_run(tmp_path / "run", epochs=1, batches=2, asked=9)
    for name in ("rocm.json", "rocm_telemetry.csv", "rocm_timeline.csv"):
        (folder / name).unlink()
    page = visit(write_page(folder)[0])
    assert page.locator(".remarks li").count() == 5  # with a word on mAP 0
    assert page.locator(".lanes").count() == 0
