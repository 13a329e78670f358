"""Triton's interpreter in this process, for as long as a test module wants it: kernels run in Python, on a CPU."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest


@contextmanager
def interpreter() -> Iterator[None]:
    """Interpret the Triton kernels; afterwards everything is as it was."""
    # At its first import this keeps functions of the language as it finds them.
    importlib.import_module("triton.compiler.code_generator")
    import triton.language as tl
    from triton.runtime import interpreter as runtime
    from triton.runtime.jit import JITFunction

    if not hasattr(runtime, "_LangPatchScope"):
        pytest.skip("this Triton does not take back what its interpreter changes")
    # A function is decorated for the compiler or for the interpreter when its module is imported. torch's own samples
    # import Triton, so its library has been decorated for the compiler; ours is imported again, on both sides.
    library = [module for name, module in sys.modules.items() if name.startswith("triton.language")]
    compiled = [
        (module, name, value)
        for module in library
        for name, value in vars(module).items()
        if isinstance(value, JITFunction)
    ]
    swapped = {function: runtime.InterpretedFunction(function.fn) for _, _, function in compiled}
    patch_language = runtime._patch_lang

    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    for module, name, function in compiled:
        setattr(module, name, swapped[function])
    # Triton patches its language for each launch and again for each call of a function by a kernel, and of those calls
    # it takes nothing back: `tl.core` would compile nothing afterwards. Here it is done once, and undone.
    patched = patch_language(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # Triton 3.6 converts arrays of one element by int(), which NumPy 2.4 refuses.
    patched.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))
    runtime._patch_lang = lambda function: runtime._LangPatchScope()
    _forget()
    try:
        assert isinstance(tl.cdiv, runtime.InterpretedFunction)
        yield
    finally:
        runtime._patch_lang = patch_language
        patched.restore()
        for module, name, function in compiled:
            setattr(module, name, function)
        del os.environ["TRITON_INTERPRET"]
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before
        _forget()


def _forget() -> None:
    """Forget what the package has found out about devices, launches and kernels, and the kernels themselves."""
    from triton.runtime.jit import KernelInterface

    from yolo_rocm.engines.device_state import STATE

    STATE.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("yolo_rocm.") and any(isinstance(value, KernelInterface) for value in vars(module).values()):
            del sys.modules[name]
