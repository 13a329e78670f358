"""Assembly text as LLVM prints it, parsed: instructions, labels, the kernel's descriptor and its arguments.

Only the text is read, no encoding: what the assembler does with it is LLVM's affair and is tested there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from .errors import UnknownInstruction

# `v_add_f32_e32` and its longer encodings compute the same; the last part says how the operands are fetched.
_ENCODINGS: Final = ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa")
# The descriptor's word for how many registers are filled with arguments.
PRELOADED: Final = "user_sgpr_kernarg_preload_length"
_LABEL: Final = re.compile(r"^([.\w$]+):$")
# Commas inside brackets and parentheses do not separate operands.
_COMMA: Final = re.compile(r",\s*(?![^\[(]*[\])])")
_FLAGS: Final = frozenset((
    "glc", "slc", "dlc", "nt", "sc0", "sc1", "offen", "idxen", "clamp",
))  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """One line of assembly.

    Attributes:
        name: Mnemonic without its encoding.
        encoding: `e32`, `e64`, `dpp`, `sdwa` or nothing, as printed.
        operands: As printed, without modifiers.
        modifiers: `offset:16` and `glc` as `{"offset": "16", "glc": ""}`.
        line: Number of the line in the text, from 1.
        text: The line itself.
        pair: The two halves of a VOPD instruction, which issue together.
    """

    name: str
    encoding: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    line: int
    text: str
    pair: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class Argument:
    """Where an argument lies in the kernel's argument segment, and what it is."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Program:
    """A kernel: its instructions and what its descriptor says.

    Attributes:
        name: Of the kernel.
        target: Such as `gfx1100`.
        instructions: In the order of the text.
        labels: Index of the instruction that follows each label.
        descriptor: `.amdhsa_*` directives by name.
        arguments: From the metadata.
        preloaded_entry: Index of the instruction where firmware enters that has put the first arguments into registers;
            None where there is one entry alone. What is before it loads them for other firmware.
    """

    name: str
    target: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    descriptor: dict[str, int]
    arguments: tuple[Argument, ...] = field(default=())
    preloaded_entry: int | None = None

    @classmethod
    def parse(cls, text: str) -> Program:
        """Read the kernel of a module from its text.

        Raises:
            ValueError: The text has not just one kernel, or names no target.
        """
        names = re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.MULTILINE)
        if len(names) != 1:
            raise ValueError(f"the text has {len(names)} kernels: {', '.join(names)}")
        (name,) = names
        target = re.search(r'\.amdgcn_target\s+"[^"]*--(gfx\w+)', text)
        if target is None:
            raise ValueError("the text names no target (.amdgcn_target)")
        instructions, labels, aligned = _body(text, name)
        descriptor = _descriptor(text, name)
        entry = _preloaded_entry(instructions, aligned) if descriptor.get(PRELOADED) else None
        return cls(name, target[1], instructions, labels, descriptor, _arguments(text, name), entry)

    @property
    def wave_size(self) -> int:
        """Lanes of a wave."""
        # Targets of GCN and CDNA have 64 and no such directive.
        return 32 if self.descriptor.get("wavefront_size32") else 64

    @property
    def generation(self) -> int:
        """9 for GCN 5 and CDNA, 10 to 12 for RDNA."""
        return int(self.target[3:-2])

    @property
    def keeps_halves(self) -> bool:
        """Whether a load into half a register leaves the other half as it is.

        With ECC such loads "write the full 32-bit VGPR. Unused bits are set to zero" (CDNA3 ISA, 9.1.6), and these
        cards have it.
        """
        return self.target not in ("gfx908", "gfx90a", "gfx942", "gfx950")


def _body(text: str, name: str) -> tuple[tuple[Instruction, ...], dict[str, int], list[int]]:
    """Return a kernel's instructions, its labels, and which instructions are aligned to 256 bytes."""
    instructions: list[Instruction] = []
    aligned: list[int] = []
    labels: dict[str, int] = {}
    inside = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.split(r";|//", raw, maxsplit=1)[0].strip()
        if not inside:
            inside = line == f"{name}:"
            continue
        if line.startswith((".section", ".amdhsa_kernel", ".end_amdhsa_kernel")) or line == ".text":
            break
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif re.fullmatch(r"\.p2align\s+8", line):
            aligned.append(len(instructions))
        elif line and not line.startswith("."):
            instructions.append(instruction(line, number))
    return tuple(instructions), labels, aligned


def _preloaded_entry(instructions: tuple[Instruction, ...], aligned: list[int]) -> int:
    """Return where firmware enters that loads arguments itself: 256 bytes after the first instruction.

    LLVM, "User Guide for AMDGPU Backend", Preloaded Kernel Arguments.

    Raises:
        UnknownInstruction: What is before it may be longer, or something else than loads.
    """
    entry = next((index for index in aligned if index), 0)
    before = instructions[:entry]
    # A load has 8 bytes, the others 4.
    known = all(each.name.startswith(("s_load_", "s_waitcnt", "s_branch")) for each in before)
    if not before or not known or 8 * len(before) > 256:
        raise UnknownInstruction("a kernel with preloaded arguments, and no entry for them after 256 bytes")
    return entry


def instruction(line: str, number: int = 0) -> Instruction:
    """Parse one line, without its comment."""
    if "::" in line:
        halves = tuple(instruction(half.strip().replace("v_dual_", "v_"), number) for half in line.split("::"))
        return Instruction("vopd", "", (), {}, number, line, halves)
    mnemonic, _, rest = line.replace("\t", " ").partition(" ")
    encoding = next((ending for ending in _ENCODINGS if mnemonic.endswith(ending)), "")
    operands, modifiers = _operands(rest.strip())
    name = mnemonic.removesuffix(encoding)
    return Instruction(name, encoding[1:], tuple(operands), modifiers, number, line)


def _operands(text: str) -> tuple[list[str], dict[str, str]]:
    operands: list[str] = []
    modifiers: dict[str, str] = {}
    for part in _COMMA.split(text) if text else []:
        # Modifiers follow the last operand, separated by blanks; so do the counters of s_waitcnt.
        words = re.findall(r"[^\s\[(]+(?:\[[^\]]*\]|\([^)]*\))?\|?", part)
        for position, word in enumerate(words):
            key, colon, value = word.partition(":")
            if colon and not re.match(r"[-|]*(?:sext\(|neg\(|abs\()?[vsa]\[|[-|]*(ttmp)\[", word):
                modifiers[key] = value
            elif word in _FLAGS:
                modifiers[word] = ""
            elif position == 0 or word.endswith(")"):
                operands.append(word)
            elif word not in ("&", "|"):
                raise UnknownInstruction(f"cannot read {word!r} in the operands {text!r}")
    return operands, modifiers


def _descriptor(text: str, name: str) -> dict[str, int]:
    found = re.search(rf"\.amdhsa_kernel\s+{re.escape(name)}\s(.*?)\.end_amdhsa_kernel", text, re.DOTALL)
    pairs = re.findall(r"\.amdhsa_(\w+)\s+(-?\w+)\s*$", found[1] if found else "", re.MULTILINE)
    return {key: int(value, 0) for key, value in pairs if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", value)}


def _arguments(text: str, name: str) -> tuple[Argument, ...]:
    found = re.search(r"\.amdgpu_metadata\s*\n(.*?)\s*\.end_amdgpu_metadata", text, re.DOTALL)
    metadata: Any = yaml.safe_load(found[1]) if found else {}
    for kernel in metadata.get("amdhsa.kernels", ()):
        if kernel[".name"] == name:
            return tuple(Argument(a[".offset"], a[".size"], a[".value_kind"]) for a in kernel.get(".args", ()))
    return ()
