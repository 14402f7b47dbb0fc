"""Code that finds the file of an address whose mapping is not known yet, and its unwind table.

A program that has just started, forked, or loaded a library has mappings that user space has not
seen. The kernel knows them (``bpf_find_vma``): the file's device and inode lead to its table, if
another process had it mapped, or the command that is traced needs it.

    FILES    hash: device (u64), inode (u64) → :data:`FILE`

Registers: r6 state; of the function: r1 task, r2 mapping, r3 address of the state's address.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R8, R10, Alu, Jump
from usdt.bpf.features import have_vmlinux_btf
from usdt.engine.walks.walk_state import CACHED, FILE_KEY, FOUND

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.btf.reader import Btf

__all__ = ("FILE", "FILES", "KernelFields", "emit_find_file", "file_key", "kernel_fields")

FILES = "unwind.files"
FILE = struct.Struct("=QII")  # file offset 0 has this row address, negated; first row; rows
_MINOR_BITS = 20  # of the kernel's device numbers
_EXECUTABLE = 4  # VM_EXEC
_PAGE_SHIFT = 12
_FUNCTION = "file of a mapping"


@frozen
class KernelFields:
    """Offsets of fields of the kernel's structures."""

    mm: int
    vm_start: int
    vm_end: int
    vm_flags: int
    vm_pgoff: int
    vm_file: int
    f_inode: int
    i_ino: int
    i_sb: int
    s_dev: int


_OF = {
    "task_struct": ("mm",),
    "vm_area_struct": ("vm_start", "vm_end", "vm_flags", "vm_pgoff", "vm_file"),
    "file": ("f_inode",),
    "inode": ("i_ino", "i_sb"),
    "super_block": ("s_dev",),
}


@functools.cache
def kernel_fields() -> KernelFields | None:
    """Return the offsets in the running kernel; None if it does not describe them."""
    if not have_vmlinux_btf():
        return None
    from usdt.btf.format import Kind  # noqa: PLC0415 - only for stacks
    from usdt.btf.reader import Btf  # noqa: PLC0415

    btf = Btf.from_sysfs()
    found: dict[str, int] = {}
    for structure, names in _OF.items():
        for number in btf.find(structure, Kind.STRUCT)[:1]:
            offsets = dict(_members(btf, number))
            found.update((name, offsets[name]) for name in names if name in offsets)
    complete = len(found) == sum(map(len, _OF.values()))
    return KernelFields(**found) if complete else None


def _members(btf: Btf, number: int, base: int = 0) -> list[tuple[str, int]]:
    # The members of a structure and of anonymous ones in it, with their offsets in bytes.
    from usdt.btf.types import Composite  # noqa: PLC0415

    found: list[tuple[str, int]] = []
    composite = btf.type(number)
    for member in composite.members if isinstance(composite, Composite) else ():
        offset = base + member.bit_offset // 8
        if member.name:
            found.append((member.name, offset))
        else:
            found += _members(btf, member.type_id, offset)
    return found


def emit_find_file(asm: Assembler, fields: KernelFields, missing: str) -> None:
    """Emit code that describes the mapping of the address in r7 at ``CACHED``.

    Args:
        asm: the assembler.
        fields: offsets in the kernel's structures.
        missing: label to jump to if there is no such mapping, or its table is not known.
    """
    asm.function(_FUNCTION, lambda at: _describe(at, fields))
    asm.store(R6, FOUND, 0)
    asm.store(R10, -8, R6)
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    asm.mov(R1, R0)
    asm.mov(R2, R7)
    asm.load_function(R3, _FUNCTION)
    asm.mov(R4, R10)
    asm.add(R4, -8)
    asm.mov(R5, 0)
    asm.call(Helper.FIND_VMA)
    asm.load(R1, R6, FOUND)
    asm.jump(Jump.EQ, R1, 0, missing)


def _describe(asm: Assembler, fields: KernelFields) -> None:
    # The function that is called with the mapping.
    no = asm.new_label("no")
    asm.load(R6, R3, 0)
    asm.mov(R8, R2)
    asm.load(R1, R8, fields.vm_flags)
    asm.alu(Alu.AND, R1, _EXECUTABLE)
    asm.jump(Jump.EQ, R1, 0, no)
    asm.load(R1, R8, fields.vm_start)
    asm.store(R6, CACHED, R1)
    asm.load(R1, R8, fields.vm_end)
    asm.store(R6, CACHED + 8, R1)
    asm.load(R1, R8, fields.vm_file)
    asm.jump(Jump.EQ, R1, 0, no)
    asm.load(R1, R1, fields.f_inode)
    asm.load(R2, R1, fields.i_ino)
    asm.store(R6, FILE_KEY + 8, R2)
    asm.load(R1, R1, fields.i_sb)
    asm.load(R1, R1, fields.s_dev, 4)
    asm.store(R6, FILE_KEY, R1)
    asm.load_map(R1, FILES)
    asm.mov(R2, R6)
    asm.add(R2, FILE_KEY)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, no)
    asm.load(R1, R0, 8)  # the first row and their number
    asm.store(R6, CACHED + 24, R1)
    asm.load(R2, R0, 0)
    asm.load(R1, R8, fields.vm_start)
    asm.add(R2, R1)
    asm.load(R1, R8, fields.vm_pgoff)
    asm.alu(Alu.LSH, R1, _PAGE_SHIFT)
    asm.alu(Alu.SUB, R2, R1)
    asm.store(R6, CACHED + 16, R2)
    asm.store(R6, FOUND, 1)
    asm.mov(R0, 0)
    asm.exit()
    asm.label(no)
    asm.store(R6, CACHED, 0)
    asm.store(R6, CACHED + 8, 0)
    asm.mov(R0, 0)
    asm.exit()


def file_key(device: tuple[int, int], inode: int) -> bytes:
    """Return the key of a file in ``FILES``."""
    major, minor = device
    return struct.pack("=QQ", major << _MINOR_BITS | minor, inode)
