"""The system around the GPU, from made trees: overlays, limits, shared memory, groups, device nodes."""

from __future__ import annotations

import os

import pytest

from yolo_rocm.hardware import detect
from yolo_rocm.hardware.system import (
    cores,
    device_nodes,
    group_names,
    memory_gb,
    nvidia_driver,
    overlays,
    shm_gb,
)

from .. import fake_trees as trees
from ..fake_trees import GIB, make_tree, write

pytestmark = pytest.mark.once


def test_a_plain_linux(tmp_path):
    machine = detect(make_tree(tmp_path, trees.RX5600XT), os_name="linux")
    assert machine.overlays == ("linux",)
    assert (machine.kernel, machine.distribution) == ("6.8.0-45-generic", "Ubuntu 24.04.1 LTS")
    assert machine.amdgpu == "6.8.5"
    assert (machine.cores, machine.ram_gb, machine.ram_available_gb, machine.shm_gb) == (16, 32, 24, 16)
    assert [node.path for node in machine.devices] == ["/dev/kfd", "/dev/dri/renderD128"]


def test_an_empty_tree_answers_nothing(tmp_path):
    machine = detect(tmp_path, os_name="linux")
    nothing = (machine.kernel, machine.distribution, machine.amdgpu, machine.ram_gb, machine.shm_gb, machine.rocm)
    assert nothing == (None,) * 6
    assert machine.devices == ()
    assert machine.cores == (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"wsl": True}, ("linux", "wsl")),
        ({"container": True}, ("linux", "container")),
        ({"wsl": True, "container": True}, ("linux", "wsl", "container")),
    ],
    ids=str,
)
def test_overlays(tmp_path, facts, expected):
    assert overlays("linux", make_tree(tmp_path, **facts)) == expected
    assert overlays("windows", tmp_path) == ("windows",)
    for group, container in (("12:cpu:/docker/0123456789abcdef\n", True), ("0::/init.scope\n", False)):
        write(tmp_path / "host/proc/1/cgroup", group)
        assert ("container" in overlays("linux", tmp_path / "host")) is container


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (dvs-builder@U22)",
    ],
)
def test_nvidia_s_kernel_module_of_either_kind(tmp_path, line):
    write(tmp_path / "proc/driver/nvidia/version", f"{line}\nGCC version:  gcc version 12.3.0\n")
    assert nvidia_driver(tmp_path) == "580.95.05"


def test_limits_of_control_groups_v2(tmp_path):
    """Every level above may limit; a container of its own name space sees its limits at the top."""
    root = make_tree(tmp_path)
    group = root / "sys/fs/cgroup"
    write(root / "proc/self/cgroup", "0::/user.slice/job.scope\n")
    write(group / "user.slice/cpu.max", "350000 100000\n")
    write(group / "user.slice/job.scope/cpu.max", "max 100000\n")
    write(group / "user.slice/memory.max", f"{8 * GIB}\n")
    write(group / "user.slice/memory.current", f"{5 * GIB}\n")
    write(group / "user.slice/memory.stat", f"anon 1\ninactive_file {2 * GIB}\n")
    write(group / "user.slice/job.scope/memory.max", "max\n")
    assert cores(root) == 4  # three and a half
    assert memory_gb(root) == (8, 5)
    write(root / "proc/self/cgroup", "0::/\n")
    write(group / "cpu.max", "50000 100000\n")
    assert cores(root) == 1


def test_limits_of_control_groups_v1(tmp_path):
    root = make_tree(tmp_path)
    write(root / "proc/self/cgroup", "9:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n")
    write(root / "sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{4 * GIB}\n")
    write(root / "sys/fs/cgroup/memory/job/memory.usage_in_bytes", f"{GIB}\n")
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n")
    write(root / "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    assert cores(root) == 2
    assert memory_gb(root) == (4, 3)


@pytest.mark.parametrize("online", ["0-3,8-11", "0,1,2,3,4,5,6,7", "0-7", "0-7,²,x-y,"])
def test_processors_online(tmp_path, online):
    write(tmp_path / "sys/devices/system/cpu/online", online)
    assert cores(tmp_path) == 8


def test_a_container_with_little_shared_memory_is_warned_of(tmp_path):
    write(make_tree(tmp_path, container=True) / "proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n")
    (warning,) = detect(tmp_path, os_name="linux").warnings
    assert "64 MB of /dev/shm" in warning
    assert "--shm-size" in warning
    write(tmp_path / "proc/mounts", "shm /dev/shm tmpfs rw,size=8g 0 0\n")
    assert detect(tmp_path, os_name="linux").warnings == []
    for mount, size in (("/dev/shm tmpfs rw", 16), ("/dev/shmoo tmpfs rw,size=1g", None)):
        write(tmp_path / "proc/mounts", f"tmpfs {mount} 0 0\n")
        assert shm_gb(tmp_path, 32) == size


def test_device_nodes_tell_who_may_open_them(tmp_path):
    make_tree(tmp_path, trees.RX5600XT)
    (tmp_path / "dev/kfd").chmod(0o000)
    kfd, render = device_nodes(tmp_path)
    assert (kfd.path, kfd.mode, kfd.owner) == ("/dev/kfd", 0, os.geteuid())
    assert kfd.usable == (os.geteuid() == 0)
    assert render.usable
    assert group_names(tmp_path, [(tmp_path / "dev/kfd").stat().st_gid]) == (kfd.group,)
    assert group_names(tmp_path, [44, 110, 4711]) == ("video", "render", "4711")
