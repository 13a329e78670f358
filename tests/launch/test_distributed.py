"""Trainings of two processes: under torchrun and under Ultralytics' own launcher, on CPUs whose kernels all raise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler
from ultralytics.utils import dist

from yolo_rocm.errors import ConfigError
from yolo_rocm.launch.rank import main
from yolo_rocm.session.arguments import train_arguments
from yolo_rocm.session.session import Session
from yolo_rocm.utils.process_group import Place, local_device

from ..session.test_training import OURS
from ..small_model import small_model

ROOT = Path(__file__).parents[2]
# No randomness in the images, and an optimizer whose steps are the same for one batch of 4 and two of 2.
PLAIN = {
    **{name: 0.0 for name in ("mosaic", "hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "warmup_epochs")},
    **{"imgsz": 32, "nbs": 4, "optimizer": "SGD", "lr0": 0.0001, "close_mosaic": 0, "plots": False, "seed": 0},
    # Determinism imports torch's compiler in every process; there is nothing on a CPU that it would change.
    **{"verbose": False, "amp": False, "val": False, "deterministic": False},
}
# What --standalone is in newer releases. In torch 1.13 it is a port of its own, which two tests at once cannot share.
ALONE = ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]
TWO = [sys.executable, "-m", "torch.distributed.run", *ALONE, "--nproc_per_node", "2"]


def start(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose ranks are watched by `tests/ranks/sitecustomize.py`."""
    path = os.pathsep.join([str(ROOT / "tests" / "ranks"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TEST_RANKS_FOLDER": str(folder), **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=550
    )


def seen_by(folder: Path) -> list[dict]:
    """Return what the ranks have written."""
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.fixture(scope="module")
def first_weights(tmp_path_factory) -> Path:
    """Weights to begin with, for the classes of the made data."""
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "first.pt"
    model = DetectionModel(small_model(), nc=2, verbose=False)
    model.args = {"imgsz": 64}
    torch.save({"model": model, "train_args": {}, "epoch": -1}, path)
    return path


@pytest.fixture(scope="module")
def ranks(first_weights, made_data, tmp_path_factory) -> Path:
    """Two epochs under torchrun: two ranks, two images each, one loading worker each."""
    folder = tmp_path_factory.mktemp("torchrun")
    arguments = {"model": str(first_weights), "data": str(made_data()), "batch": 4, "epochs": 2, "device": "cpu"}
    ours = {"val": True, "preset": "cpu", "rocm": {**OURS, "loader": {"workers": 1}}, "project": str(folder / "runs")}
    (folder / "cfg.yaml").write_text(yaml.safe_dump({**PLAIN, **arguments, **ours}))
    (folder / "runs" / "train").mkdir(parents=True)  # an earlier run: each rank alone would choose another folder
    done = start([*TWO, "-m", "yolo_rocm", "train", "cfg.yaml"], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


class OfTwoRanks(Sampler):
    """Gives a single process the batches of two ranks in turn, epoch after epoch."""

    def __init__(self, count: int, batch: int) -> None:
        self.count, self.batch, self.epoch = count, batch, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        halves = [DistributedSampler(range(self.count), 2, rank, shuffle=True, seed=0) for rank in (0, 1)]
        for half in halves:
            half.set_epoch(self.epoch)
        self.epoch += 1
        orders = [list(half) for half in halves]
        for first in range(0, len(orders[0]), self.batch):
            for order in orders:
                yield from order[first : first + self.batch]


def one_process(weights: Path, data: Path, project: Path) -> tuple[dict, Path]:
    """Train with stock Ultralytics: batches of 2, the gradients of two of them added for every step.

    Returns the final weights, and last.pt.
    """
    from ultralytics.data import build
    from ultralytics.models.yolo.detect import DetectionTrainer

    class Trainer(DetectionTrainer):
        def get_dataloader(self, path, batch_size=16, rank=0, mode="train"):
            if mode != "train":
                return super().get_dataloader(path, batch_size, rank, mode)
            dataset = self.build_dataset(path, mode, batch_size)
            given = {"sampler": OfTwoRanks(len(dataset), batch_size), "collate_fn": dataset.collate_fn}
            return build.InfiniteDataLoader(dataset, batch_size=batch_size, **given)

    arguments = {"model": str(weights), "data": str(data), "batch": 2, "epochs": 2, "device": "cpu"}
    trainer = Trainer(overrides={**PLAIN, **arguments, "project": str(project), "name": "one"})
    trainer.train()
    final = {name: parameter.detach() for name, parameter in trainer.model.named_parameters()}
    return final, project / "one" / "weights" / "last.pt"


def parameters_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    from ultralytics import YOLO

    return {name: parameter.detach().float() for name, parameter in YOLO(checkpoint).model.named_parameters()}


def test_two_ranks_do_what_one_process_does(ranks, first_weights, made_data, tmp_path):
    """The mean over ranks of world_size * loss has the gradient of the sum of both losses, which one process adds up.

    Compared: the distance every weight has gone after four steps in two epochs, and every parameter of last.pt (16
    bits). Not compared: the running statistics of BatchNorm, which are those of rank 0's images in a distributed
    training.
    """
    weights, checkpoint = one_process(first_weights, made_data(), tmp_path)
    before = parameters_of(first_weights)
    moved = sum(float((weights[name] - before[name]).norm()) for name in weights)
    assert moved > 0.003  # far more than rounding
    for rank in seen_by(ranks):
        assert sum(float((weights[name] - rank["weights"][name]).norm()) for name in weights) < 0.02 * moved
    (last,) = ranks.glob("runs/*/weights/last.pt")
    ours, theirs = parameters_of(last), parameters_of(checkpoint)
    assert len(ours) > 50
    for name, tensor in theirs.items():
        assert float((ours[name] - tensor).norm()) <= 2e-3 * max(float(tensor.norm()), 1e-3), name


def test_every_rank_is_patched_and_ends_with_the_same_weights_and_only_rank_0_writes_and_speaks(ranks):
    seen = seen_by(ranks)
    for rank in seen:
        assert (rank["active"], rank["loaders"][0]) == (("cpu",), "PolicyDataLoader")
        assert (rank["workers"], rank["runs"], rank["taken"]) == (1, 1, True)
    assert seen[0]["folder"] == seen[1]["folder"]
    for name, tensor in seen[0]["weights"].items():
        assert torch.equal(tensor, seen[1]["weights"][name]), name
    earlier = ranks / "runs" / "train"
    assert list(earlier.iterdir()) == []
    (run,) = (path for path in earlier.parent.iterdir() if path != earlier)
    assert [len((run / name).read_text().splitlines()) for name in ("results.csv", "rocm_loader.csv")] == [3, 3]
    report = json.loads((run / "rocm.json").read_text())
    assert {row["engine"] for row in report["convolutions"]["layers"]} == {"gemm"}
    assert (ranks / "output.txt").read_text().count("using the CPU (preset cpu") == 1


LAUNCH = """
import json, sys
import yolo_rocm
from yolo_rocm.data.worker_start import _own_server
from ultralytics import YOLO

if __name__ == "__main__":
    yolo = YOLO(sys.argv[1])
    yolo_rocm.register(yolo, "cpu", json.loads(sys.argv[2]))
    yolo.train(**json.loads(sys.argv[3]))
    print("STARTED", _own_server()._forkserver_pid, "NAMES", len(yolo.names))
"""


@pytest.mark.once
def test_ultralytics_own_launcher_takes_the_preset_to_every_rank(first_weights, made_data, tmp_path):
    if "cloudpickle" in Path(dist.__file__).read_text(encoding="utf-8"):
        pytest.importorskip("cloudpickle")
    given = {**PLAIN, "batch": 4, "epochs": 1, "data": str(made_data()), "project": str(tmp_path / "runs")}
    (tmp_path / "launch.py").write_text(LAUNCH)
    words = ["launch.py", str(first_weights), json.dumps(OURS), json.dumps({**given, "device": "0,1"})]
    done = start([sys.executable, *words], tmp_path, TEST_RANKS_GPUS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "STARTED None NAMES 2" in done.stdout
    seen = seen_by(tmp_path)
    for rank in seen:
        assert (rank["active"], rank["runs"], rank["taken"]) == (("cpu",), 1, True)
        assert rank["loaders"][0] == "PolicyDataLoader"
    assert torch.equal(*(next(iter(rank["weights"].values())) for rank in seen))
    (report,) = tmp_path.glob("runs/*/rocm.json")
    assert {row["engine"] for row in json.loads(report.read_text())["convolutions"]["layers"]} == {"gemm"}


def test_a_rank_that_is_refused_says_so_and_fails(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file.py"
    file.write_text("from yolo_rocm.errors import ConfigError\nraise ConfigError('batch=1 for 2 processes')\n")
    monkeypatch.setattr(sys, "argv", ["rank", str(file)])
    monkeypatch.setattr("yolo_rocm.launch.rank._end_with_parents", lambda training: None)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (1, "error: batch=1 for 2 processes\n")


@pytest.mark.parametrize(
    ("device", "batch"),
    [(None, 8), ("", 8), ("cpu", 8), (0, 8), ("0,1", 16), ([0, 1, 2], 24), ("cuda:0,cuda:1", 16)],
    ids=str,
)
def test_the_batch_of_a_preset_is_for_each_gpu(device, batch, tmp_path):
    settings = Session({"base": "cpu", "train": {"batch": 8}}, None).settings
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(json.dumps({"device": device}))
    for given in ({"device": device}, {"cfg": str(cfg)}):
        assert train_arguments(settings, given)["batch"] == batch
        assert train_arguments(settings, {**given, "batch": 10})["batch"] == 10
    for searched in (-1, 0.7):
        settings = Session({"base": "cpu", "train": {"batch": searched}}, None).settings
        assert train_arguments(settings, {"device": device})["batch"] == searched


def test_the_batch_of_a_preset_is_multiplied_by_the_ranks_of_a_launcher(monkeypatch):
    session = Session({"base": "cpu", "train": {"batch": 8}}, None)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert train_arguments(session.settings, {})["batch"] == 8  # Ultralytics was imported before, and trains alone
    monkeypatch.setattr("ultralytics.utils.RANK", 3)
    assert train_arguments(session.settings, {"device": "0,1"})["batch"] == 32


@pytest.mark.parametrize(
    ("asked", "rank", "gpus", "index"),
    [(None, 1, 2, 1), ("", 1, 2, 1), ("2,3", 1, 4, 3), ([2, 3], 0, 4, 2), ("cuda:0,cuda:1", 1, 2, 1)],
    ids=str,
)
def test_the_gpu_of_a_rank(asked, rank, gpus, index, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # The second of two machines: the global rank must not choose the GPU.
    assert local_device(asked, Place(2 + rank, rank, 4, 2)) == torch.device("cuda", index)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="need a GPU each: torch finds 1, device=0"):
        local_device("0", Place(1, 1, 2, 2))
    for beyond in (None, "1,2"):
        with pytest.raises(ConfigError, match=f"torch finds 1, device={beyond}"):
            local_device(beyond, Place(1, 1, 2, 2))
