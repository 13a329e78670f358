"""Known failures: each found in its own sample, told first, and in logs of any size and state."""

from __future__ import annotations

import io
import random
import re
import time

import pytest

from yolo_rocm.diagnosis import known_failures
from yolo_rocm.diagnosis.known_failures import examine_log, explain, read_text, signatures

from ..tables import each_row

pytestmark = pytest.mark.once

SAMPLES = [(entry, sample) for entry in signatures() for sample in entry.samples]
PROGRESS = (
    b"      3/100      5.87G      1.234      2.345      1.111        145        640: 100%|##########| 12/12 "
    b"[00:01<00:00, 11.2it/s] inference info\r"
)


def ids(matches):
    return [match.signature.id for match in matches]


# A repetition without a limit never ends on one long line.
UNBOUNDED = re.compile(r"(?<!\\)\.[*+]|\\[SWw][*+]|\[\^[^\]]*\][*+]")


def test_the_size_of_the_knowledge_and_where_it_is_from():
    assert len({entry.id for entry in signatures()}) == len(signatures()) == 61
    for entry in signatures():
        assert not UNBOUNDED.search(entry.pattern), entry.id
        assert all(source.startswith("https://") for source in entry.sources), entry.id


@each_row(("entry", "sample"), SAMPLES, ids=[f"{e.id}-{n}" for n, (e, _) in enumerate(SAMPLES)])
def test_each_sample_is_told_as_what_it_is(entry, sample):
    """Its own signature comes first, so no more specific one matches it; the surroundings do not matter."""
    if entry.auto_match:
        assert ids(read_text(sample))[0] == entry.id
        assert ids(read_text(f"\x1b[34m\x1b[1mtrain: \x1b[0mok\r\n{sample}\r\nmore\n"))[0] == entry.id
    else:
        assert entry.search(sample.encode())
        assert entry.id not in ids(read_text(sample))


def test_causes_come_before_symptoms_before_notes():
    log = "\n".join(
        [
            'MIOpen(HIP): Warning [ParseAndLoadDb] File is unreadable: "/opt/share/miopen/db/gfx1200_20.HIP.fdb.txt"',
            "RuntimeError: miopenStatusUnknownError",
            "miopen_type_traits.hpp:151:10: fatal error: 'type_traits' file not found",
        ]
    )
    order = [("miopen-hiprtc-type_traits", 3), ("miopen-unknown", 2), ("miopen-db-missing", 1)]
    assert [(match.signature.id, match.line) for match in read_text(log)] == order


def test_the_card_stands_in_the_remedy():
    (match,) = read_text("rocBLAS error: Cannot read /x/TensileLibrary.dat: Illegal seek for GPU arch : gfx900")
    assert match.gfx == "gfx900"
    assert '"torch[device-gfx900]"' in match.remedy()
    (other,) = read_text("RuntimeError: HIP error: invalid device function")
    assert '"torch[device-gfxNNNN]"' in other.remedy()
    assert '"torch[device-gfx1010]"' in other.remedy("gfx1010")


def test_a_progress_bar_with_colours_does_not_hide_a_nan():
    line = b"\x1b[K      3/100      5.87G        nan        nan        nan        145        640: 100%"
    (match,) = examine_log(io.BytesIO(b"first\r\n" + PROGRESS * 3 + line + b"\r" + PROGRESS)).matches
    assert (match.signature.id, match.line) == ("nan-loss", 2)
    assert match.text.startswith("3/100")


def test_a_message_across_two_pieces():
    offset = 17
    message = b"RuntimeError: HIP error: invalid device function\n"
    log = b"x" * (known_failures.CHUNK - 20 - offset) + b"\n" + message + b"y" * 100
    (match,) = examine_log(io.BytesIO(log)).matches
    assert (match.signature.id, match.line) == ("hip-invalid-device-function", 2)


LOGS = {
    "empty": b"",
    "one newline": b"\n",
    "binary": random.Random(1).randbytes(200_000),
    "zeros": bytes(200_000),
    "not utf-8": "Grüße für alle".encode("latin-1"),
    "half a utf-16 character": b"\xff\xfeH\x00e",
    "half a colour": b"\x1b[",
}


@each_row("log", LOGS.values(), ids=LOGS.keys())
def test_rubbish_does_no_harm(log):
    assert examine_log(io.BytesIO(log)).matches == ()
    message = "Größe: HSA_STATUS_ERROR_INVALID_ISA\n"
    for encoding in ("utf-8", "utf-16", "latin-1"):
        noise = b"" if encoding == "utf-16" or log.startswith(b"\xff\xfe") else log + b"\n"
        assert ids(examine_log(io.BytesIO(noise + message.encode(encoding))).matches) == ["hsa-invalid-isa"]


TWO_MB = 2 * 2**20
HARD = (
    b"kfd kfd: segfault at HIP error: torch- miopenStatus ProcessGroupNCCL MIOpenBatchNorm out of memory member of nan "
)


@each_row("unit", [PROGRESS, b"abc ", HARD], ids=["progress bars", "one long line", "words of many signatures"])
def test_megabytes_are_read_in_time(unit):
    """With repetitions that are not bounded it would take hours."""
    signatures()
    log = io.BytesIO(unit * (TWO_MB // len(unit)) + b"\nfree(): invalid pointer\n")
    started = time.process_time()  # of this process: others may keep the machine busy
    assert ids(examine_log(log).matches) == ["free-invalid-pointer"]
    assert time.process_time() - started < 4


def test_an_exception_is_explained_by_its_text_or_a_cause_below():
    try:
        try:
            raise RuntimeError("miopenStatusUnknownError: stoul")
        except RuntimeError as error:
            raise ValueError("training stopped") from error
    except ValueError as error:
        match = explain(error)
    assert match is not None
    assert match.signature.id == "miopen-stoul"
    assert explain(ValueError("nothing known")) is None
    assert explain(RuntimeError('File is unreadable: "gfx1151_20.db"')) is None  # a note explains no failure
