"""`yolo-rocm doctor`: prints what the doctor found, the verdict first."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.atomic import write_file
from ..utils.console import console, print_json, stdout_for_json
from ..utils.progress import progress
from .options import AsJson, PresetName, check_writable, out, print_table, say

if TYPE_CHECKING:
    from ..diagnosis.doctor import Diagnosis
    from ..diagnosis.known_failures import LogReading
    from ..diagnosis.outcome import ProbeOutcome

_COLUMNS = ("fp32", "fp16", "bf16")


def doctor(
    log: Annotated[
        str | None, typer.Argument(metavar="[LOG]", help="A log to read instead of this machine; - for stdin.")
    ] = None,
    preset: PresetName = "auto",
    device: Annotated[
        str | None, typer.Option(help="cuda or cpu; by default the GPU, and nothing where torch can use none.")
    ] = None,
    probes: Annotated[
        bool, typer.Option(help="Run tests on the device, in processes that may crash without harm.")
    ] = True,
    as_json: AsJson = False,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Also write a report to paste into an issue, names and secrets removed; not of a LOG."),
    ] = None,
) -> None:
    """Say what is wrong with this machine, or what a log of a training shows, and what to do.

    Ends with 0 where all is well, 1 where there are problems, 2 where nothing can run. With a LOG: 0 where it shows no
    failure, 1 where it shows one, known or not, 2 where it cannot be read.
    """
    if log is not None:
        if bundle is not None:
            raise typer.BadParameter("--bundle is about this machine, and a log about its own: give one of them")
        raise typer.Exit(_read(log, as_json))
    if bundle is not None:
        check_writable(bundle, "--bundle")
    from ..diagnosis.doctor import doctor as examine

    with stdout_for_json(as_json), progress("examining") as show:
        found = examine(preset, probes=probes, device=device, progress=show)
    if bundle is not None:
        from ..diagnosis.bundle import report

        bundle.parent.mkdir(parents=True, exist_ok=True)
        write_file(bundle, report(found))
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
        if bundle is not None:
            say(f"\nreport written to {bundle}")
    raise typer.Exit(found.verdict.code)


def _read(log: str, as_json: bool) -> int:
    """Name the failures in a log; 0: it shows none, 1: some, known or not, 2: it cannot be read."""
    from ..diagnosis.known_failures import examine_log

    try:
        with ExitStack() as opened:
            stream: Any = sys.stdin.buffer if log == "-" else opened.enter_context(Path(log).open("rb"))
            reading = examine_log(stream)
    except OSError as error:
        console(stderr=True).print(f"error: cannot read {log}: {error.strerror or error}.", markup=False)
        return 2
    if as_json:
        rows = [
            {
                **match.signature.model_dump(mode="json", include={"id", "level", "cause", "where", "sources"}),
                "remedy": match.remedy(),
                "confidence": match.signature.confidence,
                "line": match.line,
                "text": match.text,
            }
            for match in reading.matches
        ]
        last = dataclasses.asdict(reading.last_error) if reading.last_error is not None else None
        print_json({"schema": 1, "matches": rows, "last_error": last})
    else:
        _print_reading(reading)
    return int(reading.explained or reading.last_error is not None)


def _print_reading(reading: LogReading) -> None:
    last = reading.last_error
    if not reading.explained:
        say("No known failure in this log. `yolo-rocm doctor` examines the machine itself.")
        if last is not None:
            say(f"Its last error, line {last.line}: {last.text}")
        if reading.matches:
            say("\nWorth knowing:")
    for number, match in enumerate(reading.matches):
        known = match.signature
        if number == 1 and reading.explained:
            say("\nAlso in this log:")
        say(
            f"{known.id}, line {match.line}: {match.text}",
            f"  cause:  {known.cause}\n  remedy: {match.remedy()}",
            f"  known from: {' '.join(known.sources)} ({known.confidence}; {known.where})",
        )


def _print(found: Diagnosis) -> None:
    verdict = found.verdict
    out.print(verdict.text, markup=False, style="bold")
    if verdict.next:
        say(f"Next: {verdict.next}")
    # What failed and is not used is in the table below.
    told = [f for f in found.findings if f.severity != "info" or not f.id.startswith("probe-")]
    if told:
        say("")
    for finding in told:
        sources = f" ({' '.join(finding.sources)})" if finding.sources else ""
        say(f"{finding.severity} {finding.id}: {finding.finding}", f"    do: {finding.remedy}{sources}")
    if found.outcomes:
        say("")
        below = (found.triton, found.hip)
        _print_probes([o for o in found.outcomes if not (o.status == "skipped" and o.message in below)])
        say(*_facts(found.outcomes), *_learned(found))
    machine = found.machine
    gpus = ", ".join(str(gpu) for gpu in machine.gpus) or "no GPU"
    stack = f"torch {machine.torch} ({machine.build}{f' {machine.hip}' if machine.hip else ''})"
    say(
        f"engine triton: {found.triton}",
        f"engine hip: {found.hip}",
        f"\n{gpus}; {machine.system} {machine.kernel or ''}; {stack}; Ultralytics {machine.ultralytics}; "
        f"Python {machine.python}\n{found.settings.why}",
    )


def _print_probes(outcomes: Sequence[ProbeOutcome]) -> None:
    """Print the probes as a table: who computes what, in which dtype, with the largest error or what went wrong."""
    rows: dict[str, dict[str, list[ProbeOutcome]]] = {}
    for outcome in outcomes:
        words = outcome.name.split("/")
        dtype = next((word for word in words if word in _COLUMNS), "")
        label = " ".join(word for word in words[:2] if word not in _COLUMNS)
        rows.setdefault(label, {}).setdefault(dtype, []).append(outcome)
    columns = ("", *_COLUMNS)
    table = [(label, *(_cell(cells.get(column, [])) for column in columns)) for label, cells in rows.items()]
    print_table(("probe", *columns), table)


def _cell(outcomes: Sequence[ProbeOutcome]) -> str:
    if not outcomes:
        return ""
    bad = [outcome for outcome in outcomes if outcome.status != "ok"]
    if bad:
        first = next((outcome for outcome in bad if outcome.status != "skipped"), bad[0])
        return f"{first.status} ({len(bad)} of {len(outcomes)})"
    worst = max(outcome.error or 0.0 for outcome in outcomes)
    return f"ok {worst:.0e}" if worst else "ok"


def _learned(found: Diagnosis) -> list[str]:
    """Say what was remembered about the vendor library."""
    lines = []
    for word, by_dtype in (("convolution", found.health.conv), ("BatchNorm", found.health.norm)):
        told = ", ".join(f"{dtype} {'healthy' if healthy else 'unhealthy'}" for dtype, healthy in by_dtype.items())
        if told:
            lines.append(f"vendor library, {word}: {told}; conv.engine auto goes by it")
    return lines


def _facts(outcomes: Sequence[ProbeOutcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        if outcome.detail:
            told = ", ".join(
                f"{name} {'+'.join(value) if isinstance(value, list) else value}"
                for name, value in outcome.detail.items()
                if value is not None and name not in ("triton", "hip_engine")  # have lines of their own
            )
            lines += [f"{outcome.name}: {told}"] if told else []
    return lines
