"""A machine for the programs the engine writes: what they do is tested without a kernel, or root.

It knows the instructions the assembler has and the helpers the programs call, and it is strict
where the verifier is: a register that was not written, or was lost in a call, cannot be read, and
memory ends where it ends.
"""

from __future__ import annotations

import functools
import operator
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from usdt.bpf._uapi import Helper
from usdt.engine.compiler.codegen.current_task import task_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Code

__all__ = ("Machine",)

_MASK = (1 << 64) - 1
_STACK, _CONTEXT, _RECORDS, _TASK, _SITES, _COUNTERS = (n << 56 for n in range(1, 7))
_PAGE = 4096
_SIZES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}
_EXIT, _WIDE, _CALL, _GOTO, _ATOMIC_ADD = 0x95, 0x18, 0x85, 0x05, 0xDB
_FAULT = -14
_MOST = 100_000  # instructions of one run: no program loops


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_ALU: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x20: operator.mul,
    0x30: lambda a, b: a // b if b else 0,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: lambda a, b: a << (b & 63),
    0x70: lambda a, b: a >> (b & 63),
    0x80: lambda a, _: -a,
    0x90: lambda a, b: a % b if b else a,
    0xA0: operator.xor,
    0xB0: lambda _, b: b,
    0xC0: lambda a, b: _signed(a) >> (b & 63),
}
_JUMP: dict[int, Callable[[int, int], bool]] = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x50: operator.ne,
    0x60: lambda a, b: _signed(a) > _signed(b),
    0x70: lambda a, b: _signed(a) >= _signed(b),
    0xA0: operator.lt,
    0xB0: operator.le,
    0xC0: lambda a, b: _signed(a) < _signed(b),
    0xD0: lambda a, b: _signed(a) <= _signed(b),
}


class _Insn(NamedTuple):
    opcode: int
    dst: int
    src: int
    offset: int
    immediate: int


@functools.lru_cache(4)
def _decoded(insns: bytes) -> list[_Insn]:
    parts = struct.iter_unpack("=BBhi", insns)
    return [_Insn(op, both & 15, both >> 4, off, imm) for op, both, off, imm in parts]


@dataclass
class Machine:
    """What a program finds, and what it left.

    Attributes:
        context: struct pt_regs.
        user: address → bytes there; nothing else can be read.
        kernel: the same of the kernel's memory, which may have the same addresses.
        absent: pages (addresses) that are not there until they are faulted in.
        room: bytes of records that the ring buffer still takes.
        old_strings: whether the length of an empty string is 0, as before Linux 6.16.
        cgroups: IDs of the task's cgroup and those above it, from the root.
        traced_cgroups: IDs in the map of traced cgroups.
        sites: index → row in the array of sites.
        records: what was submitted.
        discarded: the flags of every record given back.
        counters: by probe, lost and unread.
        calls: every helper called.
    """

    context: bytes = bytes(168)
    cookie: int = 0
    process: int = 10
    thread: int = 11
    cpu: int = 3
    task: int = 0xFFFF888000000000
    namespace: tuple[int, int] | None = None
    comm: bytes = b"comm"
    user: dict[int, bytes] = field(default_factory=dict)
    kernel: dict[int, bytes] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    room: int = 1 << 20
    old_strings: bool = False
    cgroups: tuple[int, ...] = (1,)
    traced_cgroups: frozenset[int] = frozenset()
    sites: dict[int, bytes] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    counters: dict[int, tuple[int, int]] = field(default_factory=dict)
    calls: list[Helper] = field(default_factory=list)

    def run(self, code: Code) -> None:
        """Run a program once."""
        names = list(dict.fromkeys(name for name, _ in code.maps.values()))
        program = _decoded(code.link({name: names.index(name) for name in names}))
        self._maps = names
        self._areas = {_STACK - 512: bytearray(512), _CONTEXT: bytearray(self.context)}
        self._open: int | None = None
        self._registers: list[int | None] = [None] * 11
        self._registers[1], self._registers[10] = _CONTEXT, _STACK
        at = 0
        for _ in range(_MOST):
            insn = program[at]
            if insn.opcode == _EXIT:
                self._exit()
                return
            if insn.opcode == _WIDE:
                high = program[at + 1].immediate << 32
                self._registers[insn.dst] = (high | insn.immediate & 0xFFFFFFFF) & _MASK
            at += self._step(insn)
        raise AssertionError("the program does not end")

    def _exit(self) -> None:
        assert self._read(0) == 0, "a program returns 0"
        assert self._open is None, "a record was neither submitted nor given back"
        for base, area in self._areas.items():
            if base >= _COUNTERS:
                self.counters[(base - _COUNTERS) // 16] = struct.unpack("=QQ", area)

    def _step(self, insn: _Insn) -> int:
        # How far it is to the next instruction.
        opcode, kind = insn.opcode, insn.opcode & 7
        if opcode == _WIDE:
            return 2
        if opcode == _CALL:
            self._call(Helper(insn.immediate))
        elif kind == 7:
            left = 0 if opcode & 0xF0 == 0xB0 else self._read(insn.dst)
            self._registers[insn.dst] = _ALU[opcode & 0xF0](left, self._operand(insn)) & _MASK
        elif kind == 5:
            if opcode == _GOTO or _JUMP[opcode & 0xF0](self._read(insn.dst), self._operand(insn)):
                return 1 + insn.offset
        else:
            self._memory(insn)
        return 1

    def _operand(self, insn: _Insn) -> int:
        return self._read(insn.src) if insn.opcode & 8 else insn.immediate & _MASK

    def _memory(self, insn: _Insn) -> None:
        opcode, size = insn.opcode, _SIZES[insn.opcode & 0x18]
        if opcode & 7 == 1:
            found = self._get((self._read(insn.src) + insn.offset) & _MASK, size)
            self._registers[insn.dst] = int.from_bytes(found, "little")
            return
        address = (self._read(insn.dst) + insn.offset) & _MASK
        value = insn.immediate & _MASK if opcode & 7 == 2 else self._read(insn.src)
        if opcode == _ATOMIC_ADD:
            value += int.from_bytes(self._get(address, 8), "little")
        self._put(address, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))

    def _read(self, number: int) -> int:
        value = self._registers[number]
        assert value is not None, f"r{number} holds nothing"
        return value

    def _area(self, address: int, size: int) -> tuple[bytearray, int]:
        for base, area in self._areas.items():
            if base <= address and address + size <= base + len(area):
                return area, address - base
        raise AssertionError(f"{size} bytes at {address:#x} are nobody's")

    def _get(self, address: int, size: int) -> bytes:
        area, at = self._area(address, size)
        return bytes(area[at : at + size])

    def _put(self, address: int, value: bytes) -> None:
        area, at = self._area(address, len(value))
        area[at : at + len(value)] = value

    # ------------------------------------------------------------------- helpers

    def _call(self, helper: Helper) -> None:
        self.calls.append(helper)
        result = getattr(self, f"_{helper.name.lower()}")() & _MASK
        self._registers[:6] = [result, None, None, None, None, None]

    def _ktime_get_ns(self) -> int:
        return 123456789

    def _get_smp_processor_id(self) -> int:
        return self.cpu

    def _get_current_pid_tgid(self) -> int:
        return self.process << 32 | self.thread

    def _get_current_task(self) -> int:
        return self.task

    def _get_current_task_btf(self) -> int:
        offsets = task_offsets()
        assert offsets is not None
        self._areas[_TASK] = task = bytearray(max(offsets.comm, offsets.pid, offsets.tgid) + 16)
        struct.pack_into("16s", task, offsets.comm, self.comm)
        struct.pack_into("=I", task, offsets.pid, self.thread)
        struct.pack_into("=I", task, offsets.tgid, self.process)
        return _TASK

    def _get_current_uid_gid(self) -> int:
        return 1000 << 32 | 500

    def _get_current_cgroup_id(self) -> int:
        return 77

    def _get_current_ancestor_cgroup_id(self) -> int:
        level = self._read(1)
        return self.cgroups[level] if level < len(self.cgroups) else 0

    def _get_attach_cookie(self) -> int:
        assert self._read(1) == _CONTEXT
        return self.cookie

    def _get_ns_current_pid_tgid(self) -> int:
        assert self._read(4) == 8
        if (self._read(1), self._read(2)) != self.namespace:
            return -22
        self._put(self._read(3), struct.pack("=II", self.thread, self.process))
        return 0

    def _get_current_comm(self) -> int:
        self._put(self._read(1), self.comm.ljust(self._read(2), b"\0"))
        return 0

    def _map_lookup_elem(self) -> int:
        if self._maps[self._read(1)] == "cgroups":
            number = int.from_bytes(self._get(self._read(2), 8), "little")
            return _CONTEXT if number in self.traced_cgroups else 0
        if self._maps[self._read(1)] == "sites":
            index = int.from_bytes(self._get(self._read(2), 4), "little")
            row = self.sites.get(index)
            if row is not None:
                self._areas[_SITES] = bytearray(row)
            return 0 if row is None else _SITES
        assert self._maps[self._read(1)] == "counters"
        probe = int.from_bytes(self._get(self._read(2), 4), "little")
        base = _COUNTERS + probe * 16
        if base not in self._areas:
            known = self.counters.get(probe, (0, 0))
            self._areas[base] = bytearray(struct.pack("=QQ", *known))
        return base

    def _ringbuf_reserve(self) -> int:
        assert self._maps[self._read(1)] == "events"
        assert self._read(3) == 0
        assert self._open is None
        size = self._read(2)
        if size > self.room:
            return 0
        self.room -= size
        self._open = _RECORDS + len(self.calls) * (1 << 24)
        self._areas[self._open] = bytearray(b"\xee" * size)  # the kernel does not clear it
        return self._open

    def _finish(self) -> bytes:
        assert self._read(1) == self._open, "not the record that was reserved"
        assert self._open is not None
        found = bytes(self._areas.pop(self._open))
        self._open = None
        return found

    def _ringbuf_submit(self) -> int:
        assert self._read(2) == 0
        self.records.append(self._finish())
        return 0

    def _ringbuf_discard(self) -> int:
        self.discarded.append(self._read(2))
        self._finish()
        return 0

    def _user_byte(self, address: int, *, fault: bool) -> int | None:
        page = address & -_PAGE
        for base, there in self.user.items():
            if base <= address < base + len(there):
                if page in self.absent and not fault:
                    return None
                self.absent.discard(page)
                return there[address - base]
        return None

    def _user_bytes(self, address: int, size: int, *, fault: bool) -> bytes | None:
        found = [self._user_byte(address + n & _MASK, fault=fault) for n in range(size)]
        return None if None in found else bytes(n for n in found if n is not None)

    def _probe_read_user(self) -> int:
        return self._copy(fault=False)

    def _probe_read_kernel(self) -> int:
        return self._of_kernel(self._probe_read_user)

    def _probe_read_kernel_str(self) -> int:
        return self._of_kernel(self._probe_read_user_str)

    def _of_kernel(self, read: Callable[[], int]) -> int:
        user, self.user = self.user, self.kernel
        try:
            return read()
        finally:
            self.user = user

    def _copy_from_user(self) -> int:
        assert self._open is None, "sleeps with a record in hand"
        return self._copy(fault=True)

    def _copy(self, *, fault: bool) -> int:
        destination, size, source = self._read(1), self._read(2), self._read(3)
        self._get(destination, size)
        found = self._user_bytes(source, size, fault=fault)
        self._put(destination, bytes(size) if found is None else found)
        return _FAULT if found is None else 0

    def _probe_read_user_str(self) -> int:
        destination, size, source = self._read(1), self._read(2), self._read(3)
        assert size > 0
        self._get(destination, size)
        found = b""
        while len(found) < size:
            byte = self._user_byte(source + len(found) & _MASK, fault=False)
            if byte is None:
                return _FAULT
            found += bytes((byte,))
            if byte == 0:
                break
        length = len(found)
        self._put(destination, found[:-1] + b"\0")
        return 0 if self.old_strings and length == 1 and size > 1 else length
