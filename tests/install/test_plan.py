"""What is installed on which machine: made trees of machines, and what somebody sitting there would be told to type."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Machine, detect
from yolo_rocm.install.plan import make_plan, package_source
from yolo_rocm.install.shell import line

from .. import fake_trees
from ..tables import each_row

pytestmark = pytest.mark.once
WINDOWS = Machine(system="windows", overlays=("windows",))


@pytest.fixture
def linux(tmp_path):
    """Return a function that makes a Linux machine with cards and without torch."""

    def make(*cards, **options) -> Machine:
        root = tmp_path / f"root{len(list(tmp_path.iterdir()))}"
        fake_trees.make_tree(root, *cards, **options)
        return detect(root, os_name="linux", torch_folder=tmp_path / "none", environ={})

    return make


def planned(machine: Machine, **options):
    return make_plan(machine, **{"processor": "x86_64", **options})


def commands(machine: Machine, **options) -> list[str]:
    return [line(step.command, machine.system) for step in planned(machine, **options).commands]


def test_an_rx_5600_xt_on_ubuntu(linux):
    machine = linux(fake_trees.RX5600XT)
    assert commands(machine) == [
        "python3.10 -m venv .venv",
        '.venv/bin/pip install --extra-index-url https://download.pytorch.org/whl/rocm5.2 "numpy<2" '
        "torch==1.13.1+rocm5.2 torchvision==0.14.1+rocm5.2",
        '.venv/bin/python -c "import torch; print(torch.__version__, torch.version.hip)"',
        '.venv/bin/pip install ".[ultralytics,torch1]"',
        ".venv/bin/yolo-rocm doctor",
    ]
    assert "RX 5600 XT" in planned(machine).about[0]
    assert planned(machine).others[:2] == ("multi-arch", "cpu")
    other = commands(machine, stack="multi-arch", python="3.13")
    assert other[0] == "python3.13 -m venv .venv"  # the Python at hand, where there are wheels for it
    assert '"torch[device-gfx1010]" "torchvision[device-gfx1010]"' in other[1]
    assert commands(machine, python="3.13")[0] == "python3.10 -m venv .venv"
    beside = commands(linux(fake_trees.RAPHAEL, fake_trees.RX7900XTX, fake_trees.RX9070XT))
    assert "torch[device-gfx1100,device-gfx1201]" in beside[1]  # of an integrated GPU no kernels are used


def test_an_rx_7900_xtx_on_windows():
    assert commands(WINDOWS, card="RX 7900 XTX")[:2] == [
        "py -3.12 -m venv .venv",
        r".venv\Scripts\pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/ "
        '"torch[device-gfx1100]" "torchvision[device-gfx1100]"',
    ]
    assert any("Adrenalin" in step.text for step in planned(WINDOWS, card="gfx1100").steps if step.by_hand)


@pytest.mark.parametrize(("release", "told"), [("6.8.0-45-generic", True), ("6.18.4-arch1-1", False), ("7.0.1", False)])
def test_strix_halo_needs_a_new_kernel(linux, release, told):
    machine = linux(fake_trees.STRIX_HALO)
    fake_trees.write(machine.root / "proc/sys/kernel/osrelease", f"{release}\n")
    assert any("6.18.4" in step.text for step in planned(machine).steps) is told


def test_wsl_asks_for_the_card(linux):
    wsl = linux(wsl=True)
    assert "--card" in planned(wsl).about[0]
    named = planned(wsl, card="7900 xtx")
    assert any("wsl --update" in step.text for step in named.steps)


@each_row(
    ("cards", "options", "stack", "why"),
    [
        ((), {}, "cpu", "no GPU was found"),
        ((), {"card": "cpu"}, "cpu", "no GPU was asked for"),
        ((), {"processor": "arm64"}, "cpu-pypi", "no GPU was found"),
        ((), {"card": "gfx90c"}, "cpu", "no published wheel has kernels for gfx90c"),
        ((), {"card": "Radeon RX 580 8GB"}, "cpu", "RX 400 and 500"),
        ((), {"card": "RX 7600 XT 16 GB"}, "multi-arch", "they have kernels"),
        ((fake_trees.RX7900XTX,), {"card": "RTX 4090"}, "nvidia", "plain Ultralytics"),
        ((fake_trees.RX7900XTX,), {"stack": "cpu"}, "cpu", "asked for with --stack"),
        ((fake_trees.RX5600XT, fake_trees.RX7900XTX), {}, "multi-arch", "rocm5.2 has nothing for gfx1010, gfx1100 on"),
    ],
    ids=str,
)
def test_the_stack_of_a_card(linux, cards, options, stack, why):
    found = planned(linux(*cards), **options)
    assert found.stack == stack
    assert why in found.why
    assert found.source.startswith("https://")
    assert stack == "multi-arch" or not any(step.by_hand for step in found.steps)


@each_row(
    ("options", "message"),
    [
        ({"stack": "multi-arhc"}, "unknown stack 'multi-arhc'; did you mean 'multi-arch'"),
        ({"card": "RX 9950"}, r"unknown card 'RX 9950'\. Near it: .*rx7900xt.*\(gfx1100\), or cpu"),
        ({"card": "rx5600xt", "stack": "rocm5.2"}, r"stack 'rocm5\.2' has nothing for gfx1010 on windows with x86_64"),
    ],
    ids=str,
)
def test_mistakes_say_what_is_allowed(options, message):
    with pytest.raises(ConfigError, match=message):
        planned(WINDOWS, **options)


def test_a_mirror_takes_the_place_of_the_index(linux):
    machine = linux(fake_trees.RX5600XT)
    assert "--extra-index-url https://mirror/simple" in commands(machine, index="https://mirror/simple")[1]
    assert " --index-url https://mirror/simple" in commands(machine, card="nvidia", index="https://mirror/simple")[1]


def test_where_pip_takes_this_package_from(tmp_path, monkeypatch):
    fake_trees.write(tmp_path / "a clone/pyproject.toml", '[project]\nname = "yolo-rocm"\n')
    assert package_source(tmp_path / "a clone") == "."
    for url, expected in (
        ((tmp_path / "a clone").as_uri(), str(tmp_path / "a clone")),
        ("https://example.org/x.whl", "yolo-rocm"),
    ):
        installed = type("Installed", (), {"read_text": lambda self, name, url=url: json.dumps({"url": url})})
        monkeypatch.setattr("importlib.metadata.distribution", lambda name, made=installed: made())
        assert package_source(tmp_path) == expected
