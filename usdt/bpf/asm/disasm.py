"""eBPF instructions as text, as the verifier's log and bpftool print them.

       0: (bf) r6 = r1
       1: (85) call bpf_get_current_pid_tgid#14
       2: (18) r1 = map[events]
       4: (55) if r0 != 0x0 goto pc+2

Sources: ``kernel/bpf/disasm.c`` for the text,
``Documentation/bpf/standardization/instruction-set.rst`` for the encoding. Any bytes are
accepted: an invalid instruction is shown as its fields.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

from usdt.bpf._uapi import Helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from usdt.bpf.asm.assembler import Code

__all__ = ("disassemble", "listing")

_STRUCT = struct.Struct("=BBhi")
_LITTLE = sys.byteorder == "little"
_WIDE = 0x18
_MAP_FD, _MAP_VALUE, _FUNCTION = 1, 2, 4  # BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_PSEUDO_FUNC
_ALU = {
    0x00: "+=", 0x10: "-=", 0x20: "*=", 0x30: "/=", 0x40: "|=", 0x50: "&=", 0x60: "<<=",
    0x70: ">>=", 0x90: "%=", 0xA0: "^=", 0xB0: "=", 0xC0: "s>>=",
}  # fmt: skip
_JUMP = {
    0x10: "==", 0x20: ">", 0x30: ">=", 0x40: "&", 0x50: "!=", 0x60: "s>", 0x70: "s>=",
    0xA0: "<", 0xB0: "<=", 0xC0: "s<", 0xD0: "s<=",
}  # fmt: skip
_SIZES = {0x00: "u32", 0x08: "u16", 0x10: "u8", 0x18: "u64"}
_SIGNED = {0x00: "s32", 0x08: "s16", 0x10: "s8"}
_ATOMIC = {0x00: "+=", 0x40: "|=", 0x50: "&=", 0xA0: "^="}
_FETCH = {0x01: "add", 0x41: "or", 0x51: "and", 0xA1: "xor"}


class _Insn(NamedTuple):
    opcode: int
    dst: int
    src: int
    offset: int
    immediate: int


def listing(code: Code) -> list[str]:
    """Return assembled code as text, one line per instruction, with maps by name."""
    return list(disassemble(code.insns, {index: name for index, (name, _) in code.maps.items()}))


def disassemble(insns: bytes, maps: Mapping[int, str] | None = None) -> Iterator[str]:
    """Yield a line for each instruction of ``insns``; one with two slots has one line.

    Args:
        insns: eight bytes for each slot, in this machine's byte order; an incomplete slot at the
            end is shown as bytes.
        maps: index of the slot → name of the map that it loads.
    """
    index, end = 0, len(insns) // 8
    while index < end:
        insn = _decode(insns, index)
        slots = 1
        if insn.opcode == _WIDE and index + 1 < end:
            slots = 2
            text = _wide(insn, _decode(insns, index + 1), (maps or {}).get(index))
        else:
            text = _CLASSES[insn.opcode & 7](insn) or _unknown(insn)
        yield f"{index:4}: ({insn.opcode:02x}) {text}"
        index += slots
    if rest := insns[end * 8 :]:
        yield f"{end:4}: {rest.hex(' ')}, the beginning of an instruction"


def _decode(insns: bytes, index: int) -> _Insn:
    opcode, registers, offset, immediate = _STRUCT.unpack_from(insns, index * 8)
    low, high = registers & 15, registers >> 4
    dst, src = (low, high) if _LITTLE else (high, low)
    return _Insn(opcode, dst, src, offset, immediate)


def _unknown(insn: _Insn) -> str:
    return f"unknown: r{insn.dst} r{insn.src} {insn.offset:+d} {insn.immediate:#x}"


def _wide(insn: _Insn, second: _Insn, name: str | None) -> str:
    if name is not None:
        return f"r{insn.dst} = map[{name}]"
    if insn.src == _MAP_FD:
        return f"r{insn.dst} = map[fd:{insn.immediate}]"
    if insn.src == _FUNCTION:
        return f"r{insn.dst} = function pc{insn.immediate:+d}"
    if insn.src == _MAP_VALUE:
        return f"r{insn.dst} = map[fd:{insn.immediate}][0]{second.immediate:+d}"
    value = (second.immediate & 0xFFFFFFFF) << 32 | insn.immediate & 0xFFFFFFFF
    return f"r{insn.dst} = {value:#x}"


def _arithmetic(insn: _Insn) -> str:
    opcode, op = insn.opcode, insn.opcode & 0xF0
    letter = "r" if opcode & 7 == 7 else "w"
    dst, src = f"{letter}{insn.dst}", f"{letter}{insn.src}"
    if op == 0x80:
        return f"{dst} = -{dst}"
    if op == 0xD0:
        return _swapped(insn)
    if op not in _ALU:
        return ""
    word = _ALU[op]
    if insn.offset == 1 and op in (0x30, 0x90):
        word = f"s{word}"  # signed division, Linux 6.6
    if not opcode & 8:
        return f"{dst} {word} {insn.immediate}"
    if insn.offset in (8, 16, 32) and op == 0xB0:
        return f"{dst} = (s{insn.offset}){src}"  # sign extension, Linux 6.6
    return f"{dst} {word} {src}"


def _swapped(insn: _Insn) -> str:
    word = {0x7: "bswap", 0x4: "le", 0xC: "be"}.get(insn.opcode & 0xF, "")
    return f"r{insn.dst} = {word}{insn.immediate} r{insn.dst}" if word else ""


def _memory(insn: _Insn, base: int, kind: str) -> str:
    return f"*({kind} *)(r{base} {insn.offset:+d})"


def _load(insn: _Insn) -> str:
    size, mode = insn.opcode & 0x18, insn.opcode & 0xE0
    if mode == 0x60:
        return f"r{insn.dst} = {_memory(insn, insn.src, _SIZES[size])}"
    if mode == 0x80 and size in _SIGNED:
        return f"r{insn.dst} = {_memory(insn, insn.src, _SIGNED[size])}"
    return ""


def _store_immediate(insn: _Insn) -> str:
    if insn.opcode & 0xE0 != 0x60:
        return ""
    return f"{_memory(insn, insn.dst, _SIZES[insn.opcode & 0x18])} = {insn.immediate}"


def _store(insn: _Insn) -> str:
    kind = _SIZES[insn.opcode & 0x18]
    memory, mode = _memory(insn, insn.dst, kind), insn.opcode & 0xE0
    if mode == 0x60:
        return f"{memory} = r{insn.src}"
    if mode != 0xC0 or kind not in ("u32", "u64"):
        return ""
    letter, prefix = ("r", "atomic64") if kind == "u64" else ("w", "atomic")
    target = f"({kind} *)(r{insn.dst} {insn.offset:+d})"
    if insn.immediate in _ATOMIC:
        return f"lock {memory} {_ATOMIC[insn.immediate]} r{insn.src}"
    if insn.immediate in _FETCH:
        word = f"{prefix}_fetch_{_FETCH[insn.immediate]}"
        return f"r{insn.src} = {word}({target}, r{insn.src})"
    if insn.immediate == 0xE1:
        return f"r{insn.src} = {prefix}_xchg({target}, r{insn.src})"
    if insn.immediate == 0xF1:
        return f"{letter}0 = {prefix}_cmpxchg({target}, r0, r{insn.src})"
    return ""


def _jump(insn: _Insn) -> str:
    opcode, op = insn.opcode, insn.opcode & 0xF0
    narrow = opcode & 7 == 6
    if op == 0x00:
        return f"goto pc{insn.immediate:+d}" if narrow else f"goto pc{insn.offset:+d}"
    if op == 0x80 and not narrow:
        return _call(insn)
    if op == 0x90 and not narrow:
        return "exit"
    if op not in _JUMP:
        return ""
    letter = "w" if narrow else "r"
    right = f"{letter}{insn.src}" if opcode & 8 else f"{insn.immediate & 0xFFFFFFFF:#x}"
    return f"if {letter}{insn.dst} {_JUMP[op]} {right} goto pc{insn.offset:+d}"


def _call(insn: _Insn) -> str:
    if insn.src == 1:
        return f"call pc{insn.immediate:+d}"
    if insn.src:
        return f"call kernel-function#{insn.immediate}"
    try:
        name = f"bpf_{Helper(insn.immediate).name.lower()}"
    except ValueError:
        name = "unknown"
    return f"call {name}#{insn.immediate}"


def _nothing(_insn: _Insn) -> str:
    return ""  # BPF_LD except the wide load: packet access


_CLASSES: tuple[Callable[[_Insn], str], ...] = (
    _nothing, _load, _store_immediate, _store, _arithmetic, _jump, _jump, _arithmetic,
)  # fmt: skip
