"""Ultralytics' data sets through our loaders: the same pixels, and the options that change them."""

from __future__ import annotations

import random
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from ultralytics.data.augment import Format

from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.data.reader import BatchReader
from yolo_rocm.data.seeding import seed_everything
from yolo_rocm.data.shared_lists import Packed
from yolo_rocm.data.verify import fingerprint
from yolo_rocm.ultralytics_hooks.bench_data import training_data, training_loader
from yolo_rocm.ultralytics_hooks.datasets import MODULES, UltralyticsAdapter
from yolo_rocm.ultralytics_hooks.image_format import PlaneFormatter
from yolo_rocm.ultralytics_hooks.image_loading import truncation

from ..tables import each_row

SIZE, BATCH = 64, 4


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return str(make_data(tmp_path_factory.mktemp("loader"), images=24, size=96))


def policy(**settings) -> LoaderPolicy:
    adapter = UltralyticsAdapter(**settings.pop("adapter", {}))
    return LoaderPolicy(adapter=adapter, modules=MODULES, **settings)


def prints(data: str, workers: int, ours: LoaderPolicy | None, batches: int = 9) -> list[str]:
    """Return fingerprints of the first batches, more than an epoch of them."""
    dataset = training_data(data, SIZE, BATCH)
    seed_everything(0)
    loader = training_loader(dataset, BATCH, workers, ours)
    found: list[str] = []
    while len(found) < batches:
        found += [fingerprint(batch) for batch in loader]
    getattr(loader, "close", int)()  # Ultralytics before 8.4.87 has no such method
    return found[:batches]


@pytest.fixture(scope="module")
def stock(data) -> dict[int, list[str]]:
    import multiprocessing

    if multiprocessing.get_start_method() != "fork":
        pytest.skip("the stock loader forks only where that is the default")
    return {workers: prints(data, workers, None) for workers in (0, 2)}


@pytest.mark.parametrize(
    ("workers", "context"),
    [(0, "fork"), (2, "forkserver"), (2, "fork")],
)
def test_batches_are_byte_for_byte_those_of_the_stock_loader(data, stock, workers, context):
    assert prints(data, workers, policy(context=context)) == stock[workers]


def test_a_bound_on_mosaic_images_changes_no_pixel(data, monkeypatch):
    from yolo_rocm.data import mosaic

    held: list[int] = []
    keep = mosaic.BoundedImages.__setitem__

    def watched(self, index, image):
        keep(self, index, image)
        held.append(sum(i.nbytes for i in self if i is not None))

    monkeypatch.setattr(mosaic.BoundedImages, "__setitem__", watched)
    found = []
    for ours in (None, policy(adapter={"mosaic_mb": 4})):
        dataset = training_data(data, 640, BATCH)  # 24 images of 1.2 MB
        seed_everything(0)
        loader = training_loader(dataset, BATCH, 0, ours)
        found.append([fingerprint(batch) for _ in range(2) for batch in loader])
        getattr(loader, "close", int)()
    assert found[0] == found[1]
    assert max(held) <= 4 << 20
    assert len(held) > 2 * 24  # images were read again


def test_strict_batches_are_the_same_for_any_number_of_workers(data):
    seen = [
        prints(data, workers, policy(context=context, reproducible="strict", insist=True, workers=workers))
        for workers, context in ((0, "fork"), (1, "fork"), (3, "fork"))
    ]
    assert seen[1:] == seen[:1] * 2
    assert len(set(seen[0])) == len(seen[0])


def test_mosaics_end_in_every_worker_at_close_mosaic(data):
    dataset = training_data(data, SIZE, BATCH)
    loader = training_loader(dataset, BATCH, 2, policy(context="fork"))
    assert sum(len(batch["cls"]) for batch in loader) > 0
    from ultralytics.utils import DEFAULT_CFG

    hyp = type(DEFAULT_CFG)(**{**vars(DEFAULT_CFG), "scale": 0.0, "translate": 0.0})
    dataset.close_mosaic(hyp)
    loader.reset()
    files = [name for batch in loader for name in batch["im_file"]]
    boxes = {name: len(label["cls"]) for name, label in zip(dataset.im_files, dataset.labels, strict=True)}
    seen = [(name, int((batch["batch_idx"] == i).sum())) for batch in loader for i, name in enumerate(batch["im_file"])]
    loader.close()
    assert sorted(files) == sorted(dataset.im_files)
    # Without mosaic and without moves a picture has its own boxes and no others.
    assert seen == [(name, boxes[name]) for name, _ in seen]


def test_damaged_files_are_recognised_by_their_end(tmp_path):
    picture = np.full((32, 32, 3), 90, np.uint8)
    for suffix in (".jpg", ".png"):
        whole, cut, empty = (tmp_path / f"{name}{suffix}" for name in ("whole", "cut", "empty"))
        cv2.imwrite(str(whole), picture)
        cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        empty.touch()
        assert truncation(str(whole)) == ""
        assert "truncated" in truncation(str(cut))
        assert "empty" in truncation(str(empty))
    appended = tmp_path / "camera.jpg"
    appended.write_bytes((tmp_path / "whole.jpg").read_bytes() + b"maker notes" * 100)
    assert truncation(str(appended)) == ""
    assert truncation(str(tmp_path / "missing.bmp")) == ""


@pytest.mark.parametrize("workers", [0, 2])
def test_images_damaged_in_mid_training_are_replaced_and_named(tmp_path, workers):
    data = str(make_data(tmp_path, images=24, size=96))
    dataset = training_data(data, SIZE, BATCH)
    whole = Path(dataset.im_files[1]).read_bytes()
    Path(dataset.im_files[1]).write_bytes(whole[: len(whole) // 2])
    Path(dataset.im_files[5]).write_bytes(b"")
    Path(dataset.im_files[9]).write_bytes(b"rubbish" * 50 + b"\xff\xd9")
    Path(dataset.im_files[13]).unlink()
    bad = {dataset.im_files[i] for i in (1, 5, 9, 13)}
    seen: dict[str, str] = {}
    observed = policy(
        context="fork",
        observe=lambda kind, trace, asked, got: seen.update(trace.broken),
    )
    seed_everything(0)
    loader = training_loader(dataset, BATCH, workers, observed)
    sizes = [len(batch["img"]) for batch in loader]
    assert sizes == [BATCH] * 6
    files = {name for batch in loader for name in batch["im_file"]}
    loader.close()
    assert set(seen) == bad
    assert not files & bad
    assert "truncated" in seen[dataset.im_files[1]]
    assert "empty" in seen[dataset.im_files[5]]
    assert "No such file" in seen[dataset.im_files[13]]


def test_labels_travel_once_for_all_workers(data):
    dataset = training_data(data, SIZE, BATCH, images=20_000)
    assert travelling(dataset) < 4 * 20_000  # three lists of None remain, of one byte an entry


def test_images_kept_in_memory_travel_once(data):
    """A pickled copy of `cache=ram` in every worker would be as large as the data set."""
    dataset = training_data(data, SIZE, BATCH, images=80)
    dataset.cache = "ram"
    dataset.cache_images()
    dataset.ims = [dataset.ims[i] for i in range(80)]  # newer versions of Ultralytics share them by themselves
    pixels = sum(image.nbytes for image in dataset.ims)
    assert travelling(dataset) < pixels / 20


def travelling(dataset) -> int:
    """Return the bytes that each worker gets of a data set."""
    adapter = UltralyticsAdapter()
    return len(Packed(BatchReader(dataset, dataset.collate_fn, adapter), adapter.lists(dataset))._dump())


def test_classification_loads_through_workers(tmp_path):
    from ultralytics.data.build import build_dataloader
    from ultralytics.data.dataset import ClassificationDataset
    from ultralytics.utils import DEFAULT_CFG

    from tests import made_data
    from yolo_rocm.ultralytics_hooks.loaders import loaders_built_by

    root = Path(made_data.make_data(tmp_path, task="classify", images=12, size=64))
    args = type(DEFAULT_CFG)(**{**vars(DEFAULT_CFG), "imgsz": SIZE})
    dataset = ClassificationDataset(str(root / "train"), args, augment=True, prefix="train")
    with loaders_built_by(policy(context="fork", workers=1, insist=True)):
        loader = build_dataloader(dataset, 4, 1, shuffle=True)
    shapes = [tuple(batch["img"].shape) for batch in loader]
    loader.close()
    assert shapes == [(4, 3, SIZE, SIZE)] * (len(dataset) // 4)


@each_row(("bgr", "channels"), [(0.0, 1), (0.5, 3), (1.0, 3), (0.5, 4)])
def test_images_are_formatted_as_ultralytics_does(bgr, channels):
    formatter = Format(bgr=bgr)
    places: list[tuple[int, ...]] = []
    ours = PlaneFormatter(formatter, lambda shape: (places.append(shape), np.empty(shape, np.uint8))[1])
    if not ours.agrees():
        pytest.skip("this Ultralytics formats images in another way, and keeps it")
    picture = np.random.default_rng(0).integers(0, 255, (13, 9, channels), dtype=np.uint8)
    views = (picture, picture[:, ::-1], picture[::-1], picture[::-1, ::-1], picture[2:, 3:], picture[..., 0])
    for seed, image in enumerate(views):
        random.seed(seed)
        wanted = formatter._format_img(image)
        random.seed(seed)
        assert torch.equal(ours(image), wanted)
    assert places[0] == (channels, 13, 9)


def test_a_formatter_that_works_otherwise_is_left_alone(monkeypatch):
    monkeypatch.setattr(Format, "_format_img", lambda self, image: torch.zeros(1))
    assert not PlaneFormatter(Format(), lambda shape: np.empty(shape, np.uint8)).agrees()
