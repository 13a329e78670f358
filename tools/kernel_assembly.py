"""Compile a Triton kernel for an AMD GPU in this process, and read from the assembly what it needs.

Where LLVM cannot select an instruction it aborts, it does not raise: `tools/compile_kernels.py` takes child processes.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import torch

from tools.kernel import Kernel
from yolo_rocm.engines.triton.available import MFMA, amd_family
from yolo_rocm.engines.triton.buffers import broken_on, without_broken_buffers
from yolo_rocm.engines.triton.launch import kernel_of

_TYPE_NAMES: Final = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64",
    torch.uint8: "*u8",
}  # fmt: skip
# People run code for the one on cards that are the other, through `HSA_OVERRIDE_GFX_VERSION`.
OVERRIDES: Final = {"gfx1030": "gfx1010"}
# What multiplies: a kernel that has none of these is not what it was meant to be.
_MULTIPLIERS: Final = ("v_mfma", "v_wmma", "v_dot2", "v_dual_fmac", "v_fmac", "v_fma", "v_pk_fma")


def assembly(kernel: Kernel, target: str) -> tuple[str, int]:
    """Compile one kernel for a target in this process; return its assembly and the bytes of shared memory it takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = kernel_of(kernel.call)
    signature, constants, attributes = specialised(function, kernel, target)
    with without_broken_buffers(target):
        compiled = triton.compile(
            ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes),
            target=GPUTarget("hip", target, 64 if amd_family(target) == MFMA else 32),
            options={"num_warps": kernel.call.warps, "num_stages": kernel.call.stages},
        )
    return str(compiled.asm["amdgcn"]), int(compiled.metadata.shared)


def multiplier(text: str) -> str:
    """Name the instructions a kernel multiplies by, most frequent first."""
    found = Counter(
        next(kind for kind in _MULTIPLIERS if name.startswith(kind))
        for name in re.findall(r"^\s+(v_\w+)", text, re.MULTILINE)
        if name.startswith(_MULTIPLIERS)
    )
    return " ".join(name for name, _ in found.most_common())


def specialised(function: Any, kernel: Kernel, target: str) -> tuple[dict[str, str], dict[str, Any], dict[Any, Any]]:
    """Return signature, constants and attributes as Triton's own launch finds them for these arguments."""
    names = function.arg_names
    constants: dict[str, Any] = dict(kernel.call.constants)
    signature: dict[str, str] = {}
    attributes: dict[Any, Any] = {}
    values = dict(zip(names[len(kernel.types) :], kernel.call.numbers, strict=False))
    plain = {name for name, parameter in zip(names, function.params, strict=True) if parameter.do_not_specialize}
    for index, name in enumerate(names):
        if index < len(kernel.types):
            signature[name] = _TYPE_NAMES[kernel.types[index]]
            attributes[(index,)] = [["tt.divisibility", 16]]
            if not broken_on(target):
                # A tensor below 2 GiB is read through a buffer descriptor with offsets of 32 bits.
                attributes[(index,)].append(["tt.pointer_range", 32])
        elif name in constants:
            signature[name] = "constexpr"
        elif isinstance(values[name], float):
            signature[name] = "fp32"
        elif values[name] == 1 and name not in plain:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if values[name] % 16 == 0 and name not in plain:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def needs(text: str, shared: int, target: str) -> dict[str, Any]:
    """Return what the assembly says, as columns of `tools/compile_kernels.py`."""
    return {
        "registers": _number(r"\.vgpr_count:\s+(\d+)", text),
        "spills": _number(r"\.vgpr_spill_count:\s+(\d+)", text),
        "scalar_spills": _number(r"\.sgpr_spill_count:\s+(\d+)", text),
        "occupancy": _number(r"; Occupancy:\s+(\d+)", text),
        "lds_bytes": shared,
        "multiplies_by": multiplier(text),
        "also_legal_on": _legal_on(text, target),
    }


def assembles_for(text: str, written_for: str, target: str) -> str | None:
    """Say why assembly written for one target is not legal on another, None where it is."""
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    try:
        made = amd.assemble_amdgcn(text.replace(written_for, target), target, "")
    except Exception as error:  # whatever the assembler raises is the answer
        return str(error)
    # It prints what is wrong and returns nothing.
    return None if made else f"the assembler refuses it for {target}"


def _legal_on(text: str, target: str) -> str:
    other = OVERRIDES.get(target)
    return "" if other is None or assembles_for(text, target, other) is not None else other


def _number(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text)[:1])
