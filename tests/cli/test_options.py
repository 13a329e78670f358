"""What the commands share: tables that show text as it is, and a default that follows the preset."""

from __future__ import annotations

from rich.text import Text
from typer.testing import CliRunner

from yolo_rocm.bench import loader
from yolo_rocm.cli.main import app
from yolo_rocm.cli.options import print_table
from yolo_rocm.errors import ConfigError
from yolo_rocm.preset.resolve import resolve


def test_brackets_in_a_table_are_text(capsys):
    print_table(("a", "b"), [("bad [/red] tag", "[bold]x[/bold]"), (), (Text("styled", style="bold"),)], "run [/1]")
    shown = capsys.readouterr().out
    for words in ("bad [/red] tag", "[bold]x[/bold]", "styled", "run [/1]"):
        assert words in shown


def test_bench_loader_measures_what_trainings_use(monkeypatch):
    seen = []

    def ways(data, **given):
        seen.append(given["context"])
        raise ConfigError("enough")

    monkeypatch.setattr(loader, "ways", ways)
    CliRunner().invoke(app, ["bench", "loader", "data.yaml"])
    CliRunner().invoke(app, ["bench", "loader", "data.yaml", "context=fork"])
    assert seen == [resolve("auto").preset.loader.context, "fork"]
