"""Containerfiles: made from the install table, for an ordinary user, without caches; one is executed line by line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from yolo_rocm.hardware import Machine
from yolo_rocm.install.plan import make_plan
from yolo_rocm.install.shell import line
from yolo_rocm.install.table import table

from .pages import PROJECT, page

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="a shell as in a container")]

FOLDER = PROJECT / "examples" / "containers"
CARDS = {"cpu": "cpu", "rocm": "RX 7900 XTX", "rx5000": "RX 5600 XT"}
LINUX = Machine(system="linux", overlays=("linux",))
every_image = pytest.mark.parametrize("name", CARDS)


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a file with their arguments; none goes over several lines."""
    lines = (FOLDER / f"Containerfile.{name}").read_text(encoding="utf-8").splitlines()
    return [(word, rest) for word, _, rest in (text.partition(" ") for text in lines if text and text[0] != "#")]


def of_kind(name: str, kind: str) -> list[str]:
    """Return the arguments of all instructions of a kind."""
    return [rest for word, rest in instructions(name) if word == kind]


def test_there_is_one_for_each_of_the_cards():
    assert {path.name for path in FOLDER.iterdir()} == {f"Containerfile.{name}" for name in CARDS}


@every_image
def test_it_installs_what_setup_would(name):
    plan = make_plan(LINUX, card=CARDS[name], processor="x86_64", look=False)
    arguments = dict(text.split("=", 1) for text in of_kind(name, "ARG"))
    typed = [text.removeprefix("pip install --no-cache-dir ") for text in of_kind(name, "RUN") if "pip" in text]
    for argument, value in arguments.items():
        typed = [text.replace(f"${argument}", value) for text in typed]
    told = [
        line(step.words[2:], "linux").replace('".[', '"/opt/yolo-rocm[')
        for step in plan.steps
        if step.words[1:2] == ("install",)
    ]
    assert typed == told
    (base,) = of_kind(name, "FROM")
    assert base == f"docker.io/library/python:{table().stacks[plan.stack].pythons[0]}-slim"


@every_image
def test_who_works_in_it_is_an_ordinary_user_and_nothing_is_installed_after(name):
    words = [word for word, _ in instructions(name)]
    (user,) = of_kind(name, "USER")
    assert user not in ("root", "0")
    assert any(f"useradd --create-home --uid 1000 {user}" in text for text in of_kind(name, "RUN"))
    assert not {"RUN", "COPY", "ADD"} & set(words[words.index("USER") :])


@every_image
def test_no_layer_keeps_a_cache(name):
    """What a later layer removes is in the image all the same: each line removes its own."""
    lines = of_kind(name, "RUN")
    for text in lines:
        assert text.count("pip install") == text.count("pip install --no-cache-dir")
        if "apt-get" in text:
            assert "--no-install-recommends" in text
            assert text.endswith("&& rm -rf /var/lib/apt/lists/*")
    assert sum("pip install" in text for text in lines) == 2
    assert sum("apt-get" in text for text in lines) == 1


def test_a_compiler_is_where_triton_is_and_nowhere_else():
    """Triton builds the launchers of its kernels when they are first used on a GPU."""
    assert {name for name in CARDS if re.search(r"\bgcc libc6-dev\b", " ".join(of_kind(name, "RUN")))} == {"rocm"}


def test_the_page_names_files_and_targets_that_exist():
    told = page(PROJECT / "docs" / "containers.md")
    commands = "\n".join(text for _, text in told.blocks)
    named = re.findall(r"-f (\S+)", commands)
    assert len(named) == 3
    assert all((PROJECT / path).is_file() for path in named)
    assert set(re.findall(r"TARGET=(\w+)", commands)) <= set(table().stacks["multi-arch"].targets)
    for option in re.findall(r" (--(?:device|group-add|userns) \S+)", commands):
        assert option.split()[0] in told.prose, option
    user, folder = of_kind("rocm", "USER")[0], of_kind("rocm", "WORKDIR")[0]
    assert f":/home/{user} " in commands
    assert f":{folder} " in commands


class Folder:
    """A folder in place of an image: its paths are below it, and its packages those of this Python.

    Nothing is fetched: torch is installed already, `apt-get` and `useradd` only write down what they were asked.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "asked"
        local = root / "usr/local"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(local)], check=True)
        (site,) = local.glob("lib/python3.*/site-packages")
        here = sysconfig.get_paths()["purelib"]
        (site / "installed.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        self.write("usr/local/bin/pip", 'exec "$(dirname "$0")/python" -m pip "$@"')
        for name in ("apt-get", "useradd", "chown"):
            self.write(f"stand-ins/{name}", f'echo {name} "$@" >> {self.log}')
        path = os.pathsep.join((str(root / "stand-ins"), str(local / "bin"), os.environ["PATH"]))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "YOLO_"))}
        # Without an index, and with the build backend of this Python in place of one from an index.
        pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        # An environment of one folder, so that nothing of the machine's user is seen.
        own = {"HOME": str(root / "home/yolo"), "YOLO_OFFLINE": "true", "OMP_NUM_THREADS": "1"}
        self.environment = {**kept, **pip, **own, "PATH": path}
        (root / "home/yolo").mkdir(parents=True)

    def write(self, name: str, script: str) -> None:
        """Write a program."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def inside(self, text: str) -> str:
        """Return a text with its absolute paths below the folder."""
        return re.sub(r"""(?<![^\s"'=])/(?=[a-z])""", f"{self.root}/", text)

    def run(self, command: list[str] | str) -> str:
        """Run a command, or a line of a shell, and return what it printed."""
        words = ["/bin/sh", "-ec", self.inside(command)] if isinstance(command, str) else command
        place = self.root / "data" if (self.root / "data").exists() else self.root
        done = subprocess.run(
            words,
            cwd=place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def build(self, name: str) -> None:
        """Carry out the instructions of a file."""
        for word, rest in instructions(name):
            if word == "ARG":
                argument, value = rest.split("=", 1)
                self.environment[argument] = value
            elif word == "COPY":
                source, target = rest.split()
                place = Path(self.inside(target))
                place.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (PROJECT / source).is_dir() else shutil.copyfile
                copy(PROJECT / source, place)
            elif word == "RUN":
                self.run(rest)
            else:
                assert word in ("FROM", "USER", "WORKDIR", "ENTRYPOINT", "CMD"), f"nobody carries out {word}"


@pytest.mark.deep  # the whole image is built every week, see .github/workflows/clean.yml
def test_every_line_of_the_cpu_image_runs_and_so_does_its_demo(tmp_path):
    folder = Folder(tmp_path)
    (tmp_path / "var/lib/apt/lists/left").mkdir(parents=True)
    folder.build("cpu")
    asked = folder.log.read_text().splitlines()
    assert asked == [
        "apt-get update",
        "apt-get install --yes --no-install-recommends libgl1 libglib2.0-0",
        "useradd --create-home --uid 1000 yolo",
        f"chown yolo {tmp_path}/data",
    ]
    assert not any((tmp_path / "var/lib/apt/lists").iterdir())
    (entry,), (place,) = of_kind("cpu", "ENTRYPOINT"), of_kind("cpu", "WORKDIR")
    assert folder.inside(place) == str(tmp_path / "data")
    program = shutil.which(*json.loads(entry), path=str(tmp_path / "usr/local/bin"))
    assert program is not None
    found = folder.run(["python", "-c", "import yolo_rocm; print(yolo_rocm.__file__)"]).strip()
    assert Path(found).is_relative_to(tmp_path / "usr/local")  # what was installed, not what the tests use
    told = json.loads(folder.run([program, "demo", "--epochs", "1", "--json"]))
    assert told["epochs"] == 1
    assert (tmp_path / "data/yolo-rocm-demo/runs/demo/weights/best.pt").exists()
    assert json.loads(of_kind("cpu", "CMD")[0])[0] in folder.run([program, "--help"])
