"""Device-side colour jitter and flips against OpenCV and Ultralytics."""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
import torch

from yolo_rocm.data import augment
from yolo_rocm.data.augment import Recorded, apply_flips, apply_hsv, hsv_tables

from ..tables import each_row

LIMITS = (0.015, 0.7, 0.4)
EXTREMES = [(0, 0, 0), LIMITS, tuple(-x for x in LIMITS), (0.5, 1, 1), (-0.5, -1, 0), (1, 0.3, -1), (-1e-17, 0, 0)]
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def tables_of_numpy(gains):
    """The tables as Ultralytics' RandomHSV has built them since 8.3.79."""
    x = np.arange(256, dtype=np.float64)
    hue = ((x + gains[0] * 180) % 180).astype(np.uint8)
    saturation, value = (np.clip(x * (gain + 1), 0, 255).astype(np.uint8) for gain in gains[1:])
    saturation[0] = 0
    return np.stack((hue, saturation, value))


def opencv(images, gains):
    """(B, 3, H, W) red first, through OpenCV image by image."""
    done = []
    for image, drawn in zip(images.numpy(), gains, strict=True):
        hsv = cv2.cvtColor(np.ascontiguousarray(image[::-1].transpose(1, 2, 0)), cv2.COLOR_BGR2HSV)
        bgr = cv2.cvtColor(cv2.LUT(hsv, tables_of_numpy(drawn).T.reshape(1, 256, 3)), cv2.COLOR_HSV2BGR)
        done.append(torch.from_numpy(np.ascontiguousarray(bgr.transpose(2, 0, 1)[::-1])))
    return torch.stack(done)


def random_images(count, height, width, seed=0):
    """Uniform noise, dark noise, nearly grey noise and pictures of few colours by turns."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, height, width), generator=generator)
    images[1::4] //= 16
    images[2::4] = (images[2::4, :1] + images[2::4] // 64).clamp(max=255)
    images[3::4] = images[3::4] // 128 * 255
    return images.to(torch.uint8)


def random_gains(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3)) * LIMITS


def test_tables_are_those_of_numpy():
    gains = np.concatenate((random_gains(500), random_gains(200, 1) / LIMITS, np.array(EXTREMES)))
    expected = np.stack([tables_of_numpy(one) for one in gains])
    assert np.array_equal(hsv_tables(torch.from_numpy(gains)).numpy(), expected)


@each_row("gains", EXTREMES, ids=str)
def test_every_colour_as_opencv(gains):
    """64 levels of each channel, in steps of four and five: 262,144 colours."""
    level = torch.linspace(0, 255, 64).round().to(torch.uint8)
    images = torch.stack(torch.meshgrid(level, level, level, indexing="ij")).reshape(1, 3, 512, 512)
    tables = hsv_tables(torch.tensor([gains], dtype=torch.float64))
    assert torch.equal(apply_hsv(images, tables), opencv(images, [gains]))


def test_random_images_as_opencv():
    images, gains = random_images(12, 96, 128), random_gains(12)
    assert torch.equal(apply_hsv(images, hsv_tables(torch.from_numpy(gains))), opencv(images, gains))


def test_any_width():
    """OpenCV rounds the last columns of a row that does not fill its vectors, and cuts off elsewhere."""
    images, gains = random_images(4, 31, 77), random_gains(4)
    difference = (apply_hsv(images, hsv_tables(torch.from_numpy(gains))).int() - opencv(images, gains).int()).abs()
    assert difference.max() <= 1


def test_ultralytics_random_hsv():
    """The same draw from the same seed gives the pixels of Ultralytics' own class."""
    theirs = pytest.importorskip("ultralytics.data.augment")
    if not hasattr(theirs, "RandomHSV"):
        pytest.skip("this Ultralytics has no RandomHSV")
    images, jitter = random_images(8, 64, 128, seed=3), theirs.RandomHSV(*LIMITS)
    np.random.seed(7)
    expected = []
    for image in images.numpy():
        labels = jitter({"img": np.ascontiguousarray(image[::-1].transpose(1, 2, 0))})
        expected.append(torch.from_numpy(np.ascontiguousarray(labels["img"].transpose(2, 0, 1)[::-1])))
    np.random.seed(7)
    gains = torch.from_numpy(np.stack([np.random.uniform(-1, 1, 3) * LIMITS for _ in images]))
    assert torch.equal(Recorded(gains).apply(images), torch.stack(expected))
    assert (torch.stack(expected) != images).float().mean() > 0.3, "the jitter did nothing"


def test_pieces_do_not_matter(monkeypatch):
    images, tables = random_images(80, 16, 24), hsv_tables(torch.from_numpy(random_gains(80)))
    whole = torch.cat([apply_hsv(images[i : i + 1], tables[i : i + 1]) for i in range(80)])
    for pixels in (100, 16 * 24, 16 * 24 * 3, 1 << 30):
        monkeypatch.setattr(augment, "_CPU_PIXELS", pixels)
        assert torch.equal(apply_hsv(images, tables), whole)


def test_strided_images_and_those_given_stay_as_they_are():
    images, tables = random_images(2, 16, 24), hsv_tables(torch.from_numpy(random_gains(2)))
    before = images.clone()
    expected = apply_hsv(images, tables)
    assert torch.equal(images, before)
    assert torch.equal(apply_hsv(images.to(memory_format=torch.channels_last), tables), expected)
    assert apply_hsv(images[:0], tables[:0]).shape == (0, 3, 16, 24)


def test_flips():
    images = random_images(4, 5, 7)
    left_right, up_down = torch.tensor([False, True, False, True]), torch.tensor([False, False, True, True])
    expected = torch.stack([images[0], images[1].flip(2), images[2].flip(1), images[3].flip(1, 2)])
    assert torch.equal(apply_flips(images.clone(), left_right, up_down), expected)
    assert torch.equal(apply_flips(images.clone(), None, None), images)


def test_recorded():
    images, gains = random_images(4, 16, 24), torch.from_numpy(random_gains(4))
    left_right, up_down = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    expected = apply_flips(apply_hsv(images, hsv_tables(gains)), left_right, up_down)
    recorded, before = pickle.loads(pickle.dumps(Recorded(gains, left_right, up_down))), images.clone()
    assert torch.equal(recorded.apply(images), expected)
    assert torch.equal(Recorded(None, left_right).apply(images)[0], before[0].flip(2))
    assert torch.equal(images, before)


def test_recorded_leaves_other_pictures_their_colours():
    grey = random_images(2, 8, 8)[:, :1]
    result = Recorded(torch.ones(2, 3), torch.tensor([True, False])).apply(grey)
    assert torch.equal(result, torch.stack((grey[0].flip(2), grey[1])))
    colour = random_images(2, 8, 8)
    assert torch.equal(Recorded().apply(colour), colour)


@gpu
def test_gpu_gives_the_pixels_of_the_cpu():
    images, gains = random_images(20, 160, 192), torch.from_numpy(random_gains(20))
    drawn = Recorded(gains, torch.arange(20) % 2 == 0, torch.arange(20) % 3 == 0)
    assert torch.equal(drawn.apply(images.cuda()).cpu(), drawn.apply(images))
    assert torch.equal(hsv_tables(gains.cuda()).cpu(), hsv_tables(gains))


@gpu
def test_gpu_memory_stays_in_its_budget(monkeypatch):
    monkeypatch.setattr(augment, "_GPU_PIXELS", 1 << 20)  # 32 MB of temporaries
    images, tables = random_images(8, 640, 640).cuda(), hsv_tables(torch.zeros(8, 3)).cuda()
    apply_hsv(images[:1], tables[:1])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    apply_hsv(images, tables)
    # Next to the pieces: the result, the saturation tables of a group, and what the allocator rounds up.
    assert torch.cuda.max_memory_allocated() - before < images.numel() + ((32 + 12) << 20)
