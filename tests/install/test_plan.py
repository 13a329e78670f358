"""What is installed on which machine: made trees of machines, and what somebody sitting there would be told to type."""

from __future__ import annotations

import json
import sys

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Machine, detect
from yolo_rocm.install import plan
from yolo_rocm.install.plan import as_dict, make_plan, package_source
from yolo_rocm.install.shell import line, script

from .. import fake_trees

pytestmark = pytest.mark.once
XTX_OF_WINDOWS = {
    "MatchingDeviceId": r"PCI\VEN_1002&DEV_744C&REV_C8",
    "DriverDesc": "AMD Radeon RX 7900 XTX",
    "HardwareInformation.qwMemorySize": 24 * 2**30,
}


@pytest.fixture
def linux(tmp_path):
    """Return a function that makes a Linux machine with cards and without torch."""

    def make(*cards, **options) -> Machine:
        fake_trees.make_tree(tmp_path / "root", *cards, **options)
        return detect(tmp_path / "root", os_name="linux", torch_folder=tmp_path / "none", environ={})

    return make


def planned(machine: Machine, **options):
    return make_plan(machine, **{"processor": "x86_64", "look": False, **options})


def commands(machine: Machine, **options) -> list[str]:
    steps = planned(machine, **options).steps
    return [line(step.words, machine.system) for step in steps if step.words and not step.by_hand]


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
    found = planned(machine)
    assert "RX 5600 XT" in found.about[0]
    assert "gfx1010" in found.about[0]
    assert "Ubuntu 24.04.1 LTS" in found.about[1]
    assert found.others == ("multi-arch", "cpu")
    other = commands(machine, stack="multi-arch")
    assert other[0] == "python3.12 -m venv .venv"
    assert '"torch[device-gfx1010]" "torchvision[device-gfx1010]"' in other[1]


def test_an_rx_7900_xtx_on_windows():
    machine = detect(os_name="windows", adapters=lambda: [XTX_OF_WINDOWS], environ={})
    assert commands(machine)[:2] == [
        "py -3.12 -m venv .venv",
        r".venv\Scripts\pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/ "
        '"torch[device-gfx1100]" "torchvision[device-gfx1100]"',
    ]
    by_hand = [step for step in planned(machine).steps if step.by_hand]
    assert any("Adrenalin" in step.text for step in by_hand)
    assert ("winget", "install", "--exact", "--id", "Microsoft.VCRedist.2015+.x64") in [step.words for step in by_hand]
    assert all(step.source.startswith("https://") for step in by_hand)
    shown = script(planned(machine), "windows")
    assert any(text.startswith("#    winget") for text in shown)  # a comment: `setup > file` must not run it


def test_an_rx_5600_xt_on_windows_gets_wheels_that_windows_has():
    machine = Machine(system="windows", overlays=("windows",))
    found = planned(machine, card="rx5600xt")
    assert (found.stack, found.others) == ("multi-arch", ("cpu",))
    assert "rocm5.2 has nothing for windows" in found.why
    with pytest.raises(ConfigError, match=r"stack 'rocm5\.2' has nothing for gfx1010 on windows"):
        planned(machine, card="rx5600xt", stack="rocm5.2")


@pytest.mark.parametrize(("release", "told"), [("6.8.0-45-generic", True), ("6.18.4-arch1-1", False), ("7.0.1", False)])
def test_strix_halo_needs_a_new_kernel(linux, tmp_path, release, told):
    machine = linux(fake_trees.STRIX_HALO)
    fake_trees.write(tmp_path / "root/proc/sys/kernel/osrelease", f"{release}\n")
    steps = planned(machine).steps
    assert any("6.18.4" in step.text for step in steps) is told


def test_wsl_and_containers_are_told_apart(linux):
    wsl = linux(wsl=True)
    assert any("--card" in told for told in planned(wsl).about)
    named = planned(wsl, card="7900 xtx")
    assert any("wsl --update" in step.text for step in named.steps)
    assert not any("--card" in told for told in named.about)
    halo = planned(wsl, card="strix halo")
    assert not any("kernel" in step.text for step in halo.steps)  # WSL's kernel is Microsoft's
    old = planned(wsl, card="rx5600xt")
    assert (old.stack, old.why) == ("multi-arch", "rocm5.2 has nothing for wsl with x86_64")


def test_a_container_without_the_device_says_how_to_start_it(linux):
    told = "\n".join(planned(linux(container=True)).about)
    assert "inside a container" in told
    assert "--device=/dev/kfd" in told


def test_a_device_that_cannot_be_opened_names_its_group(linux, monkeypatch):
    machine = linux(fake_trees.RX7900XTX)
    closed = fake_trees_node("/dev/kfd", "render")
    monkeypatch.setitem(machine.__dict__, "devices", (closed, fake_trees_node("/dev/dri/renderD128", "video")))
    steps = [step for step in planned(machine).steps if "usermod" in step.words]
    assert [step.words[4] for step in steps] == ["render,video"]
    assert all(step.by_hand for step in steps)


def fake_trees_node(path: str, group: str):
    from yolo_rocm.hardware.system import DeviceNode

    return DeviceNode(path, 0o660, 0, group, usable=False)


def test_an_integrated_gpu_beside_a_card_gets_no_kernels(linux):
    machine = linux(fake_trees.RAPHAEL, fake_trees.RX7900XTX)
    assert "[device-gfx1100]" in commands(machine)[1]


def test_two_kinds_of_cards_get_kernels_for_both(linux):
    assert "torch[device-gfx1100,device-gfx1201]" in commands(linux(fake_trees.RX7900XTX, fake_trees.RX9070XT))[1]


def test_a_stack_has_kernels_for_all_cards(linux):
    assert planned(linux(fake_trees.RX5600XT, fake_trees.RX7900XTX)).stack == "multi-arch"


def test_without_a_gpu_and_with_one_that_no_wheel_knows(linux):
    machine = linux()
    assert planned(machine).stack == "cpu"
    assert planned(machine, processor="aarch64").stack == "cpu-pypi"
    assert "index-url" not in " ".join(commands(machine, processor="arm64"))
    old = planned(machine, card="gfx90c")
    assert (old.stack, old.why) == ("cpu", "no published wheel has kernels for gfx90c")
    assert not [step for step in old.steps if step.by_hand]


@pytest.mark.parametrize("card", ["Radeon RX 580 8GB", "R9 Fury X", "gfx803"])
def test_a_card_that_rocm_has_left_is_answered_for_what_it_is(linux, card):
    found = planned(linux(), card=card)
    assert (found.stack, "RX 400 and 500" in found.why, "engine=ncnn" in found.why) == ("cpu", True, True)
    assert found.source.endswith("legacy-rocm-build/issues/1353")
    assert "gfx803" in found.about[0]


@pytest.mark.parametrize("card", ["RTX 4090", "nvidia", "A100"])
def test_a_card_of_nvidia_gets_its_torch_or_is_sent_to_plain_ultralytics(linux, card):
    found = planned(linux(fake_trees.RX7900XTX), card=card)
    assert (found.stack, "plain Ultralytics" in found.why) == ("nvidia", True)
    with pytest.raises(ConfigError, match=f"{card} is an NVIDIA GPU: install the torch that pytorch.org names"):
        planned(Machine(system="windows", overlays=("windows",)), card=card)


@pytest.mark.parametrize(
    ("card", "target"),
    [
        ("RX 7600 XT 16 GB", "gfx1102"),
        ("W7800 48GB", "gfx1100"),
    ],
)
def test_the_memory_behind_a_name_does_no_harm(linux, card, target):
    assert f"device-{target}" in commands(linux(), card=card)[1]


def test_mistakes_say_what_is_allowed(linux):
    machine = linux()
    with pytest.raises(ConfigError, match="unknown stack 'multi-arhc'; did you mean 'multi-arch'"):
        planned(machine, stack="multi-arhc")
    with pytest.raises(ConfigError, match=r"unknown card 'RX 9950'\. Near it: .*rx7900xt.*\(gfx1100\), or cpu"):
        planned(machine, card="RX 9950")


def test_a_mirror_takes_the_place_of_the_index(linux):
    machine = linux(fake_trees.RX5600XT)
    assert "--extra-index-url https://mirror/simple" in commands(machine, index="https://mirror/simple")[1]
    assert "--index-url https://mirror/simple" in commands(machine, card="cpu", index="https://mirror/simple")[1]


def test_the_python_that_runs_here_is_taken_where_it_will_do(linux, monkeypatch):
    here = "{}.{}".format(*sys.version_info[:2])
    monkeypatch.setattr("shutil.which", lambda name: None if name == "python3.10" else name)
    assert commands(linux(), look=True)[0] == f"python{here} -m venv .venv"
    if here != "3.10":
        first = planned(linux(fake_trees.RX5600XT), look=True).steps[-5]
        assert first.words == ("python3.10", "-m", "venv", ".venv")
        assert first.text.endswith("python3.10 is not here: pip install uv, then uv venv --seed --python 3.10 .venv")


def test_the_plan_as_data(linux):
    data = json.loads(json.dumps(as_dict(planned(linux(*[fake_trees.MI300X] * 8)))))
    assert data["about"][0].startswith("card: 8 x AMD Instinct MI300X")
    assert data["stack"] == "multi-arch"
    assert data["steps"][0]["command"] == ["python3.12", "-m", "venv", ".venv"]


def test_where_pip_takes_this_package_from(tmp_path, monkeypatch):
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone/pyproject.toml").write_text('[project]\nname = "yolo-rocm"\n')
    assert package_source(tmp_path / "clone") == "."

    class Installed:
        def __init__(self, text):
            self.text = text

        def read_text(self, _):
            return self.text

    for text, expected in (
        (json.dumps({"url": (tmp_path / "clone").as_uri()}), str(tmp_path / "clone")),
        (json.dumps({"url": "https://example.org/x.whl"}), "yolo-rocm"),
        (None, "yolo-rocm"),
    ):
        monkeypatch.setattr("importlib.metadata.distribution", lambda _, text=text: Installed(text))
        assert package_source(tmp_path) == expected
    assert plan.ENVIRONMENT == ".venv"
