"""Put on PYTHONPATH by test_distributed: makes the vendor library of every rank sick, and lets ranks tell about it."""

import functools
import os
import sys
from pathlib import Path

_FOLDER = os.environ.get("TEST_RANKS_FOLDER")


def _pretend_gpus() -> None:
    """Take `device=0,1` for two GPUs, which are the CPU."""
    import torch
    from ultralytics.engine import trainer, validator

    rank = "LOCAL_RANK" in os.environ
    for module in (trainer, validator):
        module.select_device = lambda *args, **kwargs: torch.device("cpu" if rank else "cuda")


def _watch() -> None:
    """Write what a rank has seen when its training ends."""
    import torch
    from ultralytics.engine.trainer import BaseTrainer

    step, train, seen = BaseTrainer.optimizer_step, BaseTrainer._do_train, {}

    def optimizer_step(self) -> None:
        runs = [getattr(function, "run", None) for function in self.callbacks["on_train_epoch_end"]]
        seen.setdefault("taken", any(run.training_of(self) is not None for run in runs if run is not None))
        if os.environ.get("TEST_RANKS_FAIL") == os.environ.get("RANK"):
            raise RuntimeError("miopenStatusUnknownError")
        step(self)

    @functools.wraps(train)  # its signature tells versions apart
    def do_train(self, *args):
        result = train(self, *args)
        from yolo_rocm.conv import seam
        from yolo_rocm.session.events import Callback

        seen.update(
            weights={k: p.detach().clone() for k, p in getattr(self.model, "module", self.model).named_parameters()},
            active=seam.active_devices(),
            loaders=[type(self.train_loader).__name__, type(getattr(self, "test_loader", None)).__name__],
            folder=str(self.save_dir),
            runs=[isinstance(function, Callback) for function in self.callbacks["on_train_epoch_end"]].count(True),
            workers=self.train_loader.num_workers,
        )
        torch.save(seen, Path(_FOLDER) / f"rank{os.environ['RANK']}.pt")
        return result

    BaseTrainer.optimizer_step, BaseTrainer._do_train = optimizer_step, do_train


def _record_epochs() -> None:
    """Write what a rank holds at the start of each epoch, and die where the test wants it, without a word."""
    import json
    import signal
    import zlib

    from ultralytics.engine.trainer import BaseTrainer

    run = BaseTrainer.run_callbacks
    doomed, at = os.environ.get("TEST_RANKS_DIES", "@0").split("@")

    def run_callbacks(self, event: str) -> None:
        if event == "on_train_epoch_start":
            model = getattr(self.model, "module", self.model)
            weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
            facts = {
                "rank": int(os.environ["RANK"]), "node": os.environ["GROUP_RANK"], "epoch": self.epoch,
                "weights": zlib.crc32(weights), "folder": str(self.save_dir), "batch": self.batch_size,
                "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
            }  # fmt: skip
            with (Path(_FOLDER) / f"epochs{os.environ['RANK']}.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")
            if self.epoch == int(at) and facts["attempt"] == 0:
                if doomed == "node" and facts["node"] == "1" and os.environ["LOCAL_RANK"] == "0":
                    os.kill(os.getppid(), signal.SIGKILL)
                if (doomed, facts["node"]) == ("node", "1") or doomed == os.environ["RANK"]:
                    os.kill(os.getpid(), signal.SIGKILL)
        run(self, event)

    BaseTrainer.run_callbacks = run_callbacks


if _FOLDER and "-c" not in sys.orig_argv:  # not in loading workers
    if os.environ.get("TEST_RANKS_GPUS") and "torch.distributed.run" not in sys.orig_argv:
        _pretend_gpus()
    if "LOCAL_RANK" in os.environ and os.environ.get("TEST_RANKS_DIES"):
        from gloo_like_nccl import install

        install()
        _record_epochs()
    elif "LOCAL_RANK" in os.environ:
        from gloo_like_nccl import install

        from tests.sick_vendor import sick_vendor

        install()
        _held = sick_vendor()
        _held.__enter__()
        _watch()
