"""An assembler for eBPF, with labels and named maps.

    asm = Assembler()
    asm.load_map(R1, "counts")
    asm.jump(Jump.EQ, R0, 0, "miss")
    ...
    asm.label("miss")
    asm.exit()
    code = asm.assemble()

The code refers to maps by name; :meth:`usdt.bpf.program.ProgramSpec.load` puts in descriptors.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.bpf.asm.insn import R0, Alu, Jump, Reg, encode, size_code

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Assembler", "Code", "CodeTooLarge")

_LD_IMM64 = 0x18
_PSEUDO_MAP_FD = 1
_PSEUDO_MAP_VALUE = 2
_PSEUDO_FUNC = 4
_GOTO = 0x05
_EXIT = 0x95
_FETCH = 0x01  # BPF_FETCH, with BPF_ADD, which is 0
_XCHG = 0xE1
_CMPXCHG = 0xF1
_PSEUDO_KFUNC_CALL = 2
_JUMP_RANGE = 1 << 15


class CodeTooLarge(TracingError):  # noqa: N818 - a limit, caught to split the work
    """The target of a jump is beyond the range of its 16-bit offset."""


@frozen
class Code:
    """Assembled instructions.

    Attributes:
        insns: the instructions, eight bytes each.
        maps: index of a two-slot load instruction → name of the map that it loads, and register.
        values: the indices of those that load the address of the map's value.
        functions: indices of the first instructions of functions that helpers call.
    """

    insns: bytes
    maps: dict[int, tuple[str, Reg]]
    functions: tuple[int, ...] = ()
    values: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.insns) // 8

    def link(self, maps: dict[str, int]) -> bytes:
        """Return the instructions with every map's name replaced by its descriptor."""
        insns = bytearray(self.insns)
        for index, (name, dst) in self.maps.items():
            kind = _PSEUDO_MAP_VALUE if index in self.values else _PSEUDO_MAP_FD
            load = encode(_LD_IMM64, dst, kind, 0, maps[name])
            insns[index * 8 : index * 8 + 8] = load
        return bytes(insns)


class Assembler:
    """Collects instructions: each method appends one. The kernel checks the operands."""

    def __init__(self) -> None:
        self._insns: list[bytes] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, tuple[int, int, int, int, str]] = {}
        self._exits: list[int] = []
        self._maps: dict[int, tuple[str, Reg]] = {}
        self._values: set[int] = set()
        self._functions: dict[str, Callable[[Assembler], object]] = {}
        self._addresses: dict[int, tuple[str, Reg]] = {}
        self._optional: list[tuple[int, int, Reg]] = []
        self._unique = 0

    def __len__(self) -> int:
        return len(self._insns)

    def new_label(self, hint: str = "L") -> str:
        """Return a name for a label that no other has."""
        self._unique += 1
        return f"{hint}.{self._unique}"

    def label(self, name: str) -> None:
        """Put ``name`` before the next instruction."""
        if name in self._labels:
            raise ValueError(f"label {name} is defined twice")
        self._labels[name] = len(self._insns)

    def alu(self, op: Alu, dst: Reg, operand: Reg | int = 0, *, width: int = 64) -> None:
        """``dst op= operand`` on 64 or 32 bits (32 clears the upper half)."""
        kind = 0x07 if width == 64 else 0x04
        if isinstance(operand, Reg):
            self._insns.append(encode(op | 0x08 | kind, dst, operand))
        else:
            self._insns.append(encode(op | kind, dst, 0, 0, operand))

    def mov(self, dst: Reg, operand: Reg | int) -> None:
        """``dst = operand``; any integer of 64 bits, in one or two slots."""
        if isinstance(operand, Reg):
            if dst is not operand:
                self.alu(Alu.MOV, dst, operand)
        elif -(1 << 31) <= operand < 1 << 31:
            self.alu(Alu.MOV, dst, operand)
        else:
            self._wide(dst, 0, operand)

    def add(self, dst: Reg, operand: Reg | int) -> None:
        """``dst += operand``; nothing for 0."""
        if isinstance(operand, Reg) or operand:
            self.alu(Alu.ADD, dst, operand)

    def load(self, dst: Reg, base: Reg, offset: int, size: int = 8) -> None:
        """``dst = *(base + offset)``, zero-extended."""
        self._insns.append(encode(0x61 | size_code(size), dst, base, offset))

    def store(self, base: Reg, offset: int, value: Reg | int, size: int = 8) -> None:
        """``*(base + offset) = value``."""
        if isinstance(value, Reg):
            self._insns.append(encode(0x63 | size_code(size), base, value, offset))
        else:
            self._insns.append(encode(0x62 | size_code(size), base, 0, offset, value))

    def atomic_add(self, base: Reg, offset: int, value: Reg) -> None:
        """``lock *(u64 *)(base + offset) += value``."""
        self._insns.append(encode(0xDB, base, value, offset))

    def fetch_add(self, base: Reg, offset: int, value: Reg) -> None:
        """``value = atomic_fetch_add(base + offset, value)`` (Linux 5.12, commit 5ca419f2864a)."""
        self._insns.append(encode(0xDB, base, value, offset, _FETCH))

    def exchange(self, base: Reg, offset: int, value: Reg) -> None:
        """``value = xchg(base + offset, value)`` (Linux 5.12, commit 5ffa25502b5a)."""
        self._insns.append(encode(0xDB, base, value, offset, _XCHG))

    def compare_exchange(self, base: Reg, offset: int, value: Reg) -> None:
        """``r0 = cmpxchg(base + offset, r0, value)`` (Linux 5.12, commit 5ffa25502b5a)."""
        self._insns.append(encode(0xDB, base, value, offset, _CMPXCHG))

    def load_map(self, dst: Reg, name: str) -> None:
        """``dst = &map``, resolved when the program is loaded."""
        self._maps[len(self._insns)] = (name, dst)
        self._wide(dst, _PSEUDO_MAP_FD, 0)

    def load_map_value(self, dst: Reg, name: str, offset: int = 0) -> None:
        """``dst = value of a one-entry array + offset`` (Linux 5.2, commit d8eca5bbb2be)."""
        self._values.add(len(self._insns))
        self._maps[len(self._insns)] = (name, dst)
        self._wide(dst, _PSEUDO_MAP_VALUE, offset << 32)

    def function(self, name: str, emit: Callable[[Assembler], object]) -> None:
        """Add a function that helpers call; ``emit`` emits it behind the program, once a name."""
        self._functions.setdefault(name, emit)

    def load_function(self, dst: Reg, name: str) -> None:
        """``dst = function`` of :meth:`function` (Linux 5.13, commit 69c087ba6225)."""
        self._addresses[len(self._insns)] = (name, dst)
        self._wide(dst, _PSEUDO_FUNC, 0)

    def jump(self, op: Jump, dst: Reg, operand: Reg | int, label: str) -> None:
        """Go to ``label`` if ``dst op operand`` on 64 bits."""
        opcode, src, immediate = op | 0x05, 0, 0
        if isinstance(operand, Reg):
            opcode, src = opcode | 0x08, operand
        else:
            immediate = operand
        self._jumps[len(self._insns)] = (opcode, dst, src, immediate, label)
        self._insns.append(b"")

    def goto(self, label: str) -> None:
        """Go to ``label``."""
        self.jump(Jump.ALWAYS, R0, 0, label)

    def call(self, helper: int) -> None:
        """Call a helper: arguments in r1–r5, result in r0."""
        self._insns.append(encode(0x85, 0, 0, 0, helper))

    def call_kernel(self, function: int) -> None:
        """Call a kfunc, by its ID in the kernel's BTF."""
        self._insns.append(encode(0x85, 0, _PSEUDO_KFUNC_CALL, 0, function))

    def exit(self) -> None:
        """Return r0."""
        self._exits.append(len(self._insns))
        self._insns.append(encode(_EXIT))

    def only_for(self, reg: Reg, start: int) -> None:
        """Leave out the instructions from ``start`` on if no later one uses ``reg``.

        Args:
            reg: what they compute, and nothing else.
            start: index of the first; no jump goes to one of them.
        """
        self._optional.append((start, len(self._insns), reg))

    def is_optional(self, reg: Reg) -> bool:
        """Whether ``reg`` was computed for later instructions alone: see :meth:`only_for`."""
        return any(reg == one for _, _, one in self._optional)

    def emit_functions(self) -> None:
        """Emit the functions that have not been emitted, and those that they add."""
        while added := [name for name in self._functions if name not in self._labels]:
            self.label(added[0])
            self._functions[added[0]](self)

    def assemble(self) -> Code:
        """Resolve the labels, and drop unreachable instructions, which the verifier rejects.

        Raises:
            CodeTooLarge: a label is out of a jump's range.
        """
        self.emit_functions()
        kept = self._needed(self._reachable())
        new_index = {old: new for new, old in enumerate(kept)}
        insns = [self._insns[index] for index in kept]
        for index, (opcode, dst, src, immediate, label) in self._jumps.items():
            if index not in new_index:
                continue
            distance = new_index[self._labels[label]] - new_index[index] - 1
            if not -_JUMP_RANGE <= distance < _JUMP_RANGE:
                raise CodeTooLarge(f"a jump of {distance} instructions is out of range")
            insns[new_index[index]] = encode(opcode, dst, src, distance, immediate)
        for index, (name, dst) in self._addresses.items():
            if index in new_index:
                distance = new_index[self._labels[name]] - new_index[index] - 1
                insns[new_index[index]] = encode(_LD_IMM64, dst, _PSEUDO_FUNC, 0, distance)
        maps = {new_index[index]: item for index, item in self._maps.items() if index in new_index}
        starts = (self._labels[name] for name in self._functions)
        functions = tuple(new_index[start] for start in starts if start in new_index)
        values = frozenset(new_index[index] for index in self._values if index in new_index)
        return Code(b"".join(insns), maps, functions, values)

    def _needed(self, reachable: list[int]) -> list[int]:
        # Without instructions whose result no other one uses.
        for start, end, reg in self._optional:
            others = [index for index in reachable if not start <= index < end]
            if not any(reg in self._registers(index) for index in others):
                reachable = others
        return reachable

    def _registers(self, index: int) -> tuple[int, int]:
        # The two register fields of an instruction; which is which depends on the machine.
        if index in self._jumps:
            _, dst, src, *_ = self._jumps[index]
            return dst, src
        fields = self._insns[index][1]
        return fields & 15, fields >> 4

    def _reachable(self) -> list[int]:
        # Indices of the reachable instructions, in order. Between two turns, which are jumps,
        # exits, loads of a function's address and the end, all are reachable or none is.
        turns = sorted([*self._jumps, *self._exits, *self._addresses])
        turns.append(len(self._insns) - 1)
        found: set[int] = set()
        ahead = [0]
        while ahead:
            index = ahead.pop()
            number = bisect_left(turns, index)
            while index < len(self._insns) and index not in found:
                turn = turns[number]
                found.update(range(index, turn + 1))
                index, number = turn + 1, number + 1
                if turn in self._jumps:
                    opcode, *_, label = self._jumps[turn]
                    ahead.append(self._labels[label])
                    if opcode == _GOTO:
                        break
                elif turn in self._addresses:
                    ahead.append(self._labels[self._addresses[turn][0]])
                else:
                    break
        return sorted(found)

    def _wide(self, dst: Reg, src: int, value: int) -> None:
        self._insns.append(encode(_LD_IMM64, dst, src, 0, value))
        self._insns.append(encode(0, 0, 0, 0, value >> 32))
