"""`yolo-rocm certify`: runs everything on this card and writes the one file to send, or verifies such a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import EvidenceError
from ..hardware.libraries import missing_stack
from ..utils.console import console, print_json, stdout_for_json
from .options import AsJson, check_writable, out, print_table, say

if TYPE_CHECKING:
    from ..preset.evidence import Certificate

_NOT_AS_WRITTEN: Final = 3  # 1: a part has failed; 2: Typer's, for a wrong option


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
    from ..preset.evidence import Certificate, as_text, file_name
    from ..utils.atomic import write_file
    from ..utils.progress import duration

    check_writable(out_file, "--out")
    machine = detect()
    device = bench.checked_device(device, machine)
    with stdout_for_json(as_json):
        if device == "cuda":
            say("A kernel that faults can make the driver reset the GPU, and a desktop with it: save your work first.")
        data = bench.certify(
            device,
            quick=quick,
            machine=machine,
            announce=lambda part, limit_s: say(f"{part}, at most {duration(limit_s)}"),
        )
        certificate = Certificate.model_validate(data)
        file = out_file or Path(file_name(certificate))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, as_text(data))
    if as_json:
        print_json(data)
    else:
        _print(certificate)
        say(f"\nwritten to {file}", *_how_to_send(certificate))
    raise typer.Exit(1 if certificate.failed else 0)


def _verify(file: Path, as_json: bool) -> int:
    from ..preset.evidence import file_name, read_evidence

    try:
        found = read_evidence(file)
    except EvidenceError as error:
        console(stderr=True).print(f"error: {error}", markup=False)
        return _NOT_AS_WRITTEN
    if as_json:
        print_json(found.data.model_dump())
    else:
        _print(found.data)
        preset = found.evidence_of()
        ran = f"{found.data.card}, with {found.data.preset.name}{', a quick run' if found.data.quick else ''}"
        worth = f"It counts for preset {preset}." if preset else f"It counts for no preset: it ran on {ran}."
        say(f"\n{file.name} is as `yolo-rocm certify` wrote it. {worth}", f"Its name is {file_name(found.data)}.")
    return 1 if found.data.failed else 0


def _print(data: Certificate) -> None:
    out.print(f"{data.card.in_words}: {data.verdict}", markup=False, style="bold")
    say(f"{data.date}, {data.stack.system}, torch {data.stack.torch}, yolo-rocm {data.stack.yolo_rocm}", "")
    rows = [
        (name, "failed" if part.failures else "passed", f"{part.seconds:.0f} s", part.summary)
        for name, part in data.parts.items()
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
