"""A code object with one kernel, back to assembly as clang prints it, for `tools/emulator`.

LLVM's `llvm-objdump` and `llvm-readelf` read instructions and metadata. They refuse the kernel's descriptor where an
older LLVM has made it (of ROCm 5.2: bits are set that are reserved now), so its 64 bytes are taken apart here, by
"User Guide for AMDGPU Backend", Kernel Descriptor.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from typing import Final

_DESCRIPTOR_BYTES: Final = 64
# Bits of the descriptor's words, first and how many, by the directives that say the same.
_RSRC1: Final = {
    "float_round_mode_32": (12, 2), "float_round_mode_16_64": (14, 2), "float_denorm_mode_32": (16, 2),
    "float_denorm_mode_16_64": (18, 2), "fp16_overflow": (26, 1), "workgroup_processor_mode": (29, 1),
}  # fmt: skip
_RSRC2: Final = {
    "system_sgpr_private_segment_wavefront_offset": (0, 1), "user_sgpr_count": (1, 5),
    "system_sgpr_workgroup_id_x": (7, 1), "system_sgpr_workgroup_id_y": (8, 1), "system_sgpr_workgroup_id_z": (9, 1),
    "system_sgpr_workgroup_info": (10, 1), "system_vgpr_workitem_id": (11, 2),
}  # fmt: skip
_PROPERTIES: Final = {
    "user_sgpr_private_segment_buffer": (0, 1), "user_sgpr_dispatch_ptr": (1, 1), "user_sgpr_queue_ptr": (2, 1),
    "user_sgpr_kernarg_segment_ptr": (3, 1), "user_sgpr_dispatch_id": (4, 1), "user_sgpr_flat_scratch_init": (5, 1),
    "user_sgpr_private_segment_size": (6, 1), "wavefront_size32": (10, 1), "uses_dynamic_stack": (11, 1),
}  # fmt: skip


def as_assembly(code: bytes, target: str) -> str:
    """Return a code object as text.

    Args:
        code: The object, an ELF file of an RDNA target with one kernel in it.
        target: Such as `gfx1010`.

    Raises:
        OSError: LLVM's tools are not there.
        subprocess.CalledProcessError: They cannot read the object.
        ValueError: It has not just one kernel.
    """
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(code)
        file.flush()
        options = ("-d", "--symbolize-operands", "--no-show-raw-insn", "--no-leading-addr", f"--mcpu={target}")
        said = _llvm("llvm-objdump", *options, file.name)
        notes = _llvm("llvm-readelf", "--notes", file.name)
        constants = _llvm("llvm-objdump", "-s", "-j", ".rodata", file.name)
    names = re.findall(r"^\s+\.symbol:\s+'?(\w+)\.kd", notes, re.MULTILINE)
    descriptor = bytes.fromhex("".join(re.findall(r"^ [0-9a-f]+ ((?:[0-9a-f]+ ){1,4}) ", constants, re.MULTILINE)))
    if len(names) != 1 or len(descriptor) != _DESCRIPTOR_BYTES:
        raise ValueError(f"{len(names)} kernels in an object with {len(descriptor)} bytes of descriptors")
    body = re.sub(r"^<(\w+)>:", r"\1:", said[said.index(f"<{names[0]}>:") :], flags=re.MULTILINE)
    metadata = notes[notes.index("amdhsa.kernels:") :].split("\n...")[0]
    parts = (
        f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"',
        body,
        f".amdhsa_kernel {names[0]}",
        *(f".amdhsa_{name} {value}" for name, value in _directives(descriptor).items()),
        ".end_amdhsa_kernel",
        ".amdgpu_metadata",
        metadata,
        ".end_amdgpu_metadata",
    )
    return "\n".join(parts) + "\n"


def _directives(descriptor: bytes) -> dict[str, int]:
    lds, private, arguments = struct.unpack_from("<3I", descriptor)
    rsrc1, rsrc2, properties = struct.unpack_from("<2IH", descriptor, 48)
    found = {"group_segment_fixed_size": lds, "private_segment_fixed_size": private, "kernarg_size": arguments}
    for word, fields in ((rsrc1, _RSRC1), (rsrc2, _RSRC2), (properties, _PROPERTIES)):
        found |= {name: word >> first & (1 << bits) - 1 for name, (first, bits) in fields.items()}
    return found


def _llvm(tool: str, *words: str) -> str:
    found = next((path for name in (f"{tool}-19", tool) if (path := shutil.which(name))), tool)
    return subprocess.run([found, *words], capture_output=True, text=True, check=True, timeout=60).stdout
