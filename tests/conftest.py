"""Fixtures: an offline Ultralytics with settings of its own, a vendor library that is broken, and made data."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before anything imports Ultralytics: no network, and never the developer's own settings file.
os.environ["YOLO_OFFLINE"] = "true"
os.environ["YOLO_AUTOINSTALL"] = "false"
os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp(prefix="yolo_rocm_tests_")
os.environ["YOLO_ROCM_CACHE"] = tempfile.mkdtemp(prefix="yolo_rocm_cache_")
os.environ["YOLO_ROCM_CONFIG"] = tempfile.mkdtemp(prefix="yolo_rocm_config_")
os.environ.pop("YOLO_ROCM", None)
os.environ.pop("YOLO_ROCM_PRESET", None)
os.environ.pop("LOCAL_RANK", None)
# Tests side by side share the cores, their child processes too: threads that wait for a core cost more than they help.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))

# A shell that runs this in the background has Ctrl-C ignored, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

from .events import events  # noqa: F401 - a fixture for all
from .thinning import mark_deep

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)  # before the words after -m are applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `deep`, unless the words after -m speak of it."""
    mark_deep(items, named=lambda nodeid: any(argument.endswith(nodeid) for argument in config.args))
    if "deep" in (config.option.markexpr or ""):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)


@pytest.fixture(scope="session", autouse=True)
def settings_stay() -> Iterator[None]:
    """Nothing is said of Ultralytics' settings, which name this clone where the environment of the tests lies in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("yolo_rocm.ultralytics_hooks.versions.leave_the_clone", lambda: None)
        yield


@pytest.fixture
def sick() -> Iterator[None]:
    """Every native convolution kernel raises."""
    from .sick_vendor import sick_vendor

    with sick_vendor():
        yield


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory):
    """Return a function from task to a small data set, made once per task."""
    from .made_data import make_data

    made: dict[str, Path] = {}

    def get(task: str = "detect") -> Path:
        if task not in made:
            made[task] = make_data(tmp_path_factory.mktemp(task), task=task, images=8, size=64)
        return made[task]

    return get


@pytest.fixture(scope="session")
def browser():
    """A Chromium to open pages in; tests that use it are skipped where there is none."""
    from .browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with Browser() as chromium:
        yield chromium


@pytest.fixture(autouse=True)
def torch_is_left_as_found() -> Iterator[None]:
    """Nothing of this package may stay behind in torch or Ultralytics after any test."""
    yield
    import sys
    import threading

    watching = [thread for thread in threading.enumerate() if thread.name == "yolo_rocm telemetry"]
    for thread in watching:
        thread.join(30)  # a training does not wait for long until it ends; on a busy machine it takes longer
    assert not [thread for thread in watching if thread.is_alive()]
    for seam in (sys.modules.get(f"yolo_rocm.{room}.seam") for room in ("conv", "norm")):
        if seam is None:
            continue
        assert seam._seam.serving == {}
        if seam._seam.libraries:  # kept for an object that the test has registered, which something still refers to
            sys.modules["yolo_rocm.engines.seam"]._owners.clear()
            seam._seam.update()
        assert seam._seam.libraries == {}
    build = sys.modules.get("ultralytics.data.build")
    if build is not None:
        assert build.InfiniteDataLoader.__name__ == "InfiniteDataLoader"
    blocks = sys.modules.get("ultralytics.nn.modules.conv")
    if blocks is not None:
        assert not hasattr(blocks.Conv.forward, "__wrapped__")
    tasks = sys.modules.get("ultralytics.nn.tasks")
    if tasks is not None:
        assert not hasattr(tasks.BaseModel._predict_once, "__wrapped__")
    loader = sys.modules.get("torch.utils.data.dataloader")
    if loader is not None:
        assert not hasattr(loader.DataLoader.__init__, "__wrapped__")
    server = sys.modules.get("multiprocessing.forkserver")
    if server is not None:
        assert server._forkserver._preload_modules == ["__main__"]
    torch = sys.modules.get("torch")
    if torch is not None:
        assert torch.backends.cudnn.enabled
        assert torch._C._get_mkldnn_enabled()


@pytest.fixture
def hangup_heard() -> Iterator[None]:
    """Hear SIGHUP in this test and in what it starts, also where the tests run under `nohup`."""
    number = getattr(signal, "SIGHUP", None)  # not on Windows
    before = None if number is None else signal.getsignal(number)
    if before is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
    yield
    if before is signal.SIG_IGN:
        signal.signal(number, before)
