"""A few instructions as a kernel: registers are set before them and stored after them, for any target.

Instructions are written as gfx11 spells them; `SPELLED` has what other generations call the same. `{vcc}`, `{exec}` and
`{mask}` stand for a lane mask, which is one register or two, `{wait}` for a wait until memory has answered. `v250` is
four times the lane, and `s[10:11]` the address at which results are going to be stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.emulator import Memory, Program, launch

Array = np.ndarray[Any, Any]
# A register's value in every lane, or in each of the first lanes.
Value = int | Sequence[int]

GCN: Final = ("gfx90a", "gfx942")
RDNA12: Final = ("gfx1010", "gfx1030")
RDNA34: Final = ("gfx1100", "gfx1151", "gfx1201")
RDNA: Final = RDNA12 + RDNA34
EVERY: Final = GCN + RDNA

_UP_TO_10: Final = {
    "s_and_not1_b32": "s_andn2_b32",
    "s_and_not1_b64": "s_andn2_b64",
    "s_ctz_i32_b64": "s_ff1_i32_b64",
    "s_or_not1_b32": "s_orn2_b32",
    "s_or_not1_b64": "s_orn2_b64",
    "s_and_not1_saveexec_b32": "s_andn2_saveexec_b32",
    "s_and_not1_saveexec_b64": "s_andn2_saveexec_b64",
    "s_clz_i32_u32": "s_flbit_i32_b32",
    "s_ctz_i32_b32": "s_ff1_i32_b32",
    "s_cls_i32": "s_flbit_i32",
    "v_clz_i32_u32_e32": "v_ffbh_u32_e32",
    "v_ctz_i32_b32_e32": "v_ffbl_b32_e32",
    "v_cls_i32_e32": "v_ffbh_i32_e32",
    "v_cvt_pk_rtz_f16_f32_e64": "v_cvt_pkrtz_f16_f32_e64",
    "v_cvt_nearest_i32_f32_e32": "v_cvt_rpi_i32_f32_e32",
    "v_cvt_floor_i32_f32_e32": "v_cvt_flr_i32_f32_e32",
    "ds_load_b32": "ds_read_b32",
    "ds_load_u8": "ds_read_u8",
    "ds_load_i8": "ds_read_i8",
    "ds_load_u16_d16_hi": "ds_read_u16_d16_hi",
    "ds_load_2addr_b32": "ds_read2_b32",
    "ds_load_2addr_stride64_b32": "ds_read2st64_b32",
    "ds_load_2addr_b64": "ds_read2_b64",
    "ds_load_2addr_stride64_b64": "ds_read2st64_b64",
    "ds_load_b64": "ds_read_b64",
    "ds_store_2addr_b64": "ds_write2_b64",
    "ds_store_2addr_stride64_b64": "ds_write2st64_b64",
    "global_store_d16_hi_b16": "global_store_short_d16_hi",
    "global_atomic_cmpswap_b32": "global_atomic_cmpswap",
    "global_load_d16_hi_b16": "global_load_short_d16_hi",
    "ds_store_b32": "ds_write_b32",
    "ds_store_b16": "ds_write_b16",
    "ds_store_b16_d16_hi": "ds_write_b16_d16_hi",
    "ds_store_b64": "ds_write_b64",
    "ds_store_2addr_b32": "ds_write2_b32",
    "ds_store_2addr_stride64_b32": "ds_write2st64_b32",
    "global_load_b32": "global_load_dword",
    "global_store_b32": "global_store_dword",
    "s_load_b128": "s_load_dwordx4",
}
SPELLED: Final = {
    9: _UP_TO_10
    | {
        "v_mul_legacy_f32_e64": "v_mul_legacy_f32",
        "v_add_nc_u32_e32": "v_add_u32_e32",
        "v_add_nc_u32_e64": "v_add_u32_e64",
        "v_sub_nc_u32_e32": "v_sub_u32_e32",
        "v_sub_nc_u32_e64": "v_sub_u32_e64",
        "v_subrev_nc_u32_e32": "v_subrev_u32_e32",
        "v_add_nc_i32": "v_add_i32",
        "v_sub_nc_i32": "v_sub_i32",
        "v_add_co_u32": "v_add_co_u32_e64",
        "v_sub_co_u32": "v_sub_co_u32_e64",
        "v_subrev_co_u32": "v_subrev_co_u32_e64",
        "v_add_co_ci_u32_e32": "v_addc_co_u32_e32",
        "v_sub_co_ci_u32_e32": "v_subb_co_u32_e32",
        "v_subrev_co_ci_u32_e32": "v_subbrev_co_u32_e32",
        "v_max_u16": "v_max_u16_e32",
        "v_max_i16": "v_max_i16_e32",
        "v_min_u16": "v_min_u16_e32",
        "v_min_i16": "v_min_i16_e32",
        "v_lshlrev_b16": "v_lshlrev_b16_e32",
        "v_add_nc_u16": "v_add_u16_e32",
        "v_mul_lo_u16": "v_mul_lo_u16_e32",
        "v_lshrrev_b16": "v_lshrrev_b16_e32",
        "v_ashrrev_i16": "v_ashrrev_i16_e32",
    },
    10: _UP_TO_10,
    11: {"v_mul_legacy_f32_e64": "v_mul_dx9_zero_f32_e64"},
    12: {
        "s_add_u32": "s_add_co_u32",
        "s_addc_u32": "s_add_co_ci_u32",
        "s_sub_u32": "s_sub_co_u32",
        "s_subb_u32": "s_sub_co_ci_u32",
        "s_add_i32": "s_add_co_i32",
        "s_sub_i32": "s_sub_co_i32",
        "s_addk_i32": "s_addk_co_i32",
        "v_mad_u64_u32": "v_mad_co_u64_u32",
        "v_mad_i64_i32": "v_mad_co_i64_i32",
        "v_min_f32_e32": "v_min_num_f32_e32",
        "v_max_f32_e32": "v_max_num_f32_e32",
        "v_mul_legacy_f32_e64": "v_mul_dx9_zero_f32_e64",
        "v_max_f16_e32": "v_max_num_f16_e32",
        "v_min_f16_e32": "v_min_num_f16_e32",
        "v_max3_f16": "v_max3_num_f16",
        "v_min3_f16": "v_min3_num_f16",
        "v_med3_f16": "v_med3_num_f16",
        "v_maxmin_f32": "v_maxmin_num_f32",
        "v_maxmin_f16": "v_maxmin_num_f16",
        "v_minmax_f16": "v_minmax_num_f16",
        "v_max_f64": "v_max_num_f64_e32",
        "v_min_f64": "v_min_num_f64_e32",
        "v_min3_f32": "v_min3_num_f32",
        "v_max3_f32": "v_max3_num_f32",
        "v_med3_f32": "v_med3_num_f32",
        "v_pk_max_f16": "v_pk_max_num_f16",
        "v_pk_min_f16": "v_pk_min_num_f16",
        "v_add_f64": "v_add_f64_e32",
        "v_mul_f64": "v_mul_f64_e32",
        "v_lshlrev_b64": "v_lshlrev_b64_e32",
    },
}
_METADATA: Final = """
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - {.address_space: global, .offset: 0, .size: 8, .value_kind: global_buffer}
      - {.address_space: global, .offset: 8, .size: 8, .value_kind: global_buffer}
    .group_segment_fixed_size: 4096
    .kernarg_segment_align: 8
    .kernarg_segment_size: 16
    .max_flat_workgroup_size: 64
    .name: single
    .private_segment_fixed_size: 0
    .sgpr_count: 100
    .symbol: single.kd
    .vgpr_count: 256
    .wavefront_size: WAVE
amdhsa.target: amdgcn-amd-amdhsa--TARGET
amdhsa.version: [1, 2]
...
	.end_amdgpu_metadata
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel's text, its instructions alone, what it reads per group, and which 32-bit registers it stores."""

    text: str
    code: str
    loaded: tuple[str, ...]
    stored: tuple[str, ...]
    wave: int
    target: str


def generation(target: str) -> int:
    """Return 9 for CDNA, 10 to 12 for RDNA."""
    return int(target[3:-2])


def words(registers: str) -> list[str]:
    """Return a register, or each of a range such as `v[4:5]`."""
    found = re.fullmatch(r"([vsa])\[(\d+):(\d+)\]", registers)
    if not found:
        return [registers]
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]


def kernel(target: str, body: str, given: Mapping[str, Value], stored: Sequence[str]) -> Kernel:
    """Return a kernel that sets `given`, runs `body` and stores registers."""
    made, wave = generation(target), 32 if target.startswith("gfx1") else 64
    spelled = SPELLED[made]
    loaded = tuple(name for name, value in given.items() if not isinstance(value, int))
    lines = ["s_load_b128 s[8:11], s[0:1], 0x0", "v_lshlrev_b32_e32 v250, 2, v0", "{wait}"]
    group = "ttmp9" if made == 12 else "s2"
    for pointer, count in ((8, len(loaded)), (10, len(stored))):
        lines += [f"s_mul_i32 s12, {group}, {4 * wave * count:#x}", *_moved(pointer, "s12")]
    for name in loaded:
        lines += [f"global_load_b32 {name}, v250, s[8:9]", *_moved(8, hex(4 * wave))]
    lines.append("{wait}")
    for name, value in given.items():
        if isinstance(value, int) and name not in ("scc", "exec", "vcc"):
            kind = "v_mov_b32_e32" if name.startswith("v") else "s_mov_b32"
            lines.append(f"{kind} {name}, {value:#x}")
    for name in ("vcc", "exec"):
        mask = given.get(name)
        if isinstance(mask, int):
            lines += [f"s_mov_b32 {name}_lo, {mask & 0xFFFFFFFF:#x}"]
            lines += [f"s_mov_b32 {name}_hi, {mask >> 32:#x}"] if wave == 64 else []
    if "scc" in given:
        lines.append(f"s_cmp_eq_u32 0, {0 if given['scc'] else 1}")
    lines += [line.strip() for line in body.strip().splitlines()]
    lines += ["s_cselect_b32 s60, 1, 0"] if "scc" in stored else []
    for name in ("vcc_lo", "vcc_hi", "exec_lo", "exec_hi"):
        lines += [f"s_mov_b32 {_PLACES[name]}, {name}"] if name in stored else []
    lines += ["s_mov_b32 exec_lo, -1", *(["s_mov_b32 exec_hi, -1"] if wave == 64 else []), "{wait}"]
    for name in stored:
        source = name
        if not name.startswith("v") or name in _PLACES:
            source = "v251"
            lines.append(f"v_mov_b32_e32 v251, {_PLACES.get(name, name)}")
        lines += [f"global_store_b32 v250, {source}, s[10:11]", *_moved(10, hex(4 * wave))]
    lines.append("s_endpgm")
    code = "\n".join("\t" + _spell(line, spelled) for line in lines)
    wait = _WAITS[made].replace(";", "\n\t")
    mask = {"vcc": "vcc_lo", "exec": "exec_lo", "mask": "s30"}
    if wave == 64:
        mask = {"vcc": "vcc", "exec": "exec", "mask": "s[30:31]"}
    for name, word in {**mask, "wait": wait}.items():
        code = code.replace(f"{{{name}}}", word)
    return Kernel(_module(target, code, wave), code, loaded, tuple(stored), wave, target)


def run(made: Kernel, given: Array, groups: int) -> Array:
    """Run a kernel; `given` is groups x registers x lanes, and so is what it returns."""
    memory = Memory()
    source = memory.add("given", np.ascontiguousarray(given, np.uint32).ravel())
    result = memory.add("result", np.zeros(groups * len(made.stored) * made.wave, np.uint32))
    program = Program.parse(made.text, "single")
    launch(program, memory, [source, result], grid=(groups, 1, 1), threads=made.wave)
    after: Array = memory.contents(result, np.uint32)
    return after.reshape(groups, len(made.stored), made.wave)


# Until loads, stores and scalar loads are done.
_WAITS: Final = {
    9: "s_waitcnt vmcnt(0) lgkmcnt(0)",
    10: "s_waitcnt vmcnt(0) lgkmcnt(0);s_waitcnt_vscnt null, 0x0",
    11: "s_waitcnt vmcnt(0) lgkmcnt(0);s_waitcnt_vscnt null, 0x0",
    12: "s_wait_loadcnt_dscnt 0x0;s_wait_kmcnt 0x0;s_wait_storecnt 0x0",
}
_PLACES: Final = {"scc": "s60", "vcc_lo": "s61", "vcc_hi": "s62", "exec_lo": "s63", "exec_hi": "s64"}


def _moved(pointer: int, by: str) -> list[str]:
    return [f"s_add_u32 s{pointer}, s{pointer}, {by}", f"s_addc_u32 s{pointer + 1}, s{pointer + 1}, 0"]


def _spell(line: str, spelled: Mapping[str, str]) -> str:
    mnemonic, space, rest = line.partition(" ")
    return spelled.get(mnemonic, mnemonic) + space + rest


def _module(target: str, code: str, wave: int) -> str:
    made = generation(target)
    more = {} if made == 9 else {"wavefront_size32": int(wave == 32)}
    more |= {"dx10_clamp": 1, "ieee_mode": 1} if made < 12 else {}
    more |= {"accum_offset": 256} if made == 9 else {}
    descriptor = {
        "group_segment_fixed_size": 4096,
        "private_segment_fixed_size": 0,
        "kernarg_size": 16,
        "user_sgpr_count": 2,
        "user_sgpr_kernarg_segment_ptr": 1,
        "system_sgpr_workgroup_id_x": 1,
        "system_sgpr_workgroup_id_y": 0,
        "system_sgpr_workgroup_id_z": 0,
        "system_vgpr_workitem_id": 0,
        "next_free_vgpr": 256,
        "next_free_sgpr": 100,
        "float_round_mode_32": 0,
        "float_round_mode_16_64": 0,
        "float_denorm_mode_32": 3,
        "float_denorm_mode_16_64": 3,
        **more,
    }
    directives = "\n".join(f"\t\t.amdhsa_{name} {value}" for name, value in descriptor.items())
    metadata = _METADATA.replace("TARGET", target).replace("WAVE", str(wave))
    return (
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"\n\t.amdhsa_code_object_version 5\n\t.text\nsingle:\n{code}\n'
        f"\t.section .rodata\n\t.amdhsa_kernel single\n{directives}\n\t.end_amdhsa_kernel\n\t.text\n{metadata}"
    )
