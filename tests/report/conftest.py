"""Pages of runs in a browser."""

from __future__ import annotations

import pytest


@pytest.fixture
def visit(browser):
    """Return a function that opens a page; at the end nothing may have been reported, harmed or asked of a network."""
    opened = []

    def go(path, **options):
        page = browser.open(path.as_uri(), **options)
        opened.append(page)
        return page

    yield go
    for page in opened:
        assert page.evaluate("window.harmed === undefined")
        assert page.said == []
        assert [url.partition(":")[0] for url in page.asked] == ["file"]  # the page itself
        page.close()
