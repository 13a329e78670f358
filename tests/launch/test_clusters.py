"""Two pretended machines of two ranks each, by the commands of examples/slurm.sh and of torchrun itself, on CPUs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from torch import distributed

from yolo_rocm.preset.cfg_file import parse

from ..small_model import small_model
from .test_distributed import ALONE, ROOT, start

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(os.name != "posix", reason="bash, and signals of POSIX"),
    pytest.mark.skipif(
        not (distributed.is_available() and distributed.is_gloo_available()), reason="this torch has no Gloo"
    ),
]
TINY = [
    f"model={small_model()}", "imgsz=32", "plots=false", "val=false", "device=cpu", "amp=false", "workers=0",
    "preset=cpu", "verbose=false", "nbs=4", "warmup_epochs=0", "optimizer=SGD",
    "deterministic=false",  # a step of the optimizer for every batch
]  # fmt: skip
SLURM = {"SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_NAME": "yolo"}
# What stands in for a queue: the command once for each machine, side by side; it ends when all have ended. Machine 0 is
# the meeting point, as in a real cluster, where it has the name that the others look for.
SRUN = """#!/bin/bash
shift  # --kill-on-bad-exit=1
"$@" > node0.log 2>&1 & first=$!
until : 2> /dev/null < /dev/tcp/localhost/$((20000 + SLURM_JOB_ID % 10000)) || ! kill -0 $first; do sleep 0.2; done
"$@" > node1.log 2>&1 & second=$!
wait $first; code=$?
wait $second || code=$?
exit $code
"""


def told(folder: Path) -> list[dict]:
    """Return what ranks have written at the start of each epoch."""
    return [json.loads(line) for file in folder.glob("epochs*.jsonl") for line in file.read_text().splitlines()]


def assert_together(facts: list[dict], ranks: int) -> None:
    """Check that all ranks began each epoch with the same weights, which change, and that there is one run folder."""
    weights: dict[tuple[int, int], dict[int, int]] = {}
    for each in facts:
        weights.setdefault((each["attempt"], each["epoch"]), {})[each["rank"]] = each["weights"]
    for held in weights.values():
        assert held.keys() == {*range(ranks)}
        assert len({*held.values()}) == 1
    assert len({held[0] for held in weights.values()}) == len(weights)
    assert len({each["folder"] for each in facts}) == 1


@pytest.fixture
def queue(tmp_path) -> dict[str, str]:
    """Stand-ins for SLURM's commands on the path of the returned variables."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/bash\necho localhost\n"}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**SLURM, "PATH": path, "SLURM_JOB_ID": str(os.getpid())}


@pytest.mark.deep  # six processes that import torch
def test_two_machines_train_together_and_the_loss_of_one_ends_the_job(queue, made_data, tmp_path):
    """Machine 1 dies without a word when epoch 3 begins: launcher and ranks. No restart is configured."""
    words = [f"data={made_data()}", "epochs=9", "batch=8", f"project={tmp_path / 'runs'}", *TINY]
    variables = {**queue, "MAX_RESTARTS": "0", "TEST_RANKS_DIES": "node@2"}
    done = start(["bash", str(ROOT / "examples" / "slurm.sh"), *words], tmp_path, **variables)
    logs = "".join((tmp_path / f"node{node}.log").read_text() for node in (0, 1))
    assert done.returncode != 0
    facts = told(tmp_path)
    assert_together(facts, 4)
    assert max(each["epoch"] for each in facts) == 2
    assert {each["batch"] for each in facts} == {8}
    run = tmp_path / "runs" / f"yolo-{queue['SLURM_JOB_ID']}"
    assert [path for path in (tmp_path / "runs").iterdir() if path.is_dir()] == [run]
    assert logs.count("has lost another process of its training") == 1, logs
    assert f"{run / 'weights' / 'last.pt'} is whole" in logs
    assert "Traceback" not in logs.partition("has lost another process")[0], logs


@pytest.mark.deep
def test_torchrun_starts_a_training_again_and_it_goes_on(made_data, tmp_path):
    """A rank dies without a word when epoch 2 begins; the command stays the same, and names no checkpoint."""
    words = [f"data={made_data()}", "epochs=3", "batch=4", f"project={tmp_path / 'runs'}", *TINY]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *ALONE, "--max_restarts", "1", "--log_dir", "logs"]
    done = start([*torchrun, "-m", "yolo_rocm", "train", *words], tmp_path, TEST_RANKS_DIES="0@1")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    facts = told(tmp_path)
    assert_together(facts, 1)
    assert {(each["attempt"], each["epoch"]) for each in facts} == {(0, 0), (0, 1), (1, 1), (1, 2)}
    (run,) = (tmp_path / "runs").iterdir()
    assert [line.split(",")[0] for line in (run / "results.csv").read_text().splitlines()] == ["epoch", "1", "2", "3"]
    assert output.count("goes on from") == 1, output
    assert json.loads((run / "rocm.json").read_text())["ranks"] == 1
    assert list(tmp_path.rglob("attempt_1"))
    assert list(tmp_path.rglob("yolo_rocm_run")) == []


def commands() -> dict[str, list[str]]:
    """Return what the launchers of examples/ start on every machine, without words that differ between them."""
    script = (ROOT / "examples" / "slurm.sh").read_text(encoding="utf-8").partition("exec srun ")[2]
    slurm = shlex.split(script.replace("\\\n", " "))[1:]
    _, job = yaml.safe_load_all((ROOT / "examples" / "kubernetes.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {"slurm": slurm, "kubernetes": [*container["command"], *container["args"]]}


def test_kubernetes_starts_what_slurm_starts():
    """The command that the test above runs, with the options torchrun knows; nobody has applied the manifest."""
    from torch.distributed.run import get_args_parser

    understood = {}
    for name, words in commands().items():
        assert words[:3] == ["python", "-m", "torch.distributed.run"]
        numbers = [word.replace("${MAX_RESTARTS:-3}", "3").replace("${SLURM_GPUS_ON_NODE:-8}", "8") for word in words]
        understood[name] = get_args_parser().parse_args([word.replace("$SLURM_NNODES", "4") for word in numbers[3:]])
    slurm, kubernetes = understood["slurm"], understood["kubernetes"]
    for option in ("nnodes", "nproc_per_node", "rdzv_backend", "max_restarts", "module", "training_script"):
        assert getattr(slurm, option) == getattr(kubernetes, option), option
    given = parse(kubernetes.training_script_args[1:])
    assert {"name", "project", "data", "model"} < given.keys()
    assert given["resume"] == "auto"
    assert slurm.training_script_args[-1] == "resume=auto"
