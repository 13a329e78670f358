"""A report to paste into an issue, without what identifies its writer."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from .doctor import Diagnosis

# Variables that steer what is reported; no others are shown.
_SHOWN: Final = re.compile(r"^(?:HSA|HIP|ROCR|ROCM|MIOPEN|AMD|GPU|PYTORCH|TORCH|CUDA|NCCL|RCCL|YOLO|OMP)_")
_SECRET_NAME: Final = re.compile(r"TOKEN|KEY|SECRET|PASS|PWD$|CREDENTIAL|AUTH|COOKIE|SESSION", re.IGNORECASE)
_SECRET_TEXT: Final = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|hf_[A-Za-z0-9]{16,}|AKIA[0-9A-Z]{12,}|sk-[A-Za-z0-9_-]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
)
_IN_ADDRESS: Final = re.compile(r"(\w+://)[^/\s:@]+(?::[^/\s@]*)?@")
_MAIL: Final = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
_OTHER_HOMES: Final = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:'\"]+")
_SHORTEST: Final = 3  # a name of two letters stands in every other word


def report(diagnosis: Diagnosis, environ: Mapping[str, str] | None = None) -> str:
    """Return the report as Markdown, redacted."""
    environ = os.environ if environ is None else environ
    data = diagnosis.as_dict()
    shown = {
        name: value for name, value in sorted(environ.items()) if _SHOWN.match(name) and not _SECRET_NAME.search(name)
    }
    values = {key: entry["value"] for key, entry in data["preset"]["values"].items()}
    sections = [
        ("Machine", {**data["machine"], "triton": data["triton"]}),
        ("Environment", shown),
        ("Findings", data["findings"]),
        ("Probes", {row["name"]: f"{row['status']} {row['message'] or row['error']}" for row in data["probes"]}),
        ("Settings", {"preset": data["preset"]["preset"], "why": data["preset"]["why"], **values}),
    ]
    verdict = data["verdict"]
    lines = [f"# yolo-rocm {data['version']} doctor", "", verdict["text"], f"Next: {verdict['next'] or 'nothing'}"]
    for title, content in sections:
        text = yaml.safe_dump(_plain(content), sort_keys=False, allow_unicode=True, width=1000)
        lines += ["", f"## {title}", "", "```yaml", text.rstrip(), "```"]
    if diagnosis.said.strip():
        lines += [
            "",
            "## Printed while probing",
            "",
            "```",
            diagnosis.said.strip()[-8000:].replace("```", "'''"),
            "```",
        ]
    return redact("\n".join(lines) + "\n", environ)


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Take out home folders, user and host names, secrets of the environment, tokens and mail addresses."""
    environ = os.environ if environ is None else environ
    secrets = {value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 6}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "<secret>")
    text = _SECRET_TEXT.sub("<secret>", text)
    text = _IN_ADDRESS.sub(r"\1<secret>@", text)
    home = str(Path.home())
    if len(home) > 1:
        text = text.replace(home, "~")
    text = _OTHER_HOMES.sub(r"\1<user>", text)
    text = _MAIL.sub("<mail>", text)
    for name, stand_in in _names(environ):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", stand_in, text)
    return text


def _names(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    users = {environ.get(name, "") for name in ("USER", "USERNAME", "LOGNAME", "SUDO_USER")}
    hosts = {environ.get(name, "") for name in ("HOSTNAME", "COMPUTERNAME")}
    try:
        users.add(getpass.getuser())
        hosts.add(socket.gethostname())
    except (OSError, KeyError, ImportError):  # no such user in a container, or no network
        pass
    hosts |= {host.partition(".")[0] for host in hosts}
    found = [(user, "<user>") for user in users - {"root"}] + [(host, "<host>") for host in hosts - {"localhost"}]
    return sorted(((n, s) for n, s in found if len(n) >= _SHORTEST), key=lambda pair: -len(pair[0]))


def _plain(value: object) -> object:
    """Return what YAML can write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
