"""Code for reads of memory, and temporaries on the BPF stack.

User and kernel memory have different read helpers. At a user probe, all addresses are in the
process, except pointers by the kernel's types. At a kernel probe, the highest bit of an address
tells them apart on most CPUs: only kernel addresses have it. Where the address spaces overlap
(s390x) or are divided elsewhere (32-bit CPUs), a pointer by the kernel's types is read as a kernel
address first, and as a user address if that fails; every other address is a user address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Memory, ValueClass, ValueType
from usdt.base.errors import TracingError
from usdt.base.machine import KERNEL_MACHINE, KERNEL_WORD_SIZE
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R10, Alu, Jump, Reg
from usdt.engine.compiler.codegen.stack_slots import (
    ENTRY_STATE_SLOT,
    READ_SLOT,
    SITE_SLOT,
    STACK_BOTTOM,
    TEMPORARIES,
)
from usdt.engine.compiler.ir import ArgumentValue
from usdt.engine.compiler.limits import FIRST_ADDRESS
from usdt.engine.compiler.record.length_prefix import USERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import (
        Address,
        Captured,
        ContextArea,
        Location,
        PerCpuAddress,
        SiteNumber,
        TypedContextWord,
    )
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.ir import Node

__all__ = ("MemoryReadEmitter",)

_SITE_NUMBERS = 16  # offset in the row of a site
_PAGE = 4096  # the smallest page size: steps of it reach every page of any size
_ADDRESS_SPACES_DISJOINT = KERNEL_MACHINE in (
    *("x86_64", "aarch64", "aarch64_be", "riscv64", "loongarch64", "ppc64", "ppc64le"),
    *("mips64", "mips64el"),
)
# Helper that reads user memory → the helper that reads kernel memory.
_KERNEL_HELPER = {
    Helper.PROBE_READ_USER: Helper.PROBE_READ_KERNEL,
    Helper.PROBE_READ_USER_STR: Helper.PROBE_READ_KERNEL_STR,
}


class MemoryReadEmitter:
    """Emits reads of memory.

    Args:
        asm: the assembler to emit to.
        sleepable: whether the program may sleep here, and so may handle page faults.
        fail: the label for values that cannot be read.
        bottom: the lowest offset from r10 for temporaries; the caller uses the stack below it.
        kernel: whether addresses may be in the kernel.
        split: whether only kernel addresses have the highest bit set; by default that of this CPU.
    """

    def __init__(
        self,
        asm: Assembler,
        *,
        sleepable: bool,
        fail: str,
        bottom: int = STACK_BOTTOM,
        kernel: bool = False,
        split: bool | None = None,
    ) -> None:
        self.asm = asm
        self.sleepable = sleepable
        self.fail = fail
        # How to read at any address, and at a pointer by the kernel's types.
        self._read_address, self._read_pointer = self._read_directly, self._read_kernel
        if kernel and (_ADDRESS_SPACES_DISJOINT if split is None else split):
            self._read_address = self._read_pointer = self._read_by_highest_bit
        elif kernel:
            self._read_pointer = self._read_kernel_first
        self._bottom = bottom
        self._depth = 0

    def read_kernels(self, fetch: Memory | TypedContextWord, kind: ValueType) -> None:
        """Read a value that is in kernel memory into r0."""
        if isinstance(fetch, Memory):
            self.address(fetch)
        else:
            self.asm.mov(R3, R6)
            self.asm.add(R3, fetch.offset)
        self.read_to(Helper.PROBE_READ_KERNEL, R10, READ_SLOT, fetch.size)
        self.asm.load(R0, R10, READ_SLOT, fetch.size)
        if kind.signed:
            self.extend(R0, kind)

    def per_cpu(self, fetch: PerCpuAddress) -> None:
        """Replace the number of a CPU in r0 by the address of its copy of a variable."""
        word = KERNEL_WORD_SIZE
        self.asm.alu(Alu.LSH, R0, word.bit_length() - 1)
        self.asm.mov(R3, fetch.offsets)
        self.asm.add(R3, R0)
        self.read_to(Helper.PROBE_READ_KERNEL, R10, READ_SLOT, word)
        self.asm.jump(Jump.NE, R0, 0, self.fail)
        self.asm.load(R0, R10, READ_SLOT, word)
        self.asm.mov(R1, fetch.address)
        self.asm.add(R0, R1)
        self.extend(R0, ValueType(ValueClass.UNSIGNED, word))

    def kept(self, fetch: Captured) -> None:
        """Leave the entry state's address in r0; go to ``fail`` if the capture is unreadable."""
        from usdt.engine.compiler.entry_return import BITMAP_OFFSET  # noqa: PLC0415 - for functions

        self.asm.load(R0, R10, ENTRY_STATE_SLOT)
        if fetch.bit is not None:
            self.asm.load(R1, R0, BITMAP_OFFSET)
            self.asm.alu(Alu.RSH, R1, fetch.bit)
            self.asm.alu(Alu.AND, R1, 1)
            self.asm.jump(Jump.NE, R1, 0, self.fail)

    def aggregate_address(self, node: Node) -> None:
        """Leave the address of an aggregate argument, which is in memory, in r3."""
        if not isinstance(node, ArgumentValue):
            raise TypeError(f"an aggregate is in memory, not in {node}")
        self.address(node.fetch)

    def copy_kept(self, fetch: Captured, base: Reg, offset: int, size: int) -> None:
        """Copy ``size`` bytes of the entry state to ``base + offset``."""
        self.kept(fetch)
        self.asm.mov(R3, R0)
        self.asm.add(R3, fetch.offset)
        self.read_to(Helper.PROBE_READ_KERNEL, base, offset, size)

    def address(self, fetch: Location) -> None:
        """Leave the address of a memory operand in r3."""
        if not isinstance(fetch, Memory):
            raise TracingError(f"no address: {fetch}")
        asm = self.asm
        width = fetch.address_size
        if fetch.base is None:
            asm.mov(R3, 0)
        else:
            asm.load(R3, R6, fetch.base, width)
        if fetch.index is not None:
            narrow = fetch.index_type
            asm.load(R4, R6, fetch.index, width if narrow is None else narrow.size)
            if narrow is not None and narrow.signed:
                self.extend(R4, narrow)
            if fetch.scale > 1:
                asm.alu(Alu.LSH, R4, fetch.scale.bit_length() - 1)
            asm.add(R3, R4)
        if fetch.of_site is None and -(1 << 31) <= fetch.displacement < 1 << 31:
            asm.add(R3, fetch.displacement)
        else:
            self.displacement(R4, fetch)
            asm.add(R3, R4)
        if width == 4:
            asm.alu(Alu.LSH, R3, 32)
            asm.alu(Alu.RSH, R3, 32)

    def displacement(self, dst: Reg, fetch: Memory | Address) -> None:
        """Leave what is added to the registers of a location in ``dst``."""
        if fetch.of_site is None:
            self.asm.mov(dst, fetch.displacement)
        else:
            self.site_number(dst, fetch.of_site)

    def site_number(self, dst: Reg, number: SiteNumber) -> None:
        """Leave a number of the site that was hit in ``dst``."""
        self.asm.load(dst, R10, SITE_SLOT)
        self.asm.load(dst, dst, _SITE_NUMBERS + 8 * number.index)

    def record_bytes(self, fetch: ContextArea) -> None:
        """Leave the address of data in the tracepoint's record, the context, in r0."""
        asm = self.asm
        if fetch.location == "here":
            asm.mov(R0, R6)
            asm.add(R0, fetch.offset)
            return
        asm.load(R1, R6, fetch.offset, 4)
        asm.mov(R0, R1)
        asm.alu(Alu.RSH, R0, 16)
        asm.jump(Jump.EQ, R0, 0, self.fail)  # no bytes, not even a NUL
        asm.alu(Alu.AND, R1, 0xFFFF)
        asm.mov(R0, R6)
        asm.add(R0, R1)
        if fetch.location == "rel_loc":
            asm.add(R0, fetch.offset + 4)

    def read_to(
        self,
        helper: Helper,
        base: Reg,
        offset: int,
        size: int | Callable[[], None],
        *,
        kernel: bool = False,
        tag: bool = False,
    ) -> None:
        """Read memory at the address in r3 to ``base + offset``; r0 is the helper's result.

        Args:
            helper: the helper; if it reads user memory and the address may be in the kernel, also
                the one that reads kernel memory is called.
            base: a register that calls preserve.
            offset: the offset of the destination from ``base``.
            size: the number of bytes; or emits code that puts it into r2, and may be called twice.
            kernel: whether the address is a pointer by the kernel's types.
            tag: whether to set :data:`usdt.engine.compiler.record.length_prefix.USERS` in the
                result of a successful read of user memory.
        """
        asm = self.asm

        def prepare() -> None:
            asm.mov(R1, base)
            asm.add(R1, offset)
            if callable(size):
                size()
            else:
                asm.mov(R2, size)

        read = self._read_pointer if kernel else self._read_address
        if helper not in _KERNEL_HELPER:
            read = self._read_directly
        done = asm.new_label("read")
        read(helper, prepare, done, tag=tag)
        asm.label(done)

    def _read_directly(
        self, helper: Helper, prepare: Callable[[], None], done: str, *, tag: bool
    ) -> None:
        prepare()
        self._call(helper, done, tag=tag)

    def _read_kernel(
        self, helper: Helper, prepare: Callable[[], None], done: str, *, tag: bool
    ) -> None:
        del done, tag  # the pointer is the kernel's: at a user probe, one of its own structures
        prepare()
        self.asm.call(_KERNEL_HELPER[helper])

    def _read_by_highest_bit(
        self, helper: Helper, prepare: Callable[[], None], done: str, *, tag: bool
    ) -> None:
        asm = self.asm
        kernel = asm.new_label("kernel")
        prepare()
        asm.jump(Jump.SLT, R3, 0, kernel)
        self._call(helper, done, tag=tag)
        asm.goto(done)
        asm.label(kernel)
        asm.call(_KERNEL_HELPER[helper])

    def _read_kernel_first(
        self, helper: Helper, prepare: Callable[[], None], done: str, *, tag: bool
    ) -> None:
        asm = self.asm
        user = asm.new_label("user")
        slot = self.push(R3)
        asm.jump(Jump.LT, R3, FIRST_ADDRESS, user)
        prepare()
        asm.call(_KERNEL_HELPER[helper])
        asm.jump(Jump.SGE, R0, 0, done)
        asm.label(user)
        asm.load(R3, R10, slot)
        prepare()
        self._call(helper, done, tag=tag)
        self.pop()

    def _call(self, helper: Helper, failed: str, *, tag: bool) -> None:
        # Call the helper; with ``tag``, set USERS in its result unless it failed.
        asm = self.asm
        asm.call(helper)
        if not tag:
            return
        asm.jump(Jump.SLT, R0, 0, failed)
        if helper is Helper.PROBE_READ_USER_STR:
            self.count_nul()
        asm.mov(R1, USERS)
        asm.alu(Alu.OR, R0, R1)

    def touch(self, size: int) -> None:
        """Fault in the pages of ``size`` bytes at the address in r0; failures are ignored."""
        slot = self.push()
        steps = [*range(0, size, _PAGE), size - 1] if size > 1 else [0]
        for step in dict.fromkeys(steps):
            self.asm.load(R3, R10, slot)
            self.asm.add(R3, step)
            self.read_to(Helper.COPY_FROM_USER, R10, READ_SLOT, 1)
        self.pop()

    def count_nul(self) -> None:
        """Replace 0 in r0, the result of bpf_probe_read_user_str(), by 1.

        The helper counts the NUL of a string, but before Linux 6.16 ("maccess: fix
        strncpy_from_user_nofault() empty string handling") it returns 0 for an empty string.
        """
        counted = self.asm.new_label("counted")
        self.asm.jump(Jump.NE, R0, 0, counted)
        self.asm.mov(R0, 1)
        self.asm.label(counted)

    def extend(self, dst: Reg, kind: ValueType) -> None:
        """Sign- or zero-extend the number of type ``kind`` in ``dst`` to 64 bits."""
        shift = 64 - kind.size * 8
        if shift:
            self.asm.alu(Alu.LSH, dst, shift)
            self.asm.alu(Alu.ARSH if kind.signed else Alu.RSH, dst, shift)

    def read(self, kind: ValueType, *, kernel: bool = False) -> None:
        """Read the number at the address in r3 into r0; ``kernel`` as in read_to()."""
        asm = self.asm
        if self.sleepable and not kernel:
            slot = self.push(R3)
            done = asm.new_label("read")
            self.read_to(Helper.PROBE_READ_USER, R10, READ_SLOT, kind.size)
            asm.jump(Jump.EQ, R0, 0, done)
            asm.load(R3, R10, slot)
            self.read_to(Helper.COPY_FROM_USER, R10, READ_SLOT, kind.size)
            asm.jump(Jump.NE, R0, 0, self.fail)
            asm.label(done)
            self.pop()
        else:
            self.read_to(Helper.PROBE_READ_USER, R10, READ_SLOT, kind.size, kernel=kernel)
            asm.jump(Jump.NE, R0, 0, self.fail)
        asm.load(R0, R10, READ_SLOT, kind.size)
        if kind.signed:
            self.extend(R0, kind)

    def push(self, source: Reg = R0) -> int:
        """Store a register in a new slot of the stack; return its offset from r10.

        Raises:
            TracingError: no slot is left.
        """
        self._depth += 1
        slot = TEMPORARIES - 8 * self._depth
        if slot < self._bottom:
            raise TracingError("an expression is nested too deeply for the BPF stack; simplify it")
        self.asm.store(R10, slot, source)
        return slot

    def pop(self) -> None:
        """Release the slot that was pushed last."""
        self._depth -= 1
