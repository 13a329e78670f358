"""Trainings of two processes: under torchrun and under Ultralytics' own launcher, on CPUs whose kernels all raise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from yolo_rocm.data.loader import passes
from yolo_rocm.data.policy import shuffles
from yolo_rocm.data.worker_count import recommended_workers
from yolo_rocm.errors import ConfigError, StackError
from yolo_rocm.session.arguments import train_arguments
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks import children, distributed
from yolo_rocm.utils.process_group import Place, local_device

from ..session.test_training import OURS
from ..small_model import small_model

ROOT = Path(__file__).parents[2]
# No randomness in the images, and an optimizer whose steps are the same for one batch of 4 and two of 2.
PLAIN = {
    **{name: 0.0 for name in ("mosaic", "hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "warmup_epochs")},
    **{"imgsz": 64, "nbs": 4, "optimizer": "SGD", "lr0": 0.0001, "close_mosaic": 0, "plots": False, "seed": 0},
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
    arguments = {
        "model": str(first_weights),
        "data": str(made_data()),
        "batch": 4,
        "epochs": 2,
        "device": "cpu",
        "val": True,
    }
    ours = {"preset": "cpu", "rocm": {**OURS, "loader": {"workers": 1}}, "project": str(folder / "runs")}
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


def one_process(weights: Path, data: Path, project: Path) -> tuple[dict, dict, Path]:
    """Train with stock Ultralytics: batches of 2, the gradients of two of them added for every step.

    Returns the gradients of the first step, the final weights, and last.pt.
    """
    from ultralytics.data import build
    from ultralytics.models.yolo.detect import DetectionTrainer

    first: dict[str, torch.Tensor] = {}

    class Trainer(DetectionTrainer):
        def get_dataloader(self, path, batch_size=16, rank=0, mode="train"):
            if mode != "train":
                return super().get_dataloader(path, batch_size, rank, mode)
            dataset = self.build_dataset(path, mode, batch_size)
            sampler = OfTwoRanks(len(dataset), batch_size)
            return build.InfiniteDataLoader(
                dataset, batch_size=batch_size, sampler=sampler, collate_fn=dataset.collate_fn
            )

        def optimizer_step(self) -> None:
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    first.setdefault(name, parameter.grad.clone())
            super().optimizer_step()

    arguments = {"model": str(weights), "data": str(data), "batch": 2, "epochs": 2, "device": "cpu"}
    trainer = Trainer(overrides={**PLAIN, **arguments, "project": str(project), "name": "one"})
    trainer.train()
    final = {name: parameter.detach() for name, parameter in trainer.model.named_parameters()}
    return first, final, project / "one" / "weights" / "last.pt"


def parameters_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    from ultralytics import YOLO

    return {name: parameter.detach().float() for name, parameter in YOLO(checkpoint).model.named_parameters()}


def assert_near(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], error: float) -> None:
    """Compare tensor by tensor, by the norm of the difference."""
    assert ours.keys() == theirs.keys()
    assert len(ours) > 50
    for name, tensor in ours.items():
        scale = max(float(theirs[name].norm()), 1e-3)
        assert float((tensor - theirs[name]).norm()) <= error * scale, name


def test_two_ranks_do_what_one_process_does(ranks, first_weights, made_data, tmp_path):
    """The mean over ranks of world_size * loss has the gradient of the sum of both losses, which one process adds up.

    Compared: every gradient of the first step, the distance every weight has gone after four steps in two epochs, and
    every parameter of last.pt (16 bits). Not compared: the running statistics of BatchNorm, which are those of rank
    0's images in a distributed training.
    """
    gradients, weights, checkpoint = one_process(first_weights, made_data(), tmp_path)
    for rank in seen_by(ranks):
        assert_near(rank["gradients"], gradients, 1e-3)
        before = parameters_of(first_weights)
        moved = sum(float((weights[name] - before[name]).norm()) for name in weights)
        apart = sum(float((weights[name] - rank["weights"][name]).norm()) for name in weights)
        assert moved > 0.01  # far more than rounding
        assert apart < 0.02 * moved
    (last,) = ranks.glob("runs/*/weights/last.pt")
    assert_near(parameters_of(last), parameters_of(checkpoint), 2e-3)


def test_every_rank_is_patched_and_ends_with_the_same_weights(ranks):
    seen = seen_by(ranks)
    for rank in seen:
        assert rank["active"] == ("cpu",)
        assert rank["loaders"][0] == "PolicyDataLoader"
        assert (rank["workers"], rank["runs"], rank["taken"]) == (1, 1, True)
    assert seen[0]["folder"] == seen[1]["folder"]
    for name, tensor in seen[0]["weights"].items():
        assert torch.equal(tensor, seen[1]["weights"][name]), name


def test_only_rank_0_writes_and_speaks(ranks):
    earlier = ranks / "runs" / "train"
    assert list(earlier.iterdir()) == []
    (run,) = (path for path in earlier.parent.iterdir() if path != earlier)
    assert len((run / "results.csv").read_text().splitlines()) == 3
    assert len((run / "rocm_loader.csv").read_text().splitlines()) == 3
    report = json.loads((run / "rocm.json").read_text())
    assert {row["engine"] for row in report["convolutions"]["layers"]} == {"gemm"}
    assert (ranks / "output.txt").read_text().count("using the CPU (preset cpu") == 1


LAUNCH = """
import json, sys
import yolo_rocm
from yolo_rocm.data.worker_start import _own_server
from ultralytics import YOLO

if __name__ == "__main__":
    way, weights, rocm, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
    yolo = YOLO(weights)
    if way == "register":
        yolo_rocm.register(yolo, "cpu", rocm)
    else:
        for event, function in yolo_rocm.callbacks("cpu", rocm).items():
            yolo.add_callback(event, function)
    yolo.train(**arguments)
    print("STARTED", _own_server()._forkserver_pid, "NAMES", len(yolo.names))
"""


def launch(way: str, folder: Path, weights: Path, data: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Train on `device=0,1` through Ultralytics' own launcher."""
    if callbacks_travel():
        pytest.importorskip("cloudpickle")
    arguments = {**PLAIN, "batch": 4, "epochs": 1, "data": str(data), "device": "0,1", "project": str(folder / "runs")}
    (folder / "launch.py").write_text(LAUNCH)
    words = [way, str(weights), json.dumps(OURS), json.dumps(arguments)]
    return start([sys.executable, "launch.py", *words], folder, TEST_RANKS_GPUS="1", **variables)


def callbacks_travel() -> bool:
    from ultralytics.utils import dist

    return "cloudpickle" in Path(dist.__file__).read_text(encoding="utf-8")


@pytest.mark.once
@pytest.mark.parametrize("way", ["register", pytest.param("callbacks", marks=pytest.mark.deep)])
def test_ultralytics_own_launcher_takes_the_preset_to_every_rank(way, first_weights, made_data, tmp_path):
    done = launch(way, tmp_path, first_weights, made_data())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "STARTED None NAMES 2" in done.stdout
    seen = seen_by(tmp_path)
    for rank in seen:
        assert (rank["active"], rank["runs"], rank["taken"]) == (("cpu",), 1, True)
        assert rank["loaders"][0] == "PolicyDataLoader"
    assert torch.equal(*(next(iter(rank["weights"].values())) for rank in seen))
    (report,) = tmp_path.glob("runs/*/rocm.json")
    assert {row["engine"] for row in json.loads(report.read_text())["convolutions"]["layers"]} == {"gemm"}


def test_the_command_of_the_ranks():
    stock = ["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "1234", "file.py"]
    assert children.ranks_command(stock) == [*stock[:-1], "--module", "yolo_rocm.launch.rank", "file.py"]


def test_a_missing_cloudpickle_is_named():
    with pytest.raises(StackError, match=r"pip install \"cloudpickle.*multi-gpu"), children.launch_is_possible():
        raise ModuleNotFoundError("No module named 'cloudpickle'", name="cloudpickle")
    with pytest.raises(ModuleNotFoundError), children.launch_is_possible():
        raise ModuleNotFoundError("No module named 'other'", name="other")


def test_indices_drawn_ahead_are_those_of_their_epoch():
    sampler = DistributedSampler(range(8), 2, 0, shuffle=True, seed=3)
    drawn = passes(torch.utils.data.BatchSampler(sampler, 2, drop_last=False), sampler)
    ahead = [next(drawn) for _ in range(6)]  # three epochs, without a word from the training
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert [*ahead[2 * epoch], *ahead[2 * epoch + 1]] == list(sampler)


def test_a_sampler_of_validation_is_known_by_its_order():
    assert shuffles(DistributedSampler(range(4), 2, 0, shuffle=True))
    assert not shuffles(DistributedSampler(range(4), 2, 0, shuffle=False))
    assert not shuffles(torch.utils.data.SequentialSampler(range(4)))
    assert not shuffles(None)


def test_ranks_share_cores_and_memory(monkeypatch):
    def limits() -> dict[str, int]:
        found = recommended_workers(system="linux", cores=16, ram_gb=64, shm_gb=8)
        return {limit.name: limit.workers for limit in found.limits}

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    alone = limits()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    shared = limits()
    assert (alone["cores"], shared["cores"]) == (16, 4)
    for name in ("RAM", "/dev/shm"):
        assert alone[name] // 4 - 1 <= shared[name] <= alone[name] // 4


@pytest.mark.parametrize(
    ("device", "batch"),
    [(None, 8), ("", 8), ("cpu", 8), (0, 8), ("0", 8), ("0,1", 16), ([0, 1, 2], 24), ("cuda:0,cuda:1", 16)],
    ids=str,
)
def test_the_batch_of_a_preset_is_for_each_gpu(device, batch, tmp_path):
    session = Session({"base": "cpu", "train": {"batch": 8}}, None)
    assert train_arguments(session.settings, {"device": device})["batch"] == batch
    assert train_arguments(session.settings, {"device": device, "batch": 10})["batch"] == 10
    cfg = tmp_path / "cfg.yaml"
    cfg.write_text(json.dumps({"device": device}))
    assert train_arguments(session.settings, {"cfg": str(cfg)})["batch"] == batch
    assert train_arguments(session.settings, {"cfg": str(cfg), "device": "cpu"})["batch"] == 8


@pytest.mark.parametrize("batch", [-1, 0.7])
def test_a_batch_that_is_searched_for_is_not_multiplied(batch):
    session = Session({"base": "cpu", "train": {"batch": batch}}, None)
    assert train_arguments(session.settings, {"device": "0,1"})["batch"] == batch


def test_the_batch_of_a_preset_is_multiplied_by_the_ranks_of_a_launcher(monkeypatch):
    session = Session({"base": "cpu", "train": {"batch": 8}}, None)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert train_arguments(session.settings, {})["batch"] == 8  # Ultralytics was imported before, and trains alone
    monkeypatch.setattr("ultralytics.utils.RANK", 3)
    assert train_arguments(session.settings, {"device": "0,1"})["batch"] == 32


@pytest.mark.once
def test_a_run_folder_that_only_rank_0_can_see_is_refused(tmp_path, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(distributed.time, "monotonic", lambda: 4.0 * next(clock))
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    with pytest.raises(ConfigError, match=r"cannot see the run folder .*project=/a/shared/folder"):
        distributed._require_folder(tmp_path)
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: (tmp_path / "args.yaml").touch())
    distributed._require_folder(tmp_path)  # a slow network file system
    refused = []
    monkeypatch.setattr(distributed, "_require_folder", refused.append)
    trainer = SimpleNamespace(save_dir=tmp_path, world_size=1)
    rank = distributed._Rank(Place(1, 1, 2, 2), lambda trainer: refused.append("taken over"))
    rank.taken_over(lambda self: None)(trainer)
    assert refused == [tmp_path, "taken over"]
    assert trainer.world_size == 2


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


def test_fewer_gpus_than_ranks_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="names 1 GPUs for 2 processes"):
        local_device("0", Place(1, 1, 2, 2))
    with pytest.raises(ConfigError, match="needs GPU 1, and torch finds 1"):
        local_device(None, Place(1, 1, 2, 2))
