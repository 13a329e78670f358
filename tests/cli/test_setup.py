"""`setup` and `env`: what they print before anything is installed, and what `setup --run` does and refuses."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from yolo_rocm.cli.main import app
from yolo_rocm.install import plan

from ..tables import each_row

pytestmark = pytest.mark.once
# As where the package was installed alone: the others are not found.
BARE = """
import sys
from importlib.machinery import PathFinder
class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in ("torch", "torchvision", "ultralytics", "numpy", "cv2", "triton"):
            return super().find_spec(name, path, target)
sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
"""
COMMAND = f"{BARE}\nfrom yolo_rocm.cli.main import main; main()"
COMMANDS = f"""{BARE}
import yolo_rocm
from yolo_rocm.cli.main import main
for command in sys.argv[1:]:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as ended:
        print(command, "ended with", ended.code, file=sys.stderr)
for name in yolo_rocm.__all__:
    try:
        getattr(yolo_rocm, name)
    except yolo_rocm.StackError as error:
        print(name, error)
"""


@pytest.mark.parametrize("words", [("setup", "--card", "RX 7900 XTX", "--json"), ("env", "--json")])
def test_they_need_neither_torch_nor_ultralytics_nor_numpy(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if words[0] == "env":
        assert found["torch"] == "not installed"
    elif words[0] == "setup":
        # AMD has no wheels for other processors.
        torch = "torch[device-gfx1100]" if platform.machine() in ("x86_64", "AMD64") else "torch"
        assert torch in found["steps"][1]["command"]


def test_everything_else_ends_in_one_line_with_the_command_that_brings_them(tmp_path):
    commands = [
        *("demo", "train data=coco8.yaml", "predict model=x source=y", "run yolo predict", "tune", "loader", "certify"),
        *("bench conv", "bench train"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=400,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    message = f"torch, torchvision, ultralytics: not installed in {sys.prefix}. "
    message += f"Run `{sys.executable} -m yolo_rocm setup --run`"
    assert [line for line in lines if "ended" in line] == [f"{command} ended with 1" for command in commands], lines
    assert all(line.startswith(f"error: {message}") for line in lines if "ended" not in line), lines
    assert len(lines) == 2 * len(commands), lines
    names = {line.partition(" ")[0] for line in done.stdout.splitlines() if message in line}
    assert {"train", "register", "callbacks", "patch", "create_dataloader", "predictor", "seed_everything"} <= names
    assert list(tmp_path.iterdir()) == []


def test_a_bare_clone_says_what_to_type(tmp_path):
    from ..pages import PROJECT

    bare = "import runpy, sys; sys.modules['typer'] = None; runpy.run_module('yolo_rocm', run_name='__main__')"
    command = [sys.executable, "-c", bare, "setup"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 1
    (told,) = done.stderr.splitlines()
    assert ".venv-setup/bin/pip install ." in told.replace("\\", "/")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder, and a plan that writes a file there."""
    monkeypatch.chdir(tmp_path)
    note = "open('ran', 'a').write('x')"
    steps = [plan.InstallStep(f"step {code}", (sys.executable, "-c", f"{note}; exit({code})")) for code in (0, 1)]
    made = plan.InstallPlan(("card: made",), "cpu", "torch", "because", "https://x", (), tuple(steps))
    monkeypatch.setattr(plan, "make_plan", lambda *_, **__: made)
    return tmp_path


def test_nothing_is_run_unless_asked_and_answered(here, monkeypatch):
    assert CliRunner().invoke(app, ["setup"]).exit_code == 0
    refused = CliRunner().invoke(app, ["setup", "--run"])  # no terminal: nobody could answer
    assert "add --yes" in str(refused.exception)
    both = CliRunner().invoke(app, ["setup", "--run", "--json"])
    assert both.exit_code == 2
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert not (here / "ran").exists()


def test_run_ends_with_the_verdict_of_the_last_command(here):
    done = CliRunner().invoke(app, ["setup", "--run", "--yes"])
    assert done.exit_code == 1
    assert (here / "ran").read_text() == "xx"
    assert "[2 of 2]" in done.output
    (here / ".venv").mkdir()
    refused = CliRunner().invoke(app, ["setup", "--run", "--yes"])  # pip would keep the torch in it
    assert "is there already" in str(refused.exception)


def test_env_is_ready_to_paste_and_hides_names(monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    monkeypatch.setenv("YOLO_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", "/home/somebody/db")
    done = CliRunner().invoke(app, ["env"])
    assert done.output.startswith("```text\n")
    assert done.output.endswith("\n```\n")
    for word in ("torch", "ultralytics", "numpy", "GPU", "HSA_OVERRIDE_GFX_VERSION", "10.3.0"):
        assert word in done.output
    assert "0123456789abcdef" not in done.output
    assert "somebody" not in done.output


@each_row(
    ("words", "meant"),
    [
        (["task=detect", "mode=train", "data=x"], ["train", "task=detect", "data=x"]),
        (["detect", "mode=val", "model=m.pt"], ["val", "detect", "model=m.pt"]),
        (["checks"], ["env"]),
        (["version"], ["--version"]),
        (["help"], ["--help"]),
        (["detect", "train", "data=x"], ["train", "task=detect", "data=x"]),
        *((kept, kept) for kept in (["train", "mode=val"], [], ["doctor"], ["run", "detect", "train"], ["a=x", "val"])),
    ],
    ids=str,
)
def test_words_in_the_order_of_ultralytics(words, meant):
    from yolo_rocm.cli.options import in_our_order

    assert in_our_order(words) == meant
