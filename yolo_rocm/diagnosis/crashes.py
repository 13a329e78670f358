"""The last error in a log, whatever it is: how to recognise a crash that nobody has described yet."""

from __future__ import annotations

import re
from typing import Final

_RANK: Final = rb"(?:\[rank\d{1,5}\]: ?)?"
# An exception as Python prints it, by its usual name or by what it follows; stopping a run is no crash.
_RAISED: Final = rb"(?!(?:[\w.]{0,200}\.)?(?:KeyboardInterrupt|SystemExit|GeneratorExit)\b)[A-Za-z_][\w.]{0,200}"
_CRASH: Final = re.compile(
    rb"^" + _RANK + rb"(?P<named>[A-Za-z_][\w.]{0,200}(?:(?<=Error)|(?<=Exception))(?::[ ][^\n]*|:?[ ]{0,4}))$"
    rb"|^" + _RANK + rb"[ ]{2,8}File \"[^\n]{1,500}\n(?:" + _RANK + rb"[ ]{4,}[^\n]{0,500}\n){0,6}"
    rb"" + _RANK + rb"(?P<raised>" + _RAISED + rb"(?::[ ][^\n]*)?)$"
    # What the C library, the shell, the C++ runtime and Python itself say last.
    rb"|^(?:[\w./-]{1,200}: (?:line \d{1,7}: {1,4}\d{1,9} )?)?(?P<ended>(?:[Ss]egmentation fault|Aborted|Bus error"
    rb"|Illegal instruction|Floating point exception|Killed)(?: {1,9}\(core dumped\)[^\n]{0,200}| {2,}[^\n]{0,200})?)$"
    rb"|^(?P<told>terminate called [^\n]+|Fatal Python error: [^\n]+"
    rb"|(?:ERROR|[Ee]rror)\b ?: ?[^\n]+)$",
    re.MULTILINE,
)
# Searched first, because it is fast.
_SIGNS: Final = (
    *(b"Error", b"Exception", b'File "', b"fault", b"Aborted", b"Bus error", b"Illegal", b"Killed"),
    *(b"terminate called", b"Fatal", b"ERROR", b"error"),
)


def last_crash(piece: bytes) -> re.Match[bytes] | None:
    """Return the last error in a piece of a log; its one named group is the line to quote."""
    if not any(sign in piece for sign in _SIGNS):
        return None
    found = None
    for found in _CRASH.finditer(piece):  # noqa: B007 only the last one counts
        pass
    return found
