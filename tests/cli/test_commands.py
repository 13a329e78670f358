"""Every command of the command line: its help, its example, its JSON, and what it writes where."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from yolo_rocm.cli.main import app
from yolo_rocm.cli.options import print_table

from ..pseudo_terminal import all_of
from ..tables import each_row

pytestmark = pytest.mark.once
ESCAPE = re.compile(r"\x1b\[")
# What these print is Ultralytics', or the script's that they run.
NOT_OURS = {"train", "val", "predict", "track", "export", "benchmark", "run"}


def _leaves(group, above=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, (*above, name))
        else:
            yield (*above, name), command


COMMANDS = dict(_leaves(typer.main.get_command(app)))


def run(*words: str, cwd, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yolo_rocm", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300, env={**os.environ, **variables}
    )


@each_row("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_parses(path):
    command = COMMANDS[path]
    told = CliRunner().invoke(app, [*path, "--help"])
    assert told.exit_code == 0
    assert command.help
    begin, _, example = (command.epilog or "").partition(": ")
    assert begin == "Example"
    assert "Example: yolo-rocm" in told.output
    assert "bool" not in told.output  # flags take no value
    words = shlex.split(example)
    assert words[: 1 + len(path)] == ["yolo-rocm", *path]
    # Raises on options that do not exist; where those are passed on, they would be among the words.
    context = command.make_context(path[-1], words[1 + len(path) :])
    given = [word for value in context.params.values() if isinstance(value, list) for word in value]
    if path != ("run",):  # passes everything on to its script
        assert not [word for word in (*context.args, *given) if word.startswith("-")]
    argument = next((p for p in command.params if p.name == "words"), None)
    if argument is not None and "key=value" not in argument.metavar:
        keys = {word.partition("=")[0] for word in given if "=" in word}
        assert all(f"[{key}=" in argument.metavar for key in keys)


def test_what_a_program_might_read_is_there_as_json():
    without = {
        path for path, command in COMMANDS.items() if not any("--json" in option.opts for option in command.params)
    }
    assert without == {(name,) for name in NOT_OURS}


QUICK = {
    "presets": ("presets",),
    "one preset": ("presets", "rx5600xt"),
    "loader": ("loader",),
    "doctor": ("doctor", "--no-probes"),
    "a log": ("doctor", "nothing.log"),
    "report": ("report", "run"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("commands")
    (place / "nothing.log").write_text("all is well\n")
    (place / "run").mkdir()
    (place / "run" / "results.csv").write_text("epoch,metrics/mAP50(B)\n1,0.5\n")
    return place


@pytest.mark.parametrize("words", QUICK.values(), ids=QUICK)
def test_json_stands_alone_on_stdout(words, place, monkeypatch):
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, [*words, "--json"], env={"FORCE_COLOR": "1"})
    assert done.exit_code in (0, 1), done.output
    assert json.loads(done.stdout)
    assert not ESCAPE.search(done.stdout)


def test_a_process_gets_json_and_plain_lines(place, tmp_path):
    """With a new configuration folder, about which Ultralytics tells on stdout, and with colours asked for or not."""
    variables = {"YOLO_CONFIG_DIR": str(tmp_path), "YOLO_ROCM_CACHE": str(tmp_path)}
    done = run(*QUICK["doctor"], "--json", cwd=place, FORCE_COLOR="1", **variables)
    assert json.loads(done.stdout)
    done = run(*QUICK["one preset"], cwd=place, FORCE_COLOR="", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not ESCAPE.search(done.stdout + done.stderr)
    assert "\r" not in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
@pytest.mark.parametrize("words", [("presets",), ("presets", "no-such-one")], ids=lambda w: w[-1])
def test_a_terminal_gets_styles_unless_no_color_is_set(words, place):
    import pty

    def written(**variables: str) -> str:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        command = [sys.executable, "-m", "yolo_rocm", *words]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=place, env=environment, close_fds=True
        )
        os.close(theirs)
        told = all_of(ours)
        process.wait(60)
        return told

    plain = written(NO_COLOR="1")
    assert len(plain) > 50
    assert not ESCAPE.search(plain)
    if words != ("presets", "no-such-one"):  # errors are plain everywhere
        assert ESCAPE.search(written(NO_COLOR=""))


def test_brackets_in_a_table_are_text(capsys):
    print_table(("a", "b"), [("bad [/red] tag", "[bold]x[/bold]"), (), (Text("styled", style="bold"),)], "run [/1]")
    shown = capsys.readouterr().out
    for words in ("bad [/red] tag", "[bold]x[/bold]", "styled", "run [/1]"):
        assert words in shown
