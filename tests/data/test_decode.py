"""Sizes of JPEG files from their headers, and how far they may be reduced."""

from __future__ import annotations

import struct

import cv2
import numpy as np
import pytest

from yolo_rocm.data import decode
from yolo_rocm.data.decode import full_size, jpeg_size, reduced_flag, reduction

pytestmark = pytest.mark.once


def encoded(height, width, *options):
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", picture, list(options))[1].tobytes()


def with_segments(jpeg, *segments):
    """Insert segments behind the start of the picture."""
    inserted = b"".join(b"\xff" + bytes([code]) + struct.pack(">H", len(body) + 2) + body for code, body in segments)
    return jpeg[:2] + inserted + jpeg[2:]


def turned(jpeg):
    """Add EXIF that says: turn by 90 degrees."""
    tag = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    return with_segments(jpeg, (0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + tag + b"\0\0\0\0"))


@pytest.mark.parametrize("size", [(1, 1), (333, 641), (17, 9), (1200, 40)])
@pytest.mark.parametrize("progressive", [0, 1])
def test_size(tmp_path, size, progressive):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(*size, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive))
    assert jpeg_size(path) == jpeg_size(str(path)) == size


def test_long_headers(tmp_path):
    path = tmp_path / "a.jpg"
    thumbnail = b"Exif\0\0" + encoded(8, 8) * 80
    path.write_bytes(with_segments(encoded(20, 30), (0xE1, thumbnail), *[(0xE2, bytes(65000))] * 40))
    assert path.stat().st_size > 2_600_000
    assert jpeg_size(path) == (20, 30)


def test_a_segment_without_content(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(with_segments(encoded(20, 30), (0xE5, b"")))
    assert jpeg_size(path) == (20, 30)


def test_fill_bytes_before_a_marker(tmp_path):
    path = tmp_path / "a.jpg"
    jpeg = encoded(20, 30)
    path.write_bytes(jpeg[:2] + b"\xff" * 9 + jpeg[2:])
    assert jpeg_size(path) == (20, 30)


def frame(code, body):
    return b"\xff\xd8\xff" + bytes([code]) + struct.pack(">H", len(body) + 2) + body


RUBBISH = {
    "empty": b"",
    "one byte": b"\xff",
    "png": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "start only": b"\xff\xd8",
    "zeros": b"\xff\xd8" + bytes(4096),
    "ones": b"\xff\xd8" + b"\xff" * 5000,
    "length below 2": b"\xff\xd8\xff\xe0\x00\x01" + bytes(64),
    "jump past the end": b"\xff\xd8\xff\xe0\xff\xff" + bytes(8),
    "cut frame": frame(0xC0, b"\x08\x00\x10"),
    "no height": frame(0xC0, b"\x08\x00\x00\x00\x10"),
    "12 bits": frame(0xC1, b"\x0c\x00\x10\x00\x10"),
    "lossless": frame(0xC3, b"\x08\x00\x10\x00\x10"),
    "pixels first": b"\xff\xd8\xff\xda\x00\x0c" + bytes(64),
    "segments without end": b"\xff\xd8" + b"\xff\xe0\x00\x02" * 100_000,
}


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH.keys())
def test_rubbish_has_no_size(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    assert jpeg_size(path) is None


def test_unreadable_has_no_size(tmp_path):
    assert jpeg_size(tmp_path) is None
    assert jpeg_size(tmp_path / "missing.jpg") is None


def test_noise_never_raises(tmp_path):
    generator, whole = np.random.default_rng(1), encoded(64, 48)
    path = tmp_path / "a.jpg"
    for _ in range(100):
        damaged = bytearray(whole)
        for place in generator.integers(2, 200, 8):
            damaged[place] = generator.integers(0, 256)
        path.write_bytes(damaged[: generator.integers(0, len(whole))])
        size = jpeg_size(path)
        assert size is None or all(1 <= side <= 65535 for side in size)


@pytest.mark.parametrize("flag", [cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE])
def test_reduced_pictures_are_never_enlarged(flag):
    for height, width in ((3000, 410), (800, 600), (160, 1601), (1599, 80), (5121, 33), (640, 64), (10240, 16)):
        jpeg = np.frombuffer(encoded(height, width), np.uint8)
        for wanted in (32, 320, 640, 1279):
            factor = reduction(height, width, wanted)
            decoded = cv2.imdecode(jpeg, reduced_flag(flag, factor)).shape[:2]
            assert factor == 1 or max(decoded) >= wanted * decode.MARGIN
            assert full_size((height, width), decoded, factor) == (height, width)
            larger = {1: 2, 2: 4, 4: 8}.get(factor)
            assert larger is None or max(height, width) / larger < wanted * decode.MARGIN


def test_reduction_by_hand():
    assert [reduction(100, side, 640) for side in (640, 1280, 1599, 1600, 3199, 3200, 6400, 50000)] == [
        *(1, 1, 1, 2, 2, 4, 8, 8)
    ]
    assert reduction(1600, 100, 640) == 2
    assert reduction(1600, 3200, 640, short_side=True) == 2
    assert reduction(100, 3200, 640, short_side=True) == 1


def test_flags():
    assert reduced_flag(cv2.IMREAD_UNCHANGED, 1) == cv2.IMREAD_UNCHANGED
    assert reduced_flag(cv2.IMREAD_UNCHANGED, 2) is None
    assert reduced_flag(cv2.IMREAD_COLOR, 3) is None
    assert reduced_flag(cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION, 2) is None


def test_turned_pictures():
    """OpenCV turns a reduced picture as it turns the full one."""
    jpeg = np.frombuffer(turned(encoded(100, 301)), np.uint8)
    assert cv2.imdecode(jpeg, cv2.IMREAD_COLOR).shape[:2] == (301, 100)
    decoded = cv2.imdecode(jpeg, reduced_flag(cv2.IMREAD_COLOR, 2)).shape[:2]
    assert full_size((100, 301), decoded, 2) == (301, 100)
    with pytest.raises(ValueError, match="cannot be"):
        full_size((100, 300), (51, 150), 2)


def three_ways(jpeg, wanted):
    """A picture at the wanted size: area average, linear from the full picture, linear from the reduced one."""
    full = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    height, width = full.shape[:2]
    factor = reduction(height, width, wanted)
    assert factor > 1
    scale = wanted / max(height, width)
    size = round(width * scale), round(height * scale)
    reduced = cv2.imdecode(jpeg, reduced_flag(cv2.IMREAD_COLOR, factor))
    average = cv2.resize(full, size, interpolation=cv2.INTER_AREA).astype(int)
    return average, *(cv2.resize(one, size, interpolation=cv2.INTER_LINEAR) for one in (full, reduced))


@pytest.mark.parametrize("wanted", [640, 320, 160])
def test_reduced_is_the_same_picture(wanted):
    y, x = np.mgrid[:1280, :1600]
    rings = 127 + 100 * np.sin((x * x + y * y) / 200000.0) + 20 * ((x // 100 + y // 100) % 2)
    picture = np.repeat(rings.clip(0, 255).astype(np.uint8)[..., None], 3, 2)
    average, _, reduced = three_ways(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 95])[1], wanted)
    assert np.abs(reduced - average).mean() < 1.5


@pytest.mark.parametrize("name", ["bus.jpg", "zidane.jpg"])
def test_reduced_at_the_margin_is_nearer_to_the_average(name):
    """What the margin rests on, for the two photos that come with Ultralytics."""
    path = pytest.importorskip("ultralytics.utils").ASSETS / name
    if not path.is_file():
        pytest.skip(f"this Ultralytics has no {name}")
    height, width = jpeg_size(path)
    wanted = int(max(height, width) / 2 / decode.MARGIN)
    average, plain, reduced = three_ways(np.fromfile(path, np.uint8), wanted)
    assert ((reduced - average) ** 2).mean() < ((plain - average) ** 2).mean()
