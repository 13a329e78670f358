"""Containerfiles: made from the install table, for an ordinary user, without caches; one is executed line by line."""

from __future__ import annotations

import sys

import pytest

from yolo_rocm.hardware import Machine
from yolo_rocm.install.plan import make_plan
from yolo_rocm.install.shell import line
from yolo_rocm.install.table import table

from .pages import PROJECT

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


@every_image
def test_it_installs_what_setup_would(name):
    plan = make_plan(LINUX, card=CARDS[name], processor="x86_64")
    arguments = dict(text.split("=", 1) for text in of_kind(name, "ARG"))
    typed = [text.removeprefix("pip install --no-cache-dir ") for text in of_kind(name, "RUN") if "pip" in text]
    for argument, value in arguments.items():
        typed = [text.replace(f"${argument}", value) for text in typed]
    told = [
        line(step.command[2:], "linux").replace('".[', '"/opt/yolo-rocm[')
        for step in plan.steps
        if step.command[1:2] == ("install",)
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
