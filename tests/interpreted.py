"""Triton's interpreter in this process, for as long as a test module wants it: kernels run in Python, on a CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KERNEL_MODULES = (
    *(f"yolo_rocm.conv.kernels.{name}" for name in ("implicit_gemm", "grad_weight", "depthwise")),
    *(f"yolo_rocm.norm.kernels.{name}" for name in ("values", "statistics", "activation")),
)


@contextmanager
def interpreter() -> Iterator[None]:
    """Interpret the Triton kernels; afterwards everything is as it was."""
    import triton.language as tl
    from triton.runtime import interpreter as runtime
    from triton.runtime.jit import JITFunction

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
    patch_tensor = runtime._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        # Triton 3.6 converts arrays of one element by int(), which NumPy 2.4 refuses.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    runtime._patch_lang_tensor = patch_tensor_and_index
    for module, name, function in compiled:
        setattr(module, name, swapped[function])
    _forget()
    try:
        assert isinstance(tl.cdiv, runtime.InterpretedFunction)
        yield
    finally:
        for module, name, function in compiled:
            setattr(module, name, function)
        runtime._patch_lang_tensor = patch_tensor
        del os.environ["TRITON_INTERPRET"]
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before
        _forget()


def _forget() -> None:
    """Forget what the package has found out about devices, launches and kernels, and the kernels themselves."""
    from yolo_rocm.conv.algorithms import triton_common
    from yolo_rocm.engines import qualification
    from yolo_rocm.engines.triton import available, launch, quarantine
    from yolo_rocm.norm.algorithms import triton_passes

    for value in vars(available).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    launch.forget()
    quarantine.forget()
    qualification.forget()
    triton_common._splits.clear()
    triton_passes.forget()
    for name in KERNEL_MODULES:
        sys.modules.pop(name, None)
