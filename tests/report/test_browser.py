"""The page in a real Chromium: what is drawn where, on a screen, on a phone, in the dark and on paper."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from yolo_rocm.report.page import write_page

from .made_runs import EVIL, make_run

pytestmark = pytest.mark.once

CONTRASTS = """(() => {
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
})()"""


BACK = "getComputedStyle(document.body).backgroundColor"
LABELS = """[...document.querySelectorAll('figure.chart')].map((figure) => {
  const box = (each) => (({left, top, right, bottom}) => [left, top, right, bottom])(each.getBoundingClientRect());
  const lines = [...figure.querySelectorAll('path.line')].map((each) => getComputedStyle(each));
  return {
    title: figure.querySelector('figcaption').innerText,
    box: box(figure.querySelector('svg')),
    labels: [...figure.querySelectorAll('text')].map((each) => [each.textContent, ...box(each)]),
    colours: lines.map((each) => each.stroke),
    dashes: lines.map((each) => each.strokeDasharray),
  };
})"""


@pytest.fixture(scope="module")
def folders(browser, tmp_path_factory):
    """Two runs of 300 epochs of 500 batches; the name of one of them is a script."""
    root = tmp_path_factory.mktemp("runs")
    gpu = make_run(root / f"gpu {EVIL.replace('/', '-')}", epochs=300, batches=500, layers=60)
    data = make_run(root / "data", epochs=300, batches=500, layers=60, wait=0.05, busy=60.0)
    return gpu, data


def text(page, selector):
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")


def texts(page, selector):
    """Return the texts of the elements that can be seen."""
    return page.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.checkVisibility()).map(e => e.innerText)"
    )


def width(page):
    return page.evaluate("document.documentElement.scrollWidth")


def test_a_long_run_that_is_gpu_bound(visit, folders):
    page = visit(write_page(folders[0])[0])
    assert page.evaluate("document.querySelector('.verdict').dataset.kind") == "compute"
    assert text(page, ".verdict").startswith("GPU-bound: only 1.0%")
    assert text(page, "h1").startswith("gpu <script>")
    assert len(texts(page, "figure.chart")) == 11


def test_a_long_run_that_is_data_bound(visit, folders):
    page = visit(write_page(folders[1])[0])
    assert page.evaluate("document.querySelector('.verdict').dataset.kind") == "data"
    assert "33.3%" in text(page, ".verdict")


def test_the_table_sorts_and_filters(visit, folders):
    page = visit(write_page(folders[1])[0])

    def column(number: int) -> list[str]:
        return texts(page, f"table.sortable tbody tr > :nth-child({number})")

    def heading(number: int) -> str:
        return f"table.sortable thead th:nth-child({number}) button"

    def arrow(number: int) -> str:
        return page.evaluate(f"getComputedStyle(document.querySelector('{heading(number)}'), '::after').content")

    assert text(page, heading(2)) == "time, ms"
    assert arrow(2) == '" \u25bc"'  # the slowest first, before any click
    assert arrow(1) == "none"
    found = [float(each) for each in column(2)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    page.click(heading(2))
    assert [float(each) for each in column(2)] == sorted(found)
    assert arrow(2) == '" \u25b2"'
    page.click(heading(1))
    assert column(1)[:11] == [f"model.{i}.conv" for i in range(11)]  # by number, not 0 1 10 11
    page.write(".finder input", "3x3 model.1")
    assert len(column(1)) == 6  # 1, 11, 13, 15, 17, 19
    assert text(page, ".count") == "6 of 60 rows"
    page.write(".finder input", "")
    assert len(column(1)) == 60


def test_the_timeline_zooms_moves_and_tells(visit, folders):
    page = visit(write_page(folders[1])[0])

    def window() -> tuple[float, float]:
        low, high = page.evaluate("(({from, to}) => [from, to])(document.querySelector('.lanes').dataset)")
        return float(low), float(high)

    def choose(epoch: str) -> None:
        page.evaluate(
            f"(each => {{ each.value = [...each.options].find(o => o.text === '{epoch}').value;"
            " each.dispatchEvent(new Event('change')); })(document.querySelector('.timeline select'))"
        )

    first = window()
    page.click('[data-do="in"]')
    second = window()
    assert second[1] - second[0] == pytest.approx((first[1] - first[0]) / 2)
    assert first[0] < second[0] < second[1] < first[1]
    page.click('[data-do="right"]')
    assert window()[0] > second[0]
    x, y = page.point(".lanes")
    page.mouse("mouseMoved", x, y)
    before = window()
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    page.wait_for(f"document.querySelector('.lanes').dataset.from != {before[0]}")
    assert window()[1] - window()[0] < before[1] - before[0]
    before = window()
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    for step in (20, 40, 60, 80):
        page.mouse("mouseMoved", x - step, y, button="left")
    page.mouse("mouseReleased", x - 80, y, button="left", clickCount=1)
    page.wait_for(f"document.querySelector('.lanes').dataset.from > {before[0]}")
    page.click('[data-do="all"]')
    assert window()[0] <= 0
    assert page.evaluate("document.querySelectorAll('.lanes rect.gap').length") > 0  # between the stretches kept
    choose("2")
    page.evaluate("document.querySelectorAll('.lanes rect.step')[3].id = 'fourth'")
    page.hover("#fourth")
    page.wait_for("!document.getElementById('tip').hidden")
    assert "images, worker" in text(page, "#tip")
    assert "step: 100.0 ms" in text(page, "#tip")
    choose("300")
    assert "epoch 300:" in text(page, ".told")
    page.hover("figure.chart svg")
    page.wait_for("document.getElementById('tip').textContent.includes('share of the epoch: 33.')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("chosen", [False, True], ids=["by the system", "by the button"])
def test_every_text_is_legible(visit, folders, scheme, chosen):
    system = scheme if not chosen else {"light": "dark", "dark": "light"}[scheme]
    page = visit(write_page(*folders)[0], scheme=system)
    if chosen:
        page.click("#scheme")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.hover("figure.chart svg")
    assert (page.evaluate(BACK) == "rgb(255, 255, 255)") is (scheme == "light")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 500
    assert found[0][0] >= 4.5, found[:5]


def test_layers_that_were_not_timed_are_there_when_asked_for(visit, tmp_path):
    folder = make_run(tmp_path / "run", layers=8)
    facts = json.loads((folder / "rocm.json").read_text())
    for row in facts["convolutions"]["layers"][:3]:
        del row["times_ms"]
    (folder / "rocm.json").write_text(json.dumps(facts))
    page = visit(write_page(folder)[0], width=390, height=800)
    rows = "table.sortable tbody tr"
    assert (len(texts(page, rows)), text(page, ".count")) == (5, "5 of 8 rows")
    page.click(".finder input.untimed")
    assert (len(texts(page, rows)), text(page, ".count")) == (8, "8 rows")
    assert texts(page, ".cue")  # the table is wider than a phone


def test_charts_of_two_runs_tell_both_under_the_pointer(visit, tmp_path):
    page = visit(write_page(make_run(tmp_path / "a", epochs=3), make_run(tmp_path / "b", epochs=9, wait=0.05))[0])
    page.evaluate(
        "[...document.querySelectorAll('figure.chart')].find(e => e.innerText.startsWith('Images per s'))"
        ".querySelector('circle.line-1').id = 'last'"
    )
    page.hover("#last")
    page.wait_for("!document.getElementById('tip').hidden")
    first, *lines = text(page, "#tip").splitlines()
    assert first == "epoch 9"
    assert [line.partition(":")[0] for line in lines] == ["A images/s", "B images/s"]


CROWDED = {  # columns of results.csv of which the lines end on top of each other, and names of every width
    "metrics/precision(B)": 0.5, "metrics/recall(B)": 0.5, "metrics/mAP50(B)": 0.5, "metrics/mAP50-95(B)": 0.499,
    "metrics/WWWWWWWWWWWWWWWWWWWW(B)": 0.0, "metrics/MMMMMMMMMMMMMMMM(B)": 0.0,
    "train/box_loss": 0.0, "train/cls_loss": 0.0, "train/dfl_loss": 1.0, "train/seg_loss": 1.0, "train/pose_loss": 0.1,
    "lr/pg0": 0.1, "lr/pg1": 0.1, "lr/pg2": 0.2,
}  # fmt: skip


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("screen", [1280, 390])
def test_every_label_is_inside_its_chart_and_on_no_other(visit, tmp_path, screen, two):
    runs = [make_run(tmp_path / name) for name in "ab"[: 1 + two]]
    rows = [[1, *(2 * value for value in CROWDED.values())], [2, *CROWDED.values()]]
    for run in runs:
        table = [["epoch", *CROWDED], *rows]
        (run / "results.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in table))
    page = visit(write_page(*runs)[0], width=screen)
    charts = page.evaluate(LABELS)
    assert sum(len(chart["labels"]) for chart in charts) >= 16
    for chart in charts:
        left, top, right, bottom = chart["box"]
        for label, *box in chart["labels"]:
            inside = left <= box[0] and top <= box[1] and box[2] <= right and box[3] <= bottom
            assert inside, (chart["title"], label)
        for (one, *a), (other, *b) in combinations(chart["labels"], 2):
            apart = (
                a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
            )  # a pixel between lines of text
            assert apart, (chart["title"], one, other)
        assert len(set(chart["colours"])) == len(set(chart["dashes"])) == len(chart["colours"])


@pytest.mark.parametrize("screen", [320, 390, 768])
def test_a_narrow_screen_needs_no_scrolling_sideways(visit, folders, screen):
    page = visit(write_page(*folders)[0], width=screen, height=700)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert width(page) <= screen
    # Only what scrolls in itself may be wider than the screen.
    assert (
        page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
            " && !e.closest('.scroll, .lanes')).map(e => e.outerHTML.slice(0, 80))"
        )
        == []
    )
    assert page.evaluate("document.querySelector('.tick').getBoundingClientRect().height") >= 8
    if screen < 520:  # what differs is in cards
        assert page.evaluate("getComputedStyle(document.querySelector('.differ td')).display") == "block"
        assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#differences .scroll'))")


def test_paper_shows_everything_in_dark_ink(visit, folders, tmp_path):
    page = visit(write_page(folders[1])[0], scheme="dark", width=794, height=1123)  # A4
    on_screen = texts(page, "section h2")
    page.media("dark", "print")
    page.pdf(tmp_path / "page.pdf")  # prints; the events of printing fold and unfold
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    assert page.evaluate(BACK) == "rgb(255, 255, 255)"
    assert page.evaluate("[...document.querySelectorAll('details')].every(each => !each.open)")  # as they were
    assert texts(page, "section h2") == on_screen
    assert len(on_screen) == 8
    assert len(texts(page, "details table")) == 3  # without a script too
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every(each => each.open)")
    assert width(page) <= 794
    assert texts(page, ".controls, .finder, .cue, #scheme") == []
    assert page.evaluate("getComputedStyle(document.querySelector('figure.chart')).breakInside") == "avoid"
    page.evaluate("document.body.style.width = '500px'")  # as drawn for a screen that is wider than paper
    assert page.evaluate("[...document.querySelectorAll('svg')].every(e => e.getBoundingClientRect().right <= 500)")
    assert page.evaluate(CONTRASTS)[0][0] >= 4.5


def test_a_killed_run_in_the_browser(visit, tmp_path):
    folder = make_run(tmp_path / "run", epochs=1, batches=2, asked=9)
    for name in ("rocm.json", "rocm_telemetry.csv", "rocm_timeline.csv"):
        (folder / name).unlink()
    page = visit(write_page(folder)[0])
    assert len(texts(page, ".remarks li")) == 5  # with a word on mAP 0
    assert texts(page, ".lanes") == []
