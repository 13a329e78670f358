"""Kernel sources with their constants, the kernels in them, and launches that are made again and again."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from ...utils.log_lines import log
from ..device_state import STATE
from ..devices import current_device, current_stream, on
from ..kernel_errors import CompilerError, LaunchError
from .compiler import Compiler, compiler, prelude
from .driver import ELSEWHERE, Driver, driver
from .store import STORE
from .target import target_of

Grid = tuple[int, int, int]
_NONE: Final[Mapping[str, int | str]] = MappingProxyType({})
_INT32: Final = range(-(2**31), 2**31)
_SLOT: Final = 8  # bytes of an argument: no kernel takes a larger one
_ONE, _NULL = ctypes.c_uint(1), ctypes.c_void_p()


class Program:
    """A source text with constants; compiled for a device when a kernel of it is first asked for.

    Args:
        source: C++ as `prelude.h` has it, without includes. Kernels are declared `KERNEL(threads) void name(...)`.
        name: What logs and the compiler's messages call it.
        defines: Macros, by name, which the source is compiled after.
    """

    def __init__(self, source: str, name: str, defines: Mapping[str, int | str] = _NONE) -> None:
        self.name = name
        constants = "".join(f"#define {key} {value}\n" for key, value in defines.items())
        self._text = f'{constants}#line 1 "{name}"\n{source}'

    def __eq__(self, other: object) -> bool:
        """Two programs of the same text are the same."""
        return isinstance(other, Program) and self._text == other._text

    def __hash__(self) -> int:
        """Go by the text."""
        return hash(self._text)

    def text(self) -> str:
        """Return all that is compiled, for whatever target."""
        return prelude() + self._text

    def prepare(self, device: torch.device | str) -> None:
        """Compile it for a device, unless that was done before, without loading it. From any thread.

        Raises:
            CompilerError: It does not compile, or nothing compiles for the device; raised again for the same text.
        """
        _built(self, _compiler(device))

    def kernel(self, function: str, device: torch.device | str, shared_bytes: int = 0) -> Kernel:
        """Return a kernel on a device, compiled and loaded when it is first asked for.

        Args:
            function: Its name in the source.
            device: A GPU.
            shared_bytes: Dynamic shared memory of its launches.

        Raises:
            CompilerError: The program does not compile.
            LaunchError: The runtime cannot load it, or there is no such function.
        """
        number = _number(device)
        key = (self, function, number, shared_bytes)
        found = _kernels.get(key)
        if found is None:
            _built(self, _compiler(device))  # several threads compile at once; one after the other they load
            with _lock:
                found = _kernels.get(key)
                if found is None:
                    found = _kernels[key] = Kernel(self, function, number, shared_bytes)
        return found


class Kernel:
    """A kernel that is loaded on a device; made by `Program.kernel`.

    Attributes:
        local_bytes: Memory of each thread beyond registers: more than 0 means that registers were spilled.
    """

    def __init__(self, program: Program, function: str, number: int, shared_bytes: int) -> None:
        self.name, self.number = f"{program.name}:{function}", number
        self._driver, module = _loaded(program, number)
        with on(f"cuda:{number}"):
            self._function = self._driver.function(module, function)
            self._driver.allow_shared(self._function, shared_bytes)
            self.local_bytes = self._driver.local_bytes(self._function)
        self._shared = ctypes.c_uint(shared_bytes)

    def bound(self, grid: Grid, block: int, *arguments: Any) -> Launch:
        """Return a launch of it with everything but addresses settled.

        Args:
            grid: Blocks in three dimensions.
            block: Threads of a block.
            arguments: Of the kernel, in its order: None for a tensor's address and for a number that each launch gives
                by `bits_of`; int (32 bits) or float (32 bits); anything else as an object of ctypes, such as `c_int64`.

        Raises:
            OverflowError: An int does not fit.
        """
        return Launch(self._driver, self._function, self._shared, self.name, self.number, grid, block, arguments)


class Launch:
    """A launch that is made again and again: what is left of Python is one call of the runtime.

    Arguments are written to buffers that are there already; each thread takes one of its own.
    """

    __slots__ = ("_addresses", "_before", "_driver", "_free", "_launch", "_name", "_number", "_places", "_settled")

    def __init__(
        self,
        driver: Driver,
        function: ctypes.c_void_p,
        shared: ctypes.c_uint,
        name: str,
        number: int,
        grid: Grid,
        block: int,
        arguments: tuple[Any, ...],
    ) -> None:
        self._driver, self._launch = driver, driver.launch
        self._name, self._number = name, number
        blocks = (ctypes.c_uint(size) for size in grid)
        self._before = (function, *blocks, ctypes.c_uint(block), _ONE, _ONE, shared)
        # Addresses come first in a buffer, so that one instruction writes them, whatever the kernel's order is.
        pointers = [place for place, each in enumerate(arguments) if each is None]
        others = [place for place in range(len(arguments)) if place not in pointers]
        self._addresses = struct.Struct(f"={len(pointers)}Q")
        self._settled = [(slot, _scalar(arguments[place])) for slot, place in enumerate(others, len(pointers))]
        order = [*pointers, *others]
        self._places = [order.index(place) for place in range(len(arguments))]
        self._free = [self._buffer()]

    def __call__(self, *addresses: int) -> None:
        """Launch it on the current stream of its device.

        Args:
            addresses: One for each None among the arguments, in their order.

        Raises:
            LaunchError: The runtime refuses.
        """
        number = self._number
        if number != current_device():
            with torch.cuda.device(number):
                self(*addresses)
            return
        try:
            buffer, slots = self._free.pop()
        except IndexError:  # another thread launches the same
            buffer, slots = self._buffer()
        self._addresses.pack_into(buffer, 0, *addresses)
        stream = current_stream(number)
        handle = _streams.get(stream) or _streams.setdefault(stream, ctypes.c_void_p(stream))
        status = self._launch(*self._before, handle, slots, _NULL)
        if status in ELSEWHERE:  # a thread of autograd may never have set its device
            self._driver.make_current(number)
            status = self._launch(*self._before, handle, slots, _NULL)
        self._free.append((buffer, slots))
        if status:
            raise LaunchError(f"{self._name} on cuda:{number} was not launched: {self._driver.words(status)}")

    def _buffer(self) -> tuple[Any, Any]:
        buffer = ctypes.create_string_buffer(max(1, len(self._places)) * _SLOT)
        start = ctypes.addressof(buffer)
        for slot, value in self._settled:
            ctypes.memmove(start + slot * _SLOT, ctypes.byref(value), ctypes.sizeof(value))
        slots = (ctypes.c_void_p * max(1, len(self._places)))(*(start + slot * _SLOT for slot in self._places))
        return buffer, slots


def _scalar(value: Any) -> Any:
    if isinstance(value, int):
        if value not in _INT32:  # ctypes would cut it off
            raise OverflowError(f"a kernel's argument is {value}, more than 32 bits: give it as ctypes.c_int64")
        return ctypes.c_int32(value)
    return ctypes.c_float(value) if isinstance(value, float) else value


def bits_of(value: float) -> int:
    """Return a float of 32 bits as a launch takes it in the place of an address."""
    return int.from_bytes(struct.pack("=f", value), sys.byteorder)


_lock = threading.Lock()
_kernels: dict[tuple[Program, str, int, int], Kernel] = STATE.container({})
_modules: dict[tuple[Program, int], ctypes.c_void_p] = STATE.container({})
# In words alone: an exception would hold frames.
_failed: dict[tuple[Program, Compiler], str] = STATE.container({})
_streams: dict[int, ctypes.c_void_p] = STATE.container({})


def _number(device: torch.device | str) -> int:
    place = torch.device(device)
    return int(current_device()) if place.index is None else place.index


def _compiler(device: torch.device | str) -> Compiler:
    target = target_of(f"cuda:{_number(device)}")
    found = "its target is unknown" if target is None else compiler(target)
    if isinstance(found, str):
        raise CompilerError(f"nothing compiles for {device}: {found}")
    return found


def _built(program: Program, by: Compiler) -> bytes:
    failed = _failed.get((program, by))
    if failed is not None:
        raise CompilerError(failed)
    try:
        return by.build(program.text(), program.name)
    except CompilerError as error:
        _failed[program, by] = str(error)
        raise


def _loaded(program: Program, number: int) -> tuple[Driver, ctypes.c_void_p]:
    by = _compiler(f"cuda:{number}")
    runtime = driver(by.target.family)
    assert isinstance(runtime, Driver)  # or there would be no compiler
    key = (program, number)
    if key not in _modules:
        with on(f"cuda:{number}"):
            try:
                _modules[key] = runtime.load(number, _built(program, by))
            except LaunchError as error:
                object_key = by.key(program.text())
                text = "the compiled kernel %s cannot be loaded (%s): it is compiled again"
                log("hip.unloadable", text, STORE.path(object_key), error)
                STORE.drop(object_key)
                _modules[key] = runtime.load(number, _built(program, by))
    return runtime, _modules[key]
