"""Commands as they are typed, and run: quotes of both shells, an environment that is there, a command that fails."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Machine
from yolo_rocm.install.plan import InstallPlan, InstallStep, make_plan
from yolo_rocm.install.shell import line, run, script, to_run

from .. import fake_trees

pytestmark = pytest.mark.once
LINUX = Machine(system="linux", overlays=("linux",))
HERE = "{}.{}".format(*sys.version_info[:2])
AWKWARD = ["a", "numpy<2", "torch[device-gfx1]", "x; y", "it's", 'say "hi"', "$HOME", "`id`", "a!b", r"a\b", "a,b"]


def test_bash_reads_the_words_that_were_meant():
    typed = line(AWKWARD, "linux")
    assert shlex.split(typed) == AWKWARD
    done = subprocess.run(["bash", "-c", f'printf "%s\\n" {typed}'], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == AWKWARD


def test_powershell_gets_its_own_quotes():
    assert line([r".venv\Scripts\pip", "install", "numpy<2"], "windows") == r'.venv\Scripts\pip install "numpy<2"'
    assert line(["$HOME", "it's $5"], "windows") == "'$HOME' 'it''s $5'"


def test_what_is_printed_is_a_script():
    plan = make_plan(LINUX, card="rx5600xt", processor="x86_64", look=False)
    text = "\n".join(script(plan, "linux"))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    commands = [each for each in text.splitlines() if each and not each.startswith("#")]
    assert len(commands) == len([step for step in plan.steps if step.words and not step.by_hand])


def steps(python: str) -> InstallPlan:
    made = InstallStep("An environment", ("python", "-m", "venv", ".venv"), python=python)
    used = InstallStep("Its use", (".venv/bin/python", "-c", "pass"))
    return InstallPlan((), "cpu", "", "", "", (), (InstallStep("By hand", ("sudo", "x"), by_hand=True), made, used))


def test_an_environment_that_fits_is_kept(tmp_path):
    assert [step.text for step in to_run(steps(HERE), folder=tmp_path)] == ["An environment", "Its use"]
    settings = fake_trees.write(tmp_path / ".venv/pyvenv.cfg", f"home = /usr\nversion = {HERE}.1\n")
    assert [step.text for step in to_run(steps(HERE), folder=tmp_path)] == ["Its use"]
    with pytest.raises(ConfigError, match=rf"with Python {HERE}; this needs Python 3\.99\. Remove it, or give another"):
        to_run(steps("3.99"), folder=tmp_path)
    site = tmp_path / ".venv/lib" / f"python{HERE}" / "site-packages"
    fake_trees.make_torch(site, hip=None)
    assert to_run(steps(HERE), folder=tmp_path)  # a plan without a GPU takes any torch
    with pytest.raises(ConfigError, match=r"with torch 2\.10\.0, which is a cpu build and sees no AMD GPU"):
        to_run(replace(steps(HERE), stack="multi-arch"), folder=tmp_path)
    fake_trees.make_torch(site)
    assert to_run(replace(steps(HERE), stack="multi-arch"), folder=tmp_path)
    settings.unlink()
    with pytest.raises(ConfigError, match="with no Python; this needs"):
        to_run(steps(HERE), folder=tmp_path)


def test_commands_run_until_one_fails_and_the_last_decides(tmp_path):
    def code(number: int) -> InstallStep:
        noted = f"open({str(tmp_path / 'log')!r}, 'a').write('{number}'); exit({number})"
        return InstallStep("", (sys.executable, "-c", noted))

    said = []
    assert run([code(0), code(2)], said.append, "linux") == 2  # the doctor's verdict is no failure of the installation
    assert (tmp_path / "log").read_text() == "02"
    with pytest.raises(ConfigError, match="command 1 of 2 failed with exit code 3"):
        run([code(3), code(0)], said.append, "linux")
    assert (tmp_path / "log").read_text() == "023"
    with pytest.raises(ConfigError, match="cannot start no-such-program"):
        run([InstallStep("", ("no-such-program",))], said.append, "linux")
    assert said[0].startswith("\n[1 of 2] ")
