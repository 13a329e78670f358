"""A training that was stopped goes on to the same digits as one that was not; and in stock Ultralytics, both ways."""

from __future__ import annotations

import csv
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import yolo_rocm
from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.data.seeding import random_states, set_random_states
from yolo_rocm.session.resume_file import STATE_FILE, StateFile
from yolo_rocm.telemetry.table import TELEMETRY_FILE
from yolo_rocm.ultralytics_hooks import OptimizerSteps
from yolo_rocm.utils import atomic

from ..small_model import small_model

# Four images a batch of twelve, sixteen a step: steps fall anywhere in an epoch, gradients are carried across.
SETTINGS = {
    "epochs": 5, "imgsz": 32, "batch": 4, "nbs": 16, "warmup_epochs": 1, "close_mosaic": 2, "optimizer": "SGD",
    "plots": False, "device": "cpu", "seed": 0, "verbose": False, "mixup": 0.3, "degrees": 10, "name": "run",
}  # fmt: skip
EXACT = {"checkpoint": {"exact_resume": True}}
STRICT = {**EXACT, "loader": {"context": "fork", "reproducible": "strict"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("resume"), images=12, size=64)


@pytest.fixture
def said():
    from ultralytics.utils import LOGGER

    lines = []

    def note(record):
        lines.append(record.getMessage())
        return True

    LOGGER.addFilter(note)
    yield lines
    LOGGER.removeFilter(note)


def run(project: Path, data: Path | None, rocm=EXACT, ours=True, callbacks=None, **arguments) -> Path:
    """Train, or resume where there is no data, and return the run's folder."""
    from ultralytics import YOLO

    folder = project / "run"
    yolo = YOLO(small_model() if data else str(folder / "weights" / "last.pt"))
    handle = yolo_rocm.register(yolo, "cpu", rocm) if ours else None
    for event, function in (callbacks or {}).items():
        yolo.add_callback(event, function)
    given = {**SETTINGS, "data": str(data), "project": str(project)} if data else {"resume": True}
    yolo.train(**{**given, **arguments})
    if handle is not None:
        handle.remove()
    return folder


class Snapshots:
    """Copies of a run's folder at chosen moments: what a kill at that moment leaves on the disk."""

    def __init__(self, project: Path, kept: Path) -> None:
        self.run, self.kept, self.epoch = project / "run", kept, 0

    def take(self, name: str) -> None:
        """Copy the folder."""
        shutil.copytree(self.run, self.kept / name)

    def put_back(self, name: str) -> None:
        """Make the folder what it was."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.kept / name, self.run)

    def replace(self, source, target) -> None:
        """Stand in for os.replace: look before and after the third `last.pt` gets its name."""
        third = self.epoch == 3 and Path(target).name == "last.pt"
        if third:
            self.take("before the third has its name")
        _replace(source, target)
        if third:
            self.take("before its state has its name")

    def begin_epoch(self, trainer) -> None:
        """Note the epoch, from 1."""
        self.epoch = trainer.epoch + 1

    def in_batch(self, trainer) -> None:
        """Copy the folder after the first batch of some epochs."""
        if self.epoch in (2, 5) and not (self.kept / f"in epoch {self.epoch}").exists():
            self.take(f"in epoch {self.epoch}")

    @property
    def callbacks(self):
        """Return what to register."""
        return {"on_train_epoch_start": self.begin_epoch, "on_train_batch_end": self.in_batch}


_replace = os.replace


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory):
    """A run that nobody stopped, its result, and its disk at the moments when it could have been."""
    project, kept = tmp_path_factory.mktemp("straight"), tmp_path_factory.mktemp("kept")
    snapshots = Snapshots(project, kept)
    atomic.os = SimpleNamespace(**{**vars(os), "replace": snapshots.replace})
    try:
        run(project, data, callbacks=snapshots.callbacks)
    finally:
        atomic.os = os
    result = outcome(project / "run")
    assert {path.name for path in (project / "run" / "weights").iterdir()} == {"last.pt", "best.pt"}
    return project, snapshots, result


def rows(folder: Path) -> list[list[str]]:
    with (folder / "results.csv").open() as file:
        return [[value for key, value in row.items() if key.strip() != "time"] for row in csv.DictReader(file)]


def outcome(folder: Path) -> tuple[list[list[str]], dict[str, dict[str, torch.Tensor]]]:
    weights = {
        name: torch.load(folder / "weights" / f"{name}.pt", weights_only=False)["model"].state_dict()
        for name in ("last", "best")
    }
    return rows(folder), weights


def assert_same(got, wanted) -> None:
    assert got[0] == wanted[0]
    for name in ("last", "best"):
        assert got[1][name].keys() == wanted[1][name].keys()
        assert all(torch.equal(value, wanted[1][name][key]) for key, value in got[1][name].items())


@pytest.mark.parametrize(
    "moment",
    ["in epoch 5", "before the third has its name", "before its state has its name"],
)
def test_resuming_gives_the_digits_of_a_run_that_was_not_stopped(straight, said, moment):
    project, snapshots, wanted = straight
    snapshots.put_back(moment)
    if moment == "before the third has its name":
        assert len(rows(snapshots.run)) == 3  # of an epoch that is trained again
    watched = (snapshots.run / TELEMETRY_FILE).read_bytes()
    got = outcome(run(project, None))
    assert_same(got, wanted)
    after = (snapshots.run / TELEMETRY_FILE).read_bytes()
    assert after.startswith(watched)
    assert len(after) > len(watched)
    assert after.count(b"time,") == 1
    assert len(wanted[0]) == SETTINGS["epochs"]
    stopped_after = {"in epoch 5": 4, "before the third has its name": 2}.get(moment, 3)
    assert any(f"as if it had not been stopped after epoch {stopped_after}" in line for line in said)
    assert {path.name for path in (snapshots.run / "weights").iterdir()} == {"last.pt", "best.pt"}


@pytest.mark.deep
@pytest.mark.once
def test_strict_batches_resume_exactly_with_any_workers(data, tmp_path, said):
    snapshots = Snapshots(tmp_path, tmp_path / "kept")
    arguments = {"rocm": STRICT, "workers": 2, "epochs": 3, "close_mosaic": 1}
    wanted = outcome(run(tmp_path, data, callbacks=snapshots.callbacks, **arguments))
    snapshots.put_back("in epoch 2")
    got = outcome(run(tmp_path, None, rocm=STRICT, workers=1))
    assert_same(got, wanted)
    assert any("goes on exactly" in line for line in said)


@pytest.mark.once
def test_ctrl_c_says_how_to_go_on_and_another_batch_size_that_it_is_not_exact(straight, said):
    project, snapshots, wanted = straight
    snapshots.put_back("in epoch 5")
    last = snapshots.run / "weights" / "last.pt"
    before = last.read_bytes()

    def interrupt(trainer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(project, None, callbacks={"on_train_batch_end": interrupt})
    (line,) = [line for line in said if "stopped by Ctrl-C" in line]
    assert f"{last} is whole and holds epoch 4. To go on (it leaves out the callbacks of your script" in line
    assert line.endswith(
        f": yolo-rocm train model={last} preset=cpu rocm.checkpoint.exact_resume=true device=cpu resume=true"
    )
    assert (snapshots.run / "report.html").exists()
    assert last.read_bytes() == before
    got = outcome(run(project, None, batch=6))
    assert got[0][:4] == wanted[0][:4]
    assert len(got[0]) == SETTINGS["epochs"]
    assert any("weights and optimizer are as they were, what follows is not: batch was 4 and is 6" in s for s in said)


@pytest.mark.once
def test_a_checkpoint_of_stock_ultralytics_is_resumed(data, tmp_path, said):
    snapshots = Snapshots(tmp_path, tmp_path / "kept")
    run(tmp_path, data, ours=False, callbacks=snapshots.callbacks, epochs=2)
    snapshots.put_back("in epoch 2")
    assert not (snapshots.run / "weights" / STATE_FILE).exists()
    folder = run(tmp_path, None)
    assert len(rows(folder)) == 2
    assert any(f"there is no {STATE_FILE} next to it" in line for line in said)


STOCK = """
import sys
sys.modules["yolo_rocm"] = None
from ultralytics import YOLO
YOLO(sys.argv[1]).train(resume=True)
"""


@pytest.mark.once
def test_stock_ultralytics_resumes_our_run_where_this_package_is_not_installed(straight):
    _, snapshots, wanted = straight
    snapshots.put_back("in epoch 5")
    last = snapshots.run / "weights" / "last.pt"
    done = subprocess.run([sys.executable, "-c", STOCK, str(last)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(rows(snapshots.run)) == SETTINGS["epochs"]
    assert rows(snapshots.run)[:4] == wanted[0][:4]
    assert torch.load(last, weights_only=False)["epoch"] == -1


@pytest.mark.once
def test_a_run_that_saves_nothing_leaves_the_state_of_an_earlier_one(data, tmp_path):
    state = tmp_path / "run" / "weights" / STATE_FILE
    state.parent.mkdir(parents=True)
    state.write_bytes(b"of an earlier run in this folder")

    def stop(trainer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, data, callbacks={"on_train_start": stop}, exist_ok=True)
    assert state.read_bytes() == b"of an earlier run in this folder"


def test_a_state_belongs_to_one_checkpoint(tmp_path):
    checkpoint, other, states = tmp_path / "last.pt", tmp_path / "epoch1.pt", StateFile(tmp_path)
    checkpoint.write_bytes(b"one")
    other.write_bytes(b"two")
    assert states.find(checkpoint) == (None, "")
    states.commit()  # nothing was staged
    states.stage({"value": torch.ones(2)}, b"one")
    assert torch.equal(states.find(checkpoint)[0]["value"], torch.ones(2))  # a crash before `commit`
    states.commit()
    states.stage({"value": torch.zeros(2)}, b"three")  # a crash before the checkpoint had its name
    assert torch.equal(states.find(checkpoint)[0]["value"], torch.ones(2))
    assert "belongs to another checkpoint" in states.find(other)[1]
    states.path.write_bytes(states.path.read_bytes()[:-40])
    state, reason = states.find(checkpoint)
    assert state is None
    assert "is damaged" in reason
    assert states.remove()
    assert not states.remove()


def test_the_state_of_another_version_is_left_out_with_one_line(straight, said):
    project, snapshots, _ = straight
    snapshots.put_back("in epoch 5")
    path = snapshots.run / "weights" / STATE_FILE
    torch.save({**torch.load(path, weights_only=False), "format": 1}, path)
    run(project, None)
    (line,) = [line for line in said if "goes on" in line]
    assert f"from the checkpoint alone, in half precision: another version of this package wrote {STATE_FILE}" in line
    assert len(rows(snapshots.run)) == SETTINGS["epochs"]


@pytest.mark.once
def test_without_being_asked_no_state_is_written_and_one_that_is_there_is_used(straight, said):
    project, snapshots, wanted = straight
    snapshots.put_back("in epoch 2")
    states = []

    def look(trainer) -> None:
        states.extend(path.name for path in Path(trainer.wdir).iterdir() if "resume" in path.name)

    got = outcome(run(project, None, rocm=None, callbacks={"on_model_save": look}))
    assert_same(got, wanted)
    assert states == []


def test_random_states_come_back(tmp_path):
    (tmp_path / "last.pt").write_bytes(b"one")
    states = StateFile(tmp_path)
    np.random.normal()  # leaves its second number for the next call
    states.stage({"random": random_states()}, b"one")
    first = random.random(), np.random.normal(), torch.rand(3).tolist()
    set_random_states(states.find(tmp_path / "last.pt")[0]["random"])
    assert (random.random(), np.random.normal(), torch.rand(3).tolist()) == first


class Loss:
    """Changes from epoch to epoch, as that of models with two heads does."""

    def __init__(self) -> None:
        self.updates, self.made_of = 0, object()

    def update(self) -> None:
        """Count an epoch."""
        self.updates += 1


@pytest.mark.parametrize("resumed", [True, False])
def test_a_loss_that_changes_from_epoch_to_epoch_goes_on(resumed):
    """Whether the trainer has made one when it resumed in its own way, or not yet."""

    def trainer():
        model = torch.nn.Linear(2, 2)
        model.init_criterion = Loss
        return SimpleNamespace(
            model=model,
            ema=SimpleNamespace(ema=torch.nn.Linear(2, 2), updates=3),
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            scaler=SimpleNamespace(state_dict=dict, is_enabled=lambda: False),
            stopper=SimpleNamespace(best_fitness=np.float64(0.5), best_epoch=1, possible_stop=False),
            best_fitness=np.float64(0.5), fitness=0.25, metrics={"a": np.float32(0.5)}, accumulate=2,
        )  # fmt: skip

    before, after = trainer(), trainer()
    before.model.criterion = Loss()
    before.model.criterion.update()
    state = hooks.trainer_state(before)
    assert state["criterion"] == {"updates": 1}
    if resumed:
        after.model.criterion = Loss()
    own = getattr(after.model, "criterion", None)
    hooks.restore_trainer(after, state)
    assert after.model.criterion.updates == 1
    assert own is None or after.model.criterion is own
    assert torch.equal(after.model.weight, before.model.weight)
    assert torch.equal(after.ema.ema.weight, before.ema.ema.weight)
    assert (after.ema.updates, after.best_fitness, after.fitness, after.metrics) == (3, 0.5, 0.25, {"a": 0.5})


@pytest.mark.parametrize("accumulate", [1, 2, 4, 7, 16])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_steps_of_the_optimizer_fall_where_they_would_have(accumulate, stop):
    """Against the training loop's own rule, with a warm-up of `accumulate` over the first batches."""
    length, epochs, made = 3, 8, []

    def trainer():
        return SimpleNamespace(
            train_loader=range(length), epoch=0, accumulate=1, optimizer_step=lambda: made.append(now[0]),
            model=torch.nn.Linear(1, 1),
        )  # fmt: skip

    def loop(it, steps, first, last_epoch):
        last_step = -1
        for it.epoch in range(first, last_epoch):
            steps.epoch_starts(it)
            for i in range(length):
                steps.batch_starts()
                now[0] = ni = i + length * it.epoch
                it.accumulate = min(accumulate, 1 + ni // 2)
                if ni - last_step >= it.accumulate:
                    it.optimizer_step()
                    last_step = ni
                steps.batch_ends(it)

    now = [0]
    whole = trainer()
    loop(whole, OptimizerSteps(whole), 0, epochs)
    wanted, made = made, []
    assert len(wanted) >= epochs * length // accumulate  # and one for each batch of the warm-up's first ones
    before = trainer()
    steps = OptimizerSteps(before)
    loop(before, steps, 0, stop)
    after = trainer()
    going_on = OptimizerSteps(after)
    gradients = {"weight": torch.ones(1, 1)}
    going_on.go_on_from(
        after, {"last_step": steps.last, "trainer": {"accumulate": before.accumulate}, "gradients": gradients}
    )
    assert after.model.weight.grad.item() == 1
    assert after.model.bias.grad is None
    loop(after, going_on, stop, epochs)
    assert made == wanted
