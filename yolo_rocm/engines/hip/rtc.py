"""A compiler at run time (hiprtc, NVRTC) behind ctypes, and the process that it runs in: `python rtc.py`.

A compiler may hang, or abort the process it is in (LLVM does so for what it cannot select), so it never runs in a
training: `workers` starts this file as a script of its own. For that it imports the standard library alone.

A request on stdin is a line of JSON (library, family, name, options, text), a reply on stdout is one (code, or error
and log) with the code object in base64. The process ends when its input does,
or its parent: a compiler that hangs reads no input.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import sys
import threading
import time
from typing import Any, Final

# family -> prefix of the functions, and what the finished code is called: the same interface under two names.
FAMILIES: Final = {"hip": ("hiprtc", "Code"), "cuda": ("nvrtc", "CUBIN")}


class RtcError(RuntimeError):
    """The compiler refused; `log` is what it said, empty where it never got to the source."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Rtc:
    """One compiler library.

    Args:
        library: Its path or name.
        family: A key of `FAMILIES`.

    Raises:
        RtcError: The library cannot be loaded, or lacks a function.
    """

    def __init__(self, library: str, family: str) -> None:
        self._prefix, self._code = FAMILIES[family]
        try:
            self._library = ctypes.CDLL(library)
            for name in ("CreateProgram", "CompileProgram", "DestroyProgram", "GetProgramLog", f"Get{self._code}"):
                self._function(name)
        except (OSError, AttributeError) as error:
            raise RtcError(f"{library} cannot be used: {error}") from None

    def compile(self, text: str, name: str, options: list[str]) -> bytes:
        """Return the code object.

        Args:
            text: The source, whole: headers are not looked for.
            name: What the log calls it.
            options: For the compiler.

        Raises:
            RtcError: It does not compile.
        """
        program = ctypes.c_void_p()
        create = (text.encode(), name.encode(), ctypes.c_int(0), None, None)
        self._check("CreateProgram", ctypes.byref(program), *create)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._function("CompileProgram")(program, ctypes.c_int(len(options)), given)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()
            if status:
                raise RtcError(f"{self._prefix}CompileProgram: {self._words(status)}", log)
            return self._read(program, self._code)
        finally:
            self._function("DestroyProgram")(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", program, ctypes.byref(size))
        if not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        self._check(f"Get{what}", program, buffer)
        return buffer.raw

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._function(name)(*arguments)
        if status:
            raise RtcError(f"{self._prefix}{name}: {self._words(status)}")

    def _words(self, status: int) -> str:
        said = self._function("GetErrorString")
        said.restype = ctypes.c_char_p
        text = said(ctypes.c_int(status))
        return f"{text.decode('utf-8', 'replace') if text else 'error'} ({status})"

    def _function(self, name: str) -> Any:
        return getattr(self._library, self._prefix + name)


def answer(request: dict[str, Any], known: dict[tuple[str, str], Rtc]) -> dict[str, Any]:
    """Return the reply to a request."""
    try:
        which = request["library"], request["family"]
        if which not in known:
            known[which] = Rtc(*which)
        code = known[which].compile(request["text"], request["name"], request["options"])
    except RtcError as error:
        return {"error": str(error), "log": error.log}
    return {"code": base64.b64encode(code).decode()}


def _end_with(parent: int) -> None:
    """End this process when its parent has ended; Windows does not tell."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Answer requests until there are no more. Whatever libraries print goes to stderr."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if sys.platform == "win32":  # a crash shows no dialogue box
        ctypes.windll.kernel32.SetErrorMode(0x8003)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    known: dict[tuple[str, str], Rtc] = {}
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line), known)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
