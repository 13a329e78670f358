"""The site in a real Chromium: search, the dark scheme, and a phone."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.once

HITS = "[...document.querySelectorAll('#search-results ul.search li a')].map(each => each.getAttribute('href'))"
DONE = "document.querySelector('#search-results p.search-summary')?.innerText"
# The theme hides what is too wide for the page and lets its contents scroll as a whole: both are asked.
TOO_WIDE = "[document.documentElement, document.querySelector('.content')].map(e => e.scrollWidth - e.clientWidth)"
SCROLLED = "[...document.querySelectorAll('.table-wrapper')].filter(each => each.scrollWidth > each.clientWidth).length"
# How bright a colour is, from 0 to 1.
BRIGHTNESS = """
((selector, what) => {
  const [r, g, b] = getComputedStyle(document.querySelector(selector))[what].match(/[\\d.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
})"""


def searched(page, words: str) -> list[str]:
    """Type words into the search field and return where the hits lead."""
    page.write(".sidebar-search", words)
    with page.loading():
        page.press("Enter", 13, "\r")
    page.wait_for(f"/(found|did not match)/.test({DONE})")
    return page.evaluate(HITS)


def test_search_finds_and_quotes(visit, site):
    page = visit("docs/install.html")
    hits = searched(page, "miopenStatusUnknownError")
    assert "docs/troubleshooting.html" in {hit.partition("#")[0].partition("?")[0] for hit in hits}
    assert {hit.partition("#")[0].partition("?")[0] for hit in hits} <= set(site.pages)
    page.wait_for("document.querySelector('#search-results p.context')?.innerText.includes('miopenStatusUnknownError')")
    with page.loading():
        page.click("#search-results ul.search li a")
    assert not page.evaluate("location.pathname").endswith("search.html")
    assert searched(page, "nosuchwordanywhere") == []


def test_search_works_on_a_copy_without_a_server(browser, downloaded):
    page = browser.open((downloaded / "index.html").as_uri())
    assert searched(page, "forkserver")
    assert [url for url in page.asked if not url.startswith("file:")] == []
    page.close()


def brightness(page) -> dict[str, float]:
    places = {"body": "backgroundColor", "article p": "color", ".highlight": "backgroundColor", "article th": "color"}
    return {f"{place} {what}": page.evaluate(f"{BRIGHTNESS}('{place}', '{what}')") for place, what in places.items()}


def test_the_dark_scheme_is_dark_by_the_system_and_by_the_button(visit):
    dark, light = (brightness(visit("docs/engines.html", scheme=scheme)) for scheme in ("dark", "light"))
    for place in dark:
        ground = "background" in place
        assert (dark if ground else light)[place] < 0.3, place
        assert (light if ground else dark)[place] > 0.7, place
    page = visit("docs/engines.html", scheme="light")
    page.click(".content-icon-container .theme-toggle")
    assert brightness(page) == dark


def test_a_phone_needs_no_scrolling_sideways(visit, site):
    page = visit("index.html", width=390, height=844)
    wide, scrolled = {}, 0
    for name in site.pages:
        page.go(page.evaluate("location.origin") + f"/{name}")
        if (pixels := page.evaluate(TOO_WIDE)) != [0, 0]:
            wide[name] = pixels
        scrolled += page.evaluate(SCROLLED)
    assert wide == {}
    assert page.evaluate("document.documentElement.clientWidth") == 390
    assert scrolled > 10  # wide tables are as wide as ever: they scroll by themselves
