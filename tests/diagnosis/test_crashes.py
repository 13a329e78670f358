"""The last error in a log, for crashes that nobody has described."""

from __future__ import annotations

import io

from yolo_rocm.diagnosis import known_failures
from yolo_rocm.diagnosis.known_failures import examine_log

from ..tables import each_row

TRACEBACK = """Traceback (most recent call last):
  File "/x/train.py", line 3, in <module>
    main()
  File "/x/train.py", line 1, in main
    raise {error}
           ^^^^^^
{error}
"""
CRASHES = {
    "an exception": (TRACEBACK.format(error="ValueError: no such colour"), "ValueError: no such colour"),
    "without words": (TRACEBACK.format(error="MemoryError"), "MemoryError"),
    "of a rank": (
        "".join(f"[rank1]: {line}\n" for line in TRACEBACK.format(error="Gone: 1").splitlines()),
        "[rank1]: Gone: 1",
    ),
    "without its traceback": (
        "torch.cuda.OutOfThingsError: none left\nmore\n",
        "torch.cuda.OutOfThingsError: none left",
    ),
    "of the shell": ("run.sh: line 3: 12345 Killed                  python train.py", None),
    "a signal": ("Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
    "of C++": ("terminate called after throwing an instance of 'std::x'\n  what():  y\n", None),
    "of Python itself": ("Fatal Python error: deallocating None\n", "Fatal Python error: deallocating None"),
    "of a command": ("error: cannot read x.yaml: No such file.\n", "error: cannot read x.yaml: No such file."),
    "the last of two": ("ValueError: first\nTypeError: second\nepoch 2\n", "TypeError: second"),
    "with colours": ("\x1b[31mValueError: red\x1b[0m\r\n", "ValueError: red"),
}


@each_row(("log", "line"), CRASHES.values(), ids=CRASHES.keys())
def test_the_last_error_is_quoted(log, line):
    reading = examine_log(io.BytesIO(f"epoch 1\n{log}".encode()))
    assert reading.last_error is not None
    assert reading.last_error.text == (line or log.splitlines()[0])


HEALTHY = {
    "ultralytics": (
        "Ultralytics 8.4.190 Python-3.11 torch-2.10.0+rocm7.0 CUDA:0 (AMD Radeon RX 7900 XTX, 24560MiB)\n"
        "WARNING: no labels found in 3 images, see RuntimeError: in the docs\n"
        "      1/100      5.87G      1.234      2.345      1.111        145        640\n"
        "                 Killed         12         34      0.5      0.4\n"
        "description: Error bars\ncaption: none\noptions: Exceptions\n0 errors, 0 Errors: none\nerrors: 0\n"
        "torch-2.9.1+cu128 CUDA:0 (NVIDIA H200)\nSpeed: 0.1ms preprocess, 2.0ms inference, 0.0ms loss\n"
        "train: Scanning /data/labels/train... 0 images, 1 backgrounds, 0 corrupt: 1% 1/120\r"
        "Results saved to runs/detect/train\n"
    ),
    "stopped by its user": TRACEBACK.format(error="KeyboardInterrupt"),
    "ended by itself": TRACEBACK.format(error="SystemExit: 0"),
    "a file is named": '  File "/x/train.py", line 3, in <module>\n    main()\n',
    "empty": "",
}


@each_row("log", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_log_has_none(log):
    reading = examine_log(io.BytesIO(log.encode()))
    assert (reading.last_error, reading.matches) == (None, ())


def test_the_middle_of_a_line_is_no_beginning():
    """The second piece begins in the middle of the line, just where it looks like an error."""
    filler = known_failures.CHUNK - known_failures.OVERLAP
    log = b"\n" + b"x" * (filler - 1) + b"TypeError: none\n" + b"more\n" * 2000
    assert log[filler:].startswith(b"TypeError")
    assert examine_log(io.BytesIO(log)).last_error is None
