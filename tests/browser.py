"""A real Chromium, driven over two pipes by its DevTools protocol: nothing to install but the browser.

    with Browser() as browser:
        page = browser.open(path.as_uri(), width=390, scheme="dark")
        page.click("#scheme")
        page.wait_for("document.querySelectorAll('li').length > 3")
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.screenshot(tmp_path / "page.png")

The fixture `browser` in conftest.py is one for the whole session, and skips where there is no Chromium. Whatever is not
here is one `page.send("Domain.method", key=value)` away: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60.0  # seconds for one answer; machines are busy
PHONE = 600  # screens narrower than this are those of phones: no room for scroll bars, fingers for pointers


class BrowserError(Exception):
    """The browser has ended, is silent, or refuses."""


class Browser:
    """A Chromium without windows; a context manager that ends it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium_", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "log"
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        words = [CHROMIUM or "chromium", "--headless", "--remote-debugging-pipe"]
        words += [f"--user-data-dir={self._folder.name}/profile", "--no-first-run", "--disable-background-networking"]
        words += ["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        with self._log.open("wb") as log:
            # Chromium reads from 3 and writes to 4. A pipe takes the lowest numbers: `to_write` is above both.
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", *words],
                pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._heard = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._write)  # Chromium ends when nobody can speak to it any more
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._folder.cleanup()

    def open(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        """Return a page that has loaded, in a context of its own: no storage or cache of other pages.

        Args:
            url: `https:`, `http:` or `file:`; of a file `path.as_uri()`.
            width: Of the screen, in CSS pixels.
            height: Likewise.
            scheme: What the system prefers: `light` or `dark`.
        """
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.media(scheme=scheme)
        page.go(url)
        return page

    def close(self, page: Page) -> None:
        """Close a page, with all that it has stored."""
        del self._pages[page.session]
        self.send("Target.disposeBrowserContext", browserContextId=page.context)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        data = json.dumps({**message, "sessionId": session} if session else message).encode() + b"\0"
        while data:
            try:
                data = data[os.write(self._write, data) :]
            except BrokenPipeError:
                raise BrowserError(self._last_words()) from None
        ends = time.monotonic() + PATIENCE
        while True:
            heard = self.hear(ends, method)
            if heard.get("id") == self._number:
                break
        if "error" in heard:
            raise BrowserError(f"{method}: {heard['error']['message']}")
        return dict(heard["result"])

    def hear(self, ends: float, waiting_for: str) -> dict[str, Any]:
        """Return the next message; one about a page has been told to it."""
        while b"\0" not in self._heard:
            if not select.select([self._read], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise BrowserError(f"{waiting_for}: no answer in time")
            new = os.read(self._read, 1 << 20)
            if not new:
                raise BrowserError(self._last_words())
            self._heard += new
        first, _, self._heard = self._heard.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.told(message["method"], message["params"])
        return message

    def _last_words(self) -> str:
        return f"Chromium has ended: {self._log.read_text(errors='replace')[-2000:]}"


class Page:
    """A page in a browser.

    Attributes:
        said: What it wrote to the console, and its errors, as `kind: text`.
        asked: The addresses it has loaded or tried to load, its own first; not what is inside it (`data:`).
    """

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self.browser, self.session, self.context = browser, session, context
        self.said: list[str] = []
        self.asked: list[str] = []
        self._loaded = False

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the protocol about this page."""
        return self.browser.send(method, self.session, **parameters)

    def told(self, event: str, facts: dict[str, Any]) -> None:
        """Remember what the browser says about this page."""
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            if not facts["request"]["url"].startswith("data:"):
                self.asked.append(facts["request"]["url"])
        elif event == "Runtime.consoleAPICalled":
            text = " ".join(str(each.get("value", each.get("description"))) for each in facts["args"])
            self.said.append(f"{facts['type']}: {text}")
        elif event == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.said.append(f"error: {details.get('exception', {}).get('description', details['text'])}")

    def go(self, url: str) -> None:
        """Load another address."""
        with self.loading():
            if error := self.send("Page.navigate", url=url).get("errorText"):
                raise BrowserError(f"{url}: {error}")

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Wait at the end until the page has loaded that something in between leads to, such as a click."""
        self._loaded = False
        yield
        ends = time.monotonic() + PATIENCE
        while not self._loaded:
            self.browser.hear(ends, "a page that loads")

    def resize(self, width: int, height: int) -> None:
        """Change the screen."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < PHONE
        )

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        """Change the system's colours, `light` or `dark`, and what the page is for, `screen` or `print`."""
        self.send(
            "Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, as JSON has it; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if details := answer.get("exceptionDetails"):
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = PATIENCE) -> Any:
        """Return the value of an expression as soon as it is true."""
        ends = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            if time.monotonic() > ends:
                raise BrowserError(f"not within {seconds:g} s: {expression}")
            time.sleep(0.05)
        return value

    def point(self, selector: str) -> tuple[float, float]:
        """Return the middle of an element, which is scrolled to."""
        x, y = self.evaluate(
            f"(each => {{ each.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const box = each.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send `mouseMoved`, `mousePressed`, `mouseReleased`, or `mouseWheel` with `deltaX` and `deltaY`."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """Click an element with the mouse."""
        place = self.point(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, *place, button="none" if kind == "mouseMoved" else "left", clickCount=1)

    def write(self, selector: str, text: str) -> None:
        """Replace what a field holds, as somebody who types it."""
        self.evaluate(f"(each => {{ each.focus(); each.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.send("Input.insertText", text=text) if text else self.press("Delete", 46)

    def press(self, key: str, code: int, text: str = "") -> None:
        r"""Press a key; Enter is `press("Enter", 13, "\r")`."""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def pdf(self, path: Path) -> None:
        """Print the page to a file."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF")["data"]))

    def close(self) -> None:
        """Close it, with all that it has stored."""
        self.browser.close(self)
