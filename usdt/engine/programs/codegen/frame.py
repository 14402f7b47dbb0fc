"""Where the values of a program are: slots of the BPF stack, and scratch memory.

The main function of a program has the variables. Loops are functions of their own, which reach them
by the address of the main function's stack. Temporary values are on the stack of each function. The
stacks of all functions that are active have 512 bytes together.

What is large, or does not fit, is in scratch memory: an entry of a pool that the program takes
at its start. The pool has several entries for each CPU, as another program may preempt this one.

Slots are given and released in the order of a stack, while code is emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.bpf.asm.insn import R7, R9, R10, Reg
from usdt.engine.compiler.codegen.stack_slots import PIDNS_SLOT
from usdt.engine.programs.types import aligned

if TYPE_CHECKING:
    from usdt.engine.programs.variables import Variable

__all__ = (
    "CONTEXT_SLOT",
    "LEFT_SLOT",
    "SCRATCH_SLOT",
    "SCRATCH_START",
    "TASK_SLOT",
    "ZERO_SLOT",
    "Frame",
    "Place",
    "ValuesTooLarge",
    "check_size",
)

TASK_SLOT = PIDNS_SLOT - 8  # pid_tgid
CONTEXT_SLOT = TASK_SLOT - 8  # the context, for loops
SCRATCH_SLOT = CONTEXT_SLOT - 8  # the address of the scratch memory, for loops
LEFT_SLOT = SCRATCH_SLOT - 8  # whether a loop has ended by return
ZERO_SLOT = LEFT_SLOT - 8  # 0, which the verifier does not know
_MAIN_SLOTS = ZERO_SLOT
_LOOP_SLOTS = PIDNS_SLOT + 8  # a loop has only the slots for keys and reads
_STACK = 512 - 32  # the kernel rounds the stack of each function up to 32 bytes
_LOOP_STACK = 96
_FOR_TEMPORARIES = 96  # bytes of the stack that variables leave
_SMALL = 64  # bytes of values that may be on the stack

SCRATCH_START = 8  # the first word says whether the entry is taken
_MOST_BYTES = 1 << 15  # instructions reach less from a register, as offsets are signed


class ValuesTooLarge(TracingError):  # noqa: N818 - what is wrong, as NotSupported
    """The values of a probe have more bytes than its instructions reach."""


def check_size(size: int, what: str) -> None:
    """Check the bytes behind an address that values are reached from.

    Raises:
        ValuesTooLarge: instructions do not reach the last of them.
    """
    if size > _MOST_BYTES:
        most = f"at most {_MOST_BYTES}: set max_strlen, or divide the values"
        raise ValuesTooLarge(f"{what} {size} bytes, {most}")


@frozen
class Place:
    """Where a value is: ``base + offset``; ``base`` is kept by calls."""

    base: Reg
    offset: int


class Frame:
    """The slots of one function of a program.

    Args:
        loops: how deeply loops are nested in the program.
        scratch: whether the program has scratch memory.

    Attributes:
        base: the register that leads to the main function's stack.
        scratch_used: bytes of scratch memory that the code needs; shared by all functions.
    """

    def __init__(self, loops: int = 0, *, scratch: bool = False) -> None:
        self.base = R10
        self.loops, self.scratch = loops, scratch
        self._in_loop = False
        self._low, self._bottom = _MAIN_SLOTS, loops * (_LOOP_STACK + 32) - _STACK
        self._main_low = self._main_bottom = 0
        self._variables: dict[int, Place] = {}
        self._scratch = SCRATCH_START
        self._most_scratch = [0]

    def of_loop(self) -> Frame:
        """Return the frame of a loop that begins here, with the variables there are now."""
        made = Frame(self.loops, scratch=self.scratch)
        made.base = R9
        made._in_loop = True
        made._low, made._bottom = _LOOP_SLOTS, -_LOOP_STACK
        main = (self._main_low, self._main_bottom) if self._in_loop else (self._low, self._bottom)
        made._main_low, made._main_bottom = main
        made._variables = dict(self._variables)
        made._scratch, made._most_scratch = self._scratch, self._most_scratch
        return made

    @property
    def scratch_used(self) -> int:
        """Bytes of scratch memory, with its first word; 0 if none is used."""
        return self._most_scratch[0]

    def mark(self) -> tuple[int, int, int, dict[int, Place]]:
        """Return the state, for :meth:`release`."""
        return self._low, self._scratch, self._main_low, dict(self._variables)

    def release(self, mark: tuple[int, int, int, dict[int, Place]]) -> None:
        """Release what was taken since :meth:`mark`."""
        self._low, self._scratch, self._main_low, variables = mark
        self._variables = dict(variables)

    def push(self) -> int:
        """Take a slot of eight bytes of this function's stack; return its offset from r10.

        Raises:
            TracingError: no slot is left.
        """
        if self._low - 8 < self._bottom:
            reason = "an expression is nested too deeply for the BPF stack; compute parts of it "
            raise TracingError(f"{reason}before, in variables")
        self._low -= 8
        return self._low

    def pop(self) -> None:
        """Release the slot that was taken last."""
        self._low += 8

    def temporary(self, size: int) -> Place:
        """Take bytes for a temporary value, on this function's stack or in scratch memory."""
        size = aligned(size)
        if size <= _SMALL and self._low - size >= self._bottom + _SMALL:
            self._low -= size
            return Place(R10, self._low)
        return self.in_scratch(size)

    def variable(self, variable: Variable, size: int) -> Place:
        """Return the place of a variable, which is taken when it is asked for first."""
        if variable.number not in self._variables:
            self._variables[variable.number] = self._new_variable(aligned(size))
        return self.saved(variable.number)

    def knows(self, variable: Variable) -> bool:
        """Return whether a variable has a place."""
        return variable.number in self._variables

    def saved(self, number: int) -> Place:
        """Return the place of a variable that is a number."""
        place = self._variables[number]
        return place if place.base is R7 else Place(self.base, place.offset)

    def _new_variable(self, size: int) -> Place:
        low = self._main_low if self._in_loop else self._low
        bottom = self._main_bottom if self._in_loop else self._bottom
        if size > _SMALL or low - size < bottom + _FOR_TEMPORARIES:
            return self.in_scratch(size)
        if self._in_loop:
            self._main_low -= size
        else:
            self._low -= size
        return Place(R10, low - size)  # of the main function

    def in_scratch(self, size: int) -> Place:
        """Take bytes of scratch memory.

        Raises:
            ValuesTooLarge: as :func:`check_size`.
        """
        start = self._scratch
        self._scratch += size
        check_size(self._scratch, "its values have")
        self._most_scratch[0] = max(self._most_scratch[0], self._scratch)
        return Place(R7, start)
