"""The page in a real Chromium: what is drawn where, on a screen, on a phone, in the dark and on paper."""

from __future__ import annotations

import json

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


def test_the_table_sorts_and_filters(visit, folders):
    page = visit(write_page(folders[1])[0])

    def column(number: int) -> list[str]:
        return texts(page, f"table.sortable tbody tr > :nth-child({number})")

    def heading(number: int) -> str:
        return f"table.sortable thead th:nth-child({number}) button"

    assert text(page, heading(2)) == "time, ms"
    found = [float(each) for each in column(2)]  # the slowest first, before any click
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    page.click(heading(2))
    assert [float(each) for each in column(2)] == sorted(found)
    page.click(heading(1))
    assert column(1)[:11] == [f"model.{i}.conv" for i in range(11)]  # by number, not 0 1 10 11
    page.write(".finder input", "3x3 model.1")
    assert len(column(1)) == 6  # 1, 11, 13, 15, 17, 19
    assert text(page, ".count") == "6 of 60 rows"
    page.write(".finder input", "")
    assert len(column(1)) == 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_legible(visit, folders, scheme):
    page = visit(write_page(*folders)[0], scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert (page.evaluate(BACK) == "rgb(255, 255, 255)") is (scheme == "light")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 500
    assert found[0][0] >= 4.5, found[:5]


def test_a_narrow_screen_needs_no_scrolling_sideways(visit, folders):
    screen = 320
    page = visit(write_page(*folders)[0], width=screen, height=700)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= screen
    # Only what scrolls in itself may be wider than the screen.
    assert (
        page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
            " && !e.closest('.scroll')).map(e => e.outerHTML.slice(0, 80))"
        )
        == []
    )
    assert page.evaluate("document.querySelector('.tick').getBoundingClientRect().height") >= 8
    assert page.evaluate("getComputedStyle(document.querySelector('.differ td')).display") == "block"  # cards
