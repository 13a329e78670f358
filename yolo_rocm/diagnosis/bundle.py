"""A report to paste into an issue, without what identifies its writer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

import yaml

from .doctor import Diagnosis
from .redaction import is_secret, redact

# Variables that steer what is reported; no others are shown.
_SHOWN: Final = re.compile(r"^(?:HSA|HIP|ROCR|ROCM|MIOPEN|AMD|GPU|PYTORCH|TORCH|CUDA|NCCL|RCCL|YOLO|OMP)_")


def report(diagnosis: Diagnosis, environ: Mapping[str, str] | None = None) -> str:
    """Return the report as Markdown, redacted."""
    environ = os.environ if environ is None else environ
    data = diagnosis.as_dict()
    shown = shown_variables(environ)
    values = {key: entry["value"] for key, entry in data["preset"]["values"].items()}
    sections = [
        ("Machine", {**data["machine"], "triton": data["triton"], "hip_engine": data["hip"]}),
        ("Environment", shown),
        ("Findings", data["findings"]),
        ("Probes", {row["name"]: f"{row['status']} {row['message'] or row['error']}" for row in data["probes"]}),
        ("Settings", {"preset": data["preset"]["preset"], "why": data["preset"]["why"], **values}),
    ]
    verdict = data["verdict"]
    lines = [f"# yolo-rocm {data['version']} doctor", "", verdict["text"], f"Next: {verdict['next'] or 'nothing'}"]
    for title, content in sections:
        # Before YAML quotes, escapes and breaks the texts: a secret would no longer look like itself.
        text = yaml.safe_dump(_redacted(content, environ), sort_keys=False, allow_unicode=True, width=1000)
        lines += ["", f"## {title}", "", "```yaml", text.rstrip(), "```"]
    output = redact(diagnosis.output, environ).strip()
    if output:
        # Cut only now: half a token at the beginning would not be recognised.
        lines += ["", "## Printed while probing", "", "```", output[-8000:].replace("```", "'''"), "```"]
    return redact("\n".join(lines) + "\n", environ)


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer what is reported, without those that hold secrets."""
    return {name: value for name, value in sorted(environ.items()) if _SHOWN.match(name) and not is_secret(name)}


def _redacted(value: object, environ: Mapping[str, str]) -> object:
    """Return what YAML can write, every text in it redacted."""
    if isinstance(value, Mapping):
        return {redact(str(key), environ): _redacted(item, environ) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, environ) for item in value]
    return value if isinstance(value, int | float | bool) or value is None else redact(str(value), environ)
