"""Take what identifies a writer, or lets others in, out of a text that is meant for strangers: home, user, tokens."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECRET: Final = "<secret>"
# Whole words of a name: TOKENIZERS_PARALLELISM and KEYBOARD hold no secrets, PWD and SSH_AUTH_SOCK hold folders.
_SECRET_NAME: Final = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|APIKEY|(?:^|_|SSH)(?:KEY|PASS|PW|AUTH))S?(?=$|[_\d])|_PWD$",
    re.IGNORECASE,
)
_FOLDERS: Final = ("OLDPWD", "SSH_AUTH_SOCK")
_SHORTEST_SECRET: Final = 6
_SHORTEST_NAME: Final = 3  # a name of two letters is part of every other word
# Users and hosts that are called so are not named by it; and a file without its system or card says nothing.
_NOBODY: Final = re.compile(r"(?i)root|localhost|linux|windows|container|amd|nvidia|radeon|rocm|torch|gfx\w+|rx\d\w+")
# Of GitHub, GitLab, Hugging Face, OpenAI, AWS, Slack, npm, PyPI, and a JSON web token.
_TOKENS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_\w{16,}|github_pat_\w{20,}|glpat-[\w-]{8,}|hf_\w{16,}|sk-(?=[\w-]*\d)[\w-]{16,}"
    r"|A[KS]IA[0-9A-Z]{12,}|xox[a-z]-[\w-]{10,}|npm_\w{16,}|pypi-(?=[\w-]*\d)[\w-]{16,}|eyJ[\w-]{10,}\.[\w.-]{20,})"
)
_IN_ADDRESS: Final = re.compile(r"(\b[A-Za-z][\w+.-]*://)[^/\s'\"<>]*@")
_BEARER: Final = re.compile(
    r"(\bbearer\s+|\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?)[\w.+/=-]{6,}", re.IGNORECASE
)
# name=value, name: value and --name value; a count of tokens is no secret.
_NAMED: Final = re.compile(
    r"((?:\b|_|-)(?:token|secret|password|passwd|(?:api|access|private)[_-]?key|(?<=--)key|(?<=[?&])(?:key|sig))"
    r"['\"]?(?:\s?[=:]\s?|(?<=\w)\s(?=[^\s=:]*\d))['\"]?)(?!(?:\d{1,7}|true|false|none|null)\b)[^\s'\"&,;<>]{3,}",
    re.IGNORECASE,
)
_MAIL: Final = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
# A name of Windows may hold blanks; up to the next part of the path it is a name all the same.
_HOMES: Final = re.compile(
    r"((?:[A-Za-z]:[\\/]{1,2}|/)(?:home|Users|media)[\\/]{1,2})(?:[^\\/:*?\"<>|\r\n'~]{1,64}(?=\\)|[^\\/\s:'\"]+)"
)
# Absolute paths and those from a home folder; not the path of an address, and not `fp32/nchw`.
_PATHS: Final = re.compile(
    r"(?P<address>\b(?!file:)[A-Za-z][\w+.-]+://[^\s'\"]*)|(?<=['\"])(?:~?/|[A-Za-z]:[\\/])[^'\"\r\n]*(?=['\"])"
    r"|(?<!\w)[A-Za-z]:[\\/][^\s:'\"]*|(?<![\w/.~-])(?:file://)?(?:~|\.\.?)?(?:/+[\w.+@~<>-]+)+/?"
)


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    return name.upper() not in _FOLDERS and _SECRET_NAME.search(name) is not None


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Take out secrets of the environment, tokens, home folders, mail addresses, and names of user and host."""
    environ = os.environ if environ is None else environ
    secrets = {value.strip() for name, value in environ.items() if is_secret(name)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, SECRET)
    text = _IN_ADDRESS.sub(rf"\1{SECRET}@", text)
    for pattern in (_BEARER, _NAMED):
        text = pattern.sub(rf"\1{SECRET}", text)
    text = _TOKENS.sub(SECRET, text)
    text = re.sub(rf"{re.escape(str(Path.home()))}(?![\w.-])", "~", text)
    text = _MAIL.sub("<mail>", _HOMES.sub(r"\1<user>", text))
    for name, replacement in _names(environ):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", replacement, text)
    return text


def without_paths(text: str) -> str:
    """Take out the paths of files, which say how somebody orders their disk."""
    return _PATHS.sub(lambda match: match["address"] or "<path>", text)


def _names(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what user and host are called, the longest name first, and what takes its place."""
    names = [(environ.get(name, ""), "<user>") for name in ("USER", "USERNAME", "LOGNAME", "SUDO_USER")]
    names += [(environ.get(name, ""), "<host>") for name in ("HOSTNAME", "COMPUTERNAME")]
    with contextlib.suppress(OSError, KeyError, ImportError):  # no such user in a container, or no network
        names += [(getpass.getuser(), "<user>"), (socket.gethostname(), "<host>")]
    names += [(host.partition(".")[0], "<host>") for host, kind in names if kind == "<host>"]
    shown = {(name, kind) for name, kind in names if len(name) >= _SHORTEST_NAME and not _NOBODY.fullmatch(name)}
    return sorted(shown, key=lambda pair: -len(pair[0]))
