"""Commands as they are typed, and run: quotes of both shells, and a command that fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Machine
from yolo_rocm.install.plan import InstallStep, make_plan
from yolo_rocm.install.shell import line, run, script

pytestmark = pytest.mark.once
AWKWARD = ["a", "numpy<2", "torch[device-gfx1]", "x; y", "it's", 'say "hi"', "$HOME", "`id`", "a!b", r"a\b", "a,b"]


def test_bash_reads_the_words_that_were_meant():
    typed = line(AWKWARD, "linux")
    done = subprocess.run(["bash", "-c", f'printf "%s\\n" {typed}'], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == AWKWARD


def test_powershell_gets_its_own_quotes():
    assert line([r".venv\Scripts\pip", "install", "numpy<2"], "windows") == r'.venv\Scripts\pip install "numpy<2"'
    assert line(["$HOME", "it's $5"], "windows") == "'$HOME' 'it''s $5'"


def test_what_is_printed_is_a_script():
    plan = make_plan(Machine(system="linux", overlays=("linux",)), card="rx5600xt", processor="x86_64")
    text = "\n".join(script(plan, "linux"))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    commands = [each for each in text.splitlines() if each and not each.startswith("#")]
    assert len(commands) == len(plan.commands)


def test_commands_run_until_one_fails_and_the_last_decides(tmp_path):
    def code(number: int) -> InstallStep:
        noted = f"open({str(tmp_path / 'log')!r}, 'a').write('{number}'); exit({number})"
        return InstallStep("", (sys.executable, "-c", noted))

    lines = []
    assert run([code(0), code(2)], lines.append, "linux") == 2  # the doctor's verdict is no failure of the installation
    with pytest.raises(ConfigError, match="the command before failed with exit code 3"):
        run([code(3), code(0)], lines.append, "linux")
    assert (tmp_path / "log").read_text() == "023"
    with pytest.raises(ConfigError, match="cannot start no-such-program"):
        run([InstallStep("", ("no-such-program",))], lines.append, "linux")
    assert lines[0].startswith("\n[1 of 2] ")
