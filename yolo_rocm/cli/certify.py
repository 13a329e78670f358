"""`yolo-rocm certify`: runs everything on this card and writes the one file to send, or verifies such a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import EvidenceError
from ..hardware.libraries import missing_stack
from ..utils.console import console, print_json, stdout_for_json
from .options import AsJson, check_writable, out, print_table, say

if TYPE_CHECKING:
    from ..preset.evidence import Certificate, Evidence

_NOT_AS_WRITTEN: Final = 3  # 1: a part has failed; 2: Typer's, for a wrong option
_TITLES = {
    "doctor": "doctor's probes",
    "kernels": "every kernel against fp64",
    "demo": "demo: a short training",
    "bench_train": "bench train, a glance",
}


def certify(
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write; by default a name by card and torch.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; by default the GPU where torch can use one.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smallest sizes, fp32 alone: to try the command. The file is no evidence.")
    ] = False,
    verify: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run nothing: say whether a file is as it was written, and what it says."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Certify this card: probes, every kernel against fp64, a demo, a quick benchmark, in one file to send.

    Ends with 0 where every part passed, 1 where one failed; the others are run all the same. With --verify, 3: the file
    is not as it was written.
    """
    if verify is not None:
        raise typer.Exit(_verify(verify, as_json))
    lacking = missing_stack()
    if lacking is not None:  # each part would fail of it, and be written down
        raise lacking
    from ..bench import certify as bench
    from ..hardware import detect

    check_writable(out_file, "--out", "my-card.json")
    machine = detect()
    device = bench.checked_device(device, machine)
    with stdout_for_json(as_json):
        if device == "cuda":
            say("A kernel that faults can make the driver reset the GPU, and a desktop with it: save your work first.")
        data = bench.certify(device, quick=quick, machine=machine, announce=_announce)
        evidence = _written(data, out_file)
    if as_json:
        print_json(data)
    else:
        _print(evidence.data)
        say(f"\nwritten to {evidence.file}", *_how_to_send(evidence.data))
    raise typer.Exit(1 if evidence.data.failed else 0)


def _announce(part: str, limit_s: float) -> None:
    from ..utils.progress import duration

    number = list(_TITLES).index(part) + 1
    say(f"{number} of {len(_TITLES)}: {_TITLES[part]}, at most {duration(limit_s)}")


def _written(data: dict[str, Any], out_file: Path | None) -> Evidence:
    """Write the file, and read it again: in the working folder where the place asked for has become unwritable."""
    from ..preset.evidence import Certificate, Evidence, as_text, file_name, read_evidence
    from ..utils.atomic import write_file

    usual = Path(file_name(Certificate.model_validate(data)))
    file = out_file or usual
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, as_text(data))
    except OSError as error:
        if out_file is None:
            raise
        say(f"{out_file} cannot be written: {error.strerror or error}")
        file = usual
        write_file(file, as_text(data))
    return Evidence(str(file), read_evidence(file).data)


def _verify(file: Path, as_json: bool) -> int:
    from ..preset.evidence import read_evidence

    try:
        found = read_evidence(file)
    except EvidenceError as error:
        console(stderr=True).print(f"error: {error}", markup=False)
        return _NOT_AS_WRITTEN
    if as_json:
        print_json(found.data.model_dump())
    else:
        _print(found.data)
        say(f"\n{file.name} is as `yolo-rocm certify` wrote it.", *_worth(found))
    return 1 if found.data.failed else 0


def _worth(found: Evidence) -> list[str]:
    """Say what a genuine file is evidence for, and what its name should be."""
    from ..preset.evidence import file_name

    card, used, preset = found.data.card, found.data.preset.name, found.evidence_of()
    if found.data.quick:
        worth = "It is of a quick run and no evidence for a card."
    elif card.kind != "amd":
        worth = f"It ran on {card}, with our engines: it is no evidence for an AMD card."
    elif preset is None:
        worth = f"It counts for no preset: it ran with {used}, which is no preset for {card.in_words}."
    else:
        worth = f"It counts for preset {preset}."
    name = file_name(found.data)
    return [worth, *([] if found.file == name else [f"The name by its content is {name}"])]


def _print(data: Certificate) -> None:
    card, stack = data.card, data.stack
    named = " ".join(word for word in (card.name or f"{card.kind.upper()} GPU", card.gfx) if word)
    libraries = {"torch": "torch", "hip": "ROCm", "cuda": "CUDA", "triton": "Triton", "ultralytics": "Ultralytics"}
    versions = [f"{word} {getattr(stack, key)}" for key, word in libraries.items() if getattr(stack, key)]
    out.print(f"{named}: {data.verdict}", markup=False, style="bold")
    say(f"{data.date}, {stack.system}, {', '.join(versions)}, yolo-rocm {stack.yolo_rocm}", "")
    rows = [
        (_TITLES.get(name, name), "failed" if part.failures else "passed", f"{part.seconds:.0f} s", part.summary)
        for name, part in sorted(data.parts.items(), key=lambda item: [*_TITLES, item[0]].index(item[0]))
    ]
    print_table(("part", "result", "time", "what was found"), rows)
    for name, part in data.parts.items():
        say(*(f"{name} failed: {failure}" for failure in part.failures))


def _how_to_send(data: Certificate) -> list[str]:
    if data.quick:
        return ["A quick run is no evidence for a card: run it again without --quick before you send the file."]
    return [
        "Names, paths and secrets are taken out; read it before you send it. Passed or failed, it is worth sending:",
        'open an issue in the project\'s tracker (form "I ran it on a card") with the file attached, or a pull request',
        "that adds it to configs/evidence/.",
    ]
