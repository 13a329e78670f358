#!/usr/bin/env python3
"""Take the pictures of the report in training.md: `python docs/making/report_pictures.py`, by hand, with Chromium.

Two short trainings on made data, by two engines, are looked at on a screen, in the dark, on a phone, on paper, and one
over the other. Trainings that are in the folder already are used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[1]
PROJECT: Final = DOCS.parent
IMAGES: Final = DOCS / "images"
sys.path[:0] = [path for path in (str(PROJECT),) if path not in sys.path]

from tests.browser import Browser, Page  # noqa: E402
from yolo_rocm import train  # noqa: E402
from yolo_rocm.bench.demo import ON_CPU  # noqa: E402
from yolo_rocm.bench.demo_data import make_data  # noqa: E402
from yolo_rocm.report.page import write_page  # noqa: E402

RUNS: Final = {"gemm": 12, "aten": 12}  # epochs of each engine
LARGEST: Final = 250_000  # bytes of a picture


def main() -> None:
    """Train, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where trainings are, or go; by default a temporary folder")
    folder = parser.parse_args().folder
    if folder is not None:
        _take(folder.resolve())
        return
    with tempfile.TemporaryDirectory() as temporary:
        _take(Path(temporary))


def _take(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # short names: a comparison shows what was typed
    runs = [_trained(folder, engine, epochs) for engine, epochs in RUNS.items()]
    one, _ = write_page(runs[0], out=folder / "one.html")
    two, _ = write_page(runs[0], runs[1], out=folder / "two.html")
    with Browser() as browser:
        _shoot(browser.open(one.as_uri(), 1100, 1000), "light")
        _shoot(browser.open(two.as_uri(), 1100, 900, "dark"), "dark", at="#learning")
        _shoot(browser.open(one.as_uri(), 390, 844), "phone")
        _shoot(browser.open(two.as_uri(), 1100, 1000), "two")
        paper = browser.open(one.as_uri(), scheme="dark")
        paper.media("dark", "print")
        paper.pdf(folder / "one.pdf")
    _paper(folder / "one.pdf")


def _trained(folder: Path, engine: str, epochs: int) -> Path:
    run = Path("runs", engine)
    if not (run / "results.csv").exists():
        data = make_data(folder / "data", images=ON_CPU.images, size=ON_CPU.pixels)
        train(
            ON_CPU.model, data, rocm={"conv": {"engine": engine, "devices": ["cpu"]}}, device="cpu", epochs=epochs,
            imgsz=ON_CPU.pixels, batch=ON_CPU.batch, nbs=ON_CPU.batch, optimizer="AdamW", lr0=ON_CPU.lr0, mosaic=0.0,
            warmup_epochs=1, close_mosaic=0, seed=0, plots=False, verbose=False, project=str(folder / "runs"),
            name=engine,
        )  # fmt: skip
    return run


def _shoot(page: Page, name: str, at: str = "body") -> None:
    page.evaluate(f"document.querySelector({json.dumps(at)}).scrollIntoView({{behavior: 'instant'}})")
    page.screenshot(_picture(name))
    _check(name)


def _paper(pdf: Path) -> None:
    """Make a picture of the second page, which has charts."""
    if shutil.which("pdftoppm") is None:
        raise SystemExit("the picture of a printed page needs pdftoppm, from poppler-utils")
    to = _picture("print").with_suffix("")
    subprocess.run(["pdftoppm", "-png", "-singlefile", "-r", "80", "-f", "2", str(pdf), str(to)], check=True)
    _check("print")


def _picture(name: str) -> Path:
    return IMAGES / f"report-{name}.png"


def _check(name: str) -> None:
    size = _picture(name).stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{_picture(name)} has {size} bytes; at most {LARGEST} are to be in the repository")


if __name__ == "__main__":
    main()
