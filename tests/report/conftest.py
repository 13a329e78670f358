"""A browser to open pages in. Tests that use it are skipped where there is none, or no Playwright to drive it."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Return a function that opens a page; at the end nothing may have been reported, harmed or asked of a network."""
    opened = []

    def go(path, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        opened.append((context, page, said, asked))
        return page

    yield go
    for context, page, said, asked in opened:
        assert said == []
        assert [url.partition(":")[0] for url in asked if url != "data:,"] == ["file"]  # the page itself
        assert page.evaluate("window.harmed") is None
        context.close()
