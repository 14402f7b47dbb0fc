"""The unwinder: registers and a copy of the stack → the return addresses of all callers.

Each step looks up the row of the current address in its file's unwind table and computes the
caller's registers. Code without a table (made by a JIT compiler, mostly) is left by its frame
pointer, if what that leads to is plausible. A value that is not known to be a return address is
never returned; instead the stack ends with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import ElfError
from usdt.base.frozen import frozen
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.unwind.expressions import MemoryNotRead, evaluate
from usdt.unwind.rules import Cfa, Expression, RegisterRule, Row, RuleKind

if TYPE_CHECKING:
    from usdt.unwind.frame_table import FrameTable
    from usdt.unwind.thread_state import ThreadState

__all__ = ("RETURN_PROBES", "CodeMap", "Unwound", "unwind")

_MASK = (1 << 64) - 1
RETURN_PROBES = "[uprobes]"  # the mapping to which functions with return probes return
_LONGEST_CALL = 7  # bytes of a call instruction on x86-64


class CodeMap(Protocol):
    """What the unwinder asks about the code of a process."""

    def table(self, address: int) -> tuple[FrameTable, int] | None:
        """Return the unwind table for an address, and the address of its file's address 0."""

    def module(self, address: int) -> str | None:
        """Return the name of the executable mapping at an address; None if there is none."""

    def code(self, address: int, size: int) -> bytes:
        """Return the instructions at an address; b"" if they cannot be read."""


@frozen
class Unwound:
    """The stack of a thread.

    Attributes:
        addresses: innermost first: the address of the instruction, then return addresses.
        exact: the positions of addresses that are no return addresses: the first, and those that a
            signal interrupted.
        reason: why the stack ends before its outermost function; "" if it does not.
    """

    addresses: tuple[int, ...]
    exact: frozenset[int]
    reason: str


def unwind(state: ThreadState, code: CodeMap, *, max_frames: int) -> Unwound:
    """Unwind a stack.

    Args:
        state: the registers and the stack.
        code: the code of the process.
        max_frames: the maximum number of addresses.
    """
    thread = _Thread(state, code)
    addresses, exact = [state.pc], {0}
    while len(addresses) < max_frames:
        try:
            found = thread.step()
        except MemoryNotRead as err:
            return _ended(addresses, exact, f"the stack at {err.address:#x} was not recorded")
        except (ElfError, MalformedDwarf) as err:
            return _ended(addresses, exact, str(err))
        except _End as end:
            return _ended(addresses, exact, str(end))
        if found:
            exact.add(len(addresses))
        addresses.append(thread.pc)
    return _ended(addresses, exact, f"more than {max_frames} frames")


def _ended(addresses: list[int], exact: set[int], reason: str) -> Unwound:
    return Unwound(tuple(addresses), frozenset(exact), reason)


class _End(Exception):  # noqa: N818 - no error: every stack ends
    # The stack ends here; the text is the reason, "" at the outermost function.
    pass


class _Thread:
    def __init__(self, state: ThreadState, code: CodeMap) -> None:
        self.cpu, self.pc, self.read, self.code = state.cpu, state.pc, state.read, code
        self.registers = dict(state.registers)
        self._know_pc()
        self.exact = True  # pc is the next instruction, not a return address

    def step(self) -> bool:
        """Go to the caller; return whether its address is that of an interrupted instruction.

        Raises:
            _End: there is no caller, or it cannot be found.
            MemoryNotRead: memory of the stack is not known.
            MalformedDwarf: the unwind table is damaged.
        """
        row = self._row()
        if row is None:
            known = self.cpu.trampoline
            if known and self.code.code(self.pc, len(known)) == known:
                self._leave_signal_handler()
                self.exact = True
                return True
            self._follow_frame_pointer()
            self.exact = False
            return False
        self._apply(row)
        self.exact = row.signal
        return row.signal

    def _row(self) -> Row | None:
        # A call may be the last instruction of its function: look up the byte before the return.
        # A return to the first instruction of a function was put on the stack without a call, as
        # the end of a context is by makecontext().
        found = None if self.exact else self._row_at(self.pc - 1)
        return found or self._row_at(self.pc)

    def _row_at(self, address: int) -> Row | None:
        found = self.code.table(address)
        if found is None:
            return None
        table, bias = found
        return table.row(address - bias)

    # ------------------------------------------------------------ by table

    def _apply(self, row: Row) -> None:
        cpu, before = self.cpu, self.registers
        cfa = self._cfa(row)
        registers = {}
        for number in (*cpu.preserved, *row.rules):
            try:
                value = self._value(row.rules.get(number), number, cfa)
            except MemoryNotRead:
                # At the end of a function, registers that were popped have their slots below the
                # stack pointer, where the copy of the stack may begin. Few callers need them.
                if number in (row.return_register, cpu.sp):
                    raise
                continue
            if value is not None:
                registers[number] = value
        return_address = registers.get(row.return_register)
        if return_address is None and row.return_register not in row.rules:
            return_address = before.get(row.return_register)  # still in the link register
        if not return_address:
            raise _End("")
        registers.setdefault(cpu.sp, cfa)
        sp = before[cpu.sp]
        if not row.signal and (cfa < sp or (cfa == sp and not self.exact)):
            raise _End(f"the caller's stack pointer {cfa:#x} is not above {sp:#x}")
        pc = return_address & cpu.code_mask
        self._enter(pc, registers)

    def _cfa(self, row: Row) -> int:
        match row.cfa:
            case Cfa(register, offset):
                if register not in self.registers:
                    raise MalformedDwarf(
                        f"the frame at {self.pc:#x} is relative to register {register}, not known"
                    )
                return (self.registers[register] + offset) & _MASK
            case Expression(code):
                return evaluate(code, self.registers, self.read)
            case None:
                raise MalformedDwarf(f"the frame at {self.pc:#x} has no address")

    def _value(self, rule: RegisterRule | None, number: int, cfa: int) -> int | None:
        # The caller's value of a register; None if it is not known.
        if rule is None or rule.kind is RuleKind.SAME:
            return self.registers.get(number)
        operand = rule.operand
        if isinstance(operand, Expression):
            found = evaluate(operand.code, self.registers, self.read, cfa)
            return self.read(found, 8) if rule.kind is RuleKind.SAVED_AT else found
        match rule.kind:
            case RuleKind.SAVED:
                return self.read((cfa + operand) & _MASK, 8)
            case RuleKind.IS:
                return (cfa + operand) & _MASK
            case RuleKind.REGISTER:
                return self.registers.get(operand)
        return None

    # ------------------------------------------------------------ without table

    def _leave_signal_handler(self) -> None:
        cpu = self.cpu
        context = self.registers[cpu.sp] + cpu.context
        registers = {number: self.read(context + offset, 8) for number, offset in cpu.saved.items()}
        self._enter(self.read(context + cpu.saved_pc, 8), registers)

    def _follow_frame_pointer(self) -> None:
        cpu, sp, word = self.cpu, self.registers[self.cpu.sp], self.cpu.word
        where = self.code.module(self.pc)
        lacks = f"{where or hex(self.pc)} has no unwind table for {self.pc:#x}"
        frame = self.registers.get(cpu.frame_pointer, 0)
        if where is None or frame < sp or frame % word:
            raise _End(lacks)
        try:
            outer, pc = self.read(frame, word), self.read(frame + word, word) & cpu.code_mask
        except MemoryNotRead:
            raise _End(f"{lacks}, and no frame pointer") from None
        if not self._is_return_address(pc):
            raise _End(f"{lacks}, and no frame pointer")
        registers = {cpu.frame_pointer: outer, cpu.sp: frame + 2 * word}
        self._enter(pc, registers)

    def _is_return_address(self, pc: int) -> bool:
        # Whether a call instruction ends at pc. Code that cannot be read is taken at its word.
        if self.code.module(pc) is None:
            return False
        before = self.code.code(pc - _LONGEST_CALL, _LONGEST_CALL)
        if len(before) < _LONGEST_CALL:
            return True
        if self.cpu.link is not None:
            word = int.from_bytes(before[-4:], "little")
            return word >> 26 == 0b100101 or word & 0xFFFFFC1F == 0xD63F0000  # bl, blr
        # call rel32; call r/m64 (ff /2) with 0, 1 or 4 bytes of displacement, and SIB byte or not
        if before[-5] == 0xE8:
            return True
        return any(
            before[-size] == 0xFF and before[1 - size] & 0x38 == 0x10 for size in (2, 3, 4, 6, 7)
        )

    def _enter(self, pc: int, registers: dict[int, int]) -> None:
        where = self.code.module(pc)
        if where is None:
            raise _End(f"the return address {pc:#x} is not in a program or library")
        if where == RETURN_PROBES:
            raise _End("a return probe has replaced the return address")
        self.pc, self.registers = pc, registers
        self._know_pc()

    def _know_pc(self) -> None:
        if self.cpu.pc_number is not None:
            self.registers[self.cpu.pc_number] = self.pc
