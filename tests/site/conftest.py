"""The site, built once, and what its pages hold."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from yolo_rocm.utils.file_lock import locked

from ..pages import PROJECT
from .built import Site


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Site:
    """The site; processes that share the tests share it too."""
    missing = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra `docs` is not installed: no {', '.join(missing)}")
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    out, said = root / "site", root / "site.log"
    with locked(root / "site.lock"):
        if not said.exists():
            command = [sys.executable, "-m", "docs.making.site", str(out)]
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
            said.write_text(f"{done.returncode}\n{done.stdout}{done.stderr}", encoding="utf-8")
    return Site(out, said.read_text(encoding="utf-8"))


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *words) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site):
    """Where the site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site.root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def visit(browser, address):
    """Return a function that opens a page; nothing may be asked of anybody but the server, nor go wrong."""
    opened = []

    def go(name: str, **options):
        page = browser.open(f"{address}/{name}", **options)
        opened.append(page)
        return page

    yield go
    for page in opened:
        assert [said for said in page.said if not said.startswith("log: ")] == []  # the theme tells of its button
        assert [url for url in page.asked if not url.startswith(f"{address}/")] == []
        page.close()


@pytest.fixture
def downloaded(site) -> Path:
    """Return the site as somebody has it who copied it to a disk."""
    return site.root
