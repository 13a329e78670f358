"""The runtime of the GPU behind ctypes: load code, find kernels in it, launch them. HIP's and CUDA's are alike.

Names of the functions are data. A launch is one call with eleven arguments; everything else happens once per kernel.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..device_state import STATE
from ..kernel_errors import LaunchError
from .libraries import find, stack_of

# Attributes of a function: the numbers are the same in both.
LOCAL_BYTES, MOST_DYNAMIC_SHARED = 3, 8
PLAIN_SHARED_BYTES: Final = 48 * 1024  # more of it has to be asked for on NVIDIA
# No context, that of another device, or a device of another thread's: torch sets these only when it has to.
ELSEWHERE: Final = (101, 201, 400)
_RELAXED: Final = 2  # capture mode: what this thread does is not recorded, and not refused


# family -> what names of functions begin with, and the rest of those that are not alike.
NAMES: Final = {
    "hip": ("hip", {"version": "RuntimeGetVersion", "launch": "ModuleLaunchKernel"}),
    "cuda": ("cu", {"version": "DriverGetVersion", "launch": "LaunchKernel"}),
}


class Driver:
    """One runtime.

    Args:
        library: The loaded library.
        family: `hip` or `cuda`.

    Attributes:
        launch: Takes function, grid (three), block (three), shared bytes, stream, arguments and None; returns a status.
            All of them are objects of ctypes, which saves their conversion at every launch.

    Raises:
        AttributeError: The library lacks a function.
    """

    def __init__(self, library: ctypes.CDLL, family: str) -> None:
        self._library, self._is_hip = library, family == "hip"
        self._prefix, self._names = NAMES[family]
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self.launch: Callable[..., int] = self._function(self._names["launch"])
        for name in ("ModuleLoadData", "ModuleGetFunction", "FuncGetAttribute", "GetErrorString"):
            self._function(name)

    def version(self) -> int:
        """Return the version of the runtime."""
        number = ctypes.c_int()
        self._check(self._names["version"], ctypes.byref(number))
        return number.value

    def make_current(self, number: int) -> None:
        """Make a device the current one of this thread, as torch's own `set_device` does, for the runtime alone."""
        if self._is_hip:
            self._check("SetDevice", ctypes.c_int(number))
            return
        with self._lock:
            if number not in self._contexts:
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self._check("DeviceGet", ctypes.byref(device), ctypes.c_int(number))
                self._check("DevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts[number] = context
        self._check("CtxSetCurrent", self._contexts[number])

    def load(self, number: int, code: bytes) -> ctypes.c_void_p:
        """Load a code object onto a device, also while a graph is being recorded."""
        module = ctypes.c_void_p()
        self.make_current(number)
        with self._unrecorded():
            self._check("ModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """Return a kernel of a module."""
        function = ctypes.c_void_p()
        with self._unrecorded():
            self._check("ModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        return function

    def local_bytes(self, function: ctypes.c_void_p) -> int:
        """Return the bytes that a thread of a kernel has beyond its registers, 0 where the runtime does not say."""
        value = ctypes.c_int()
        self._function("FuncGetAttribute")(ctypes.byref(value), ctypes.c_int(LOCAL_BYTES), function)
        return value.value

    def allow_shared(self, function: ctypes.c_void_p, size: int) -> None:
        """Let a kernel be launched with this much dynamic shared memory; only NVIDIA's runtime wants to be asked."""
        if not self._is_hip and size > PLAIN_SHARED_BYTES:
            self._check("FuncSetAttribute", function, ctypes.c_int(MOST_DYNAMIC_SHARED), ctypes.c_int(size))

    def words(self, status: int) -> str:
        """Return what a status means, in the runtime's own words."""
        ask, text = self._function("GetErrorString"), ctypes.c_char_p()
        if self._is_hip:
            ask.restype = ctypes.c_char_p
            text = ctypes.c_char_p(ask(ctypes.c_int(status)))
        else:
            ask(ctypes.c_int(status), ctypes.byref(text))
        return f"{(text.value or b'error').decode('utf-8', 'replace')} ({status})"

    def architecture(self, number: int) -> str | None:
        """Return the target that the HIP runtime reports for a device, an override included; None where it does not.

        The properties are a structure that every release lays out anew; the target is the one text in it of its form.
        """
        ask = getattr(self._library, "hipGetDeviceProperties", None)
        if ask is None:
            return None
        properties = ctypes.create_string_buffer(8192)
        if ask(properties, ctypes.c_int(number)):
            return None
        found = re.search(rb"gfx[0-9a-f]{3,4}(?::[a-z]+[+-])*(?=\0)", properties.raw)
        return None if found is None else found[0].decode()

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        exchange = getattr(self._library, f"{self._prefix}ThreadExchangeStreamCaptureMode", lambda mode: 1)
        mode = ctypes.c_int(_RELAXED)
        changed = exchange(ctypes.byref(mode)) == 0
        try:
            yield
        finally:
            if changed:
                exchange(ctypes.byref(mode))  # which holds the mode that was there before

    def _function(self, name: str) -> Any:
        return getattr(self._library, self._prefix + name)

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._function(name)(*arguments)
        if status:
            raise LaunchError(f"{self._prefix}{name}: {self.words(status)}")


@STATE.cached(2)
def driver(family: str) -> Driver | str:
    """Return the runtime of `hip` or `cuda` in this process, or in words why there is none."""
    stack, tried = stack_of(family), []
    for name in find(stack.driver, stack):
        try:
            return Driver(ctypes.CDLL(name), family)
        except (OSError, AttributeError) as error:
            tried.append(str(error))
    return f"the runtime ({stack.driver.by_name[-1]}) cannot be loaded: {tried[0] if tried else 'not found'}"
