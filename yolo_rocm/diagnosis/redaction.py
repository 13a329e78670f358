"""Take what identifies a writer, or lets others in, out of a text that is meant for strangers."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECRET: Final = "<secret>"
_WORD: Final = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|APIKEY)"
_SHORT_WORD: Final = r"(?:KEY|PASS|PWD|PW|AUTH)"
# Whole words of a name: TOKENIZERS_PARALLELISM, KEYBOARD and XAUTHORITY hold no secrets.
_SECRET_NAME: Final = re.compile(
    rf"(?:{_WORD}|(?:^|_|SSH|API|ACCESS|SECRET|PRIVATE){_SHORT_WORD})S?(?=$|[_\d])", re.IGNORECASE
)
_FOLDERS: Final = ("PWD", "OLDPWD", "SSH_AUTH_SOCK")
# What an ordinary setting may hold; taking it out would take it out of every sentence.
_ORDINARY: Final = re.compile(r"(?i)true|false|none|null|yes|no|on|off|auto|default|enabled?|disabled?|[\d.,:-]{1,7}")
_SHORTEST_SECRET: Final = 6
_LONG_SECRET: Final = 12  # no part of an ordinary word
_SHORTEST_NAME: Final = 3  # a name of two letters is part of every other word
# Users and hosts that are called so are not named by it; and a file without its system or card says nothing.
_NOBODY: Final = re.compile(
    r"(?i)root|localhost|linux|windows|wsl|container|amd|nvidia|radeon|instinct|geforce|cpu|gpu|cuda|rocm|torch|triton|generic"
    r"|gfx[0-9a-f]{3,5}|rx\d{3,4}(?:xtx?|gre|[ms])?|mi\d{2,3}[ax]?"
)

_TOKENS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|gl(?:pat|dt|rt|ptt|cbt|oas|soat|ft|agent)-[\w-]{8,}"
    r"|hf_[A-Za-z0-9]{16,}|(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}|AIza[\w-]{16,}|ya29\.[\w-]{16,}"
    r"|sk-(?=[\w-]*\d)[\w-]{16,}|[rsp]k_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9]{8,}"
    r"|npm_[A-Za-z0-9]{16,}|pypi-(?=[\w-]*\d)[\w-]{16,}|dckr_pat_[\w-]{16,}|dop_v1_[0-9a-f]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_IN_ADDRESS: Final = re.compile(r"(\b[A-Za-z][\w+.-]*://)[^/\s'\"<>]*@")
_BEARER: Final = re.compile(r"\b(bearer\s+)[^\s'\",]{6,}", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(r"(\bauthorization['\"]?\s*[:=]\s*['\"]?)(?:(?:\w+)[ ]+)?[^\s'\",]+", re.IGNORECASE)
# Parameters of an address, where short words such as key and sig stand for secrets too.
_PARAMETER: Final = re.compile(
    r"([?&;#](?:[\w.-]*[_.-]|(?:api|access|x))?(?:token|key|secret|passw(?:or)?d|pwd|auth|sig|signature|credentials?|session|code)"
    r"(?:[_.-][\w.-]*)?=)[^&;#\s'\"<>]+",
    re.IGNORECASE,
)
# name=value and name: value, as programs print them; a count of tokens is no secret.
_NAMED: Final = re.compile(
    r"((?:\b|_|--)(?:[\w-]*[_-])?(?:token|secret|password|passwd|passphrase|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"['\"]?\s?[=:]\s?['\"]?)(?!(?:\d{1,7}|true|false|none|null)\b)([^\s'\"&,;<>]{4,})",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"(--[\w-]*(?:key|auth|passw(?:or)?d|pwd|token|secret)[=\s]\s*['\"]?)[^\s'\"]+", re.IGNORECASE
)
# What ROCm and CUDA call one card among all: ROCR_VISIBLE_DEVICES=GPU-1a2b3c4d5e6f7788.
_CARD_ID: Final = re.compile(r"\b((?:GPU|MIG)-)[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*\b")
_MAIL: Final = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
_OTHER_HOMES: Final = (
    # A name of Windows may hold blanks; up to the next part of the path it is a name all the same.
    re.compile(r"([A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))(?:[^\\/:*?\"<>|\r\n]{1,64}(?=[\\/])|[^\\/\s:'\"]+)"),
    re.compile(r"(/(?:home|Users|media)/)[^/\\\s:'\"]+"),
)
# Absolute paths and those from a home folder; not the path of an address, and not `fp32/nchw`. A folder's name may hold
# blanks where a separator follows, a file's where it ends like one, and both between quotes.
_NAME: Final = r"[\w.+@~<>-]+"
_FILE: Final = (
    rf"(?:(?: {_NAME}){{0,2}} [\w.+@~<>-]*\.(?:py|so|dll|exe|pth?|onnx|ya?ml|json|txt|log|csv|c|cpp|h|hpp|hip|s|co"
    r"|hsaco|dat|k?db|jpe?g|png|zip|whl)\b)?"
)
_PATHS: Final = re.compile(
    r"(?P<address>\b(?!file:)[A-Za-z][\w+.-]{1,20}://[^\s'\"]*)"
    r"|(?<=['\"])(?:(?:file://)?(?:~|\.\.?)?/|[A-Za-z]:[\\/])[^'\"\r\n]*(?=['\"])"
    r"|(?<!\w)(?:[A-Za-z]:|\\{2,4}[\w.$-]+)(?:[\\/]{1,2}[^\\/:*?\"|\r\n\t]{1,64}(?=[\\/]))*"
    rf"[\\/]{{1,2}}[^\\/:*?\"|\r\n\t ]*{_FILE}"
    r"|(?:(?<![\w/.~-])|(?<=\s-[A-Za-z]))(?:file://)?(?:~|\.\.?)?"
    rf"(?:/+{_NAME}(?:(?<!\.so|\.py)(?: {_NAME}){{1,3}}(?=/{_NAME}))?)+/?{_FILE}"
)
PATH: Final = "<path>"


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    return name.upper() not in _FOLDERS and _SECRET_NAME.search(name) is not None


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Take out home folders, user and host names, secrets of the environment, tokens, mail addresses, ids of cards."""
    environ = os.environ if environ is None else environ
    for secret in sorted(_secrets(environ), key=len, reverse=True):
        inside_words = len(secret) >= _LONG_SECRET
        text = text.replace(secret, SECRET) if inside_words else _as_a_word(secret).sub(SECRET, text)
    text = _PRIVATE_KEY.sub(SECRET, text)
    text = _IN_ADDRESS.sub(rf"\1{SECRET}@", text)
    for pattern in (_AUTHORIZATION, _BEARER, _PARAMETER, _OPTION, _NAMED):
        text = pattern.sub(rf"\1{SECRET}", text)
    text = _TOKENS.sub(SECRET, text)
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    for pattern in _OTHER_HOMES:
        text = pattern.sub(r"\1<user>", text)
    text = _CARD_ID.sub(r"\1<id>", text)
    text = _MAIL.sub("<mail>", text)
    for name, stand_in in _names(environ):
        text = _as_a_word(name).sub(stand_in, text)
    return text


def without_paths(text: str) -> str:
    """Take out the paths of files, which say how somebody orders their disk."""
    return _PATHS.sub(lambda found: found["address"] or PATH, text)


def _as_a_word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])")


def _secrets(environ: Mapping[str, str]) -> set[str]:
    """Return values of the environment that must appear nowhere."""
    found = {value.strip() for name, value in environ.items() if is_secret(name)}
    return {value for value in found if len(value) >= _SHORTEST_SECRET and not _ORDINARY.fullmatch(value)}


def _names(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    users = {environ.get(name, "") for name in ("USER", "USERNAME", "LOGNAME", "SUDO_USER")}
    hosts = {environ.get(name, "") for name in ("HOSTNAME", "COMPUTERNAME")}
    try:
        users.add(getpass.getuser())
        hosts.add(socket.gethostname())
    except (OSError, KeyError, ImportError):  # no such user in a container, or no network
        pass
    hosts |= {host.partition(".")[0] for host in hosts}
    found = [(user, "<user>") for user in users] + [(host, "<host>") for host in hosts]
    telling = (pair for pair in found if len(pair[0]) >= _SHORTEST_NAME and not _NOBODY.fullmatch(pair[0]))
    return sorted(telling, key=lambda pair: -len(pair[0]))
