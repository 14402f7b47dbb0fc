"""Where a function's arguments and result are, by the CPU's calling convention.

Every argument is an integer or a pointer in a word of its own: that is what is known without
debug information. Names and types of parameters come from a :class:`Parameters`, if there is one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.locations import (
    AtFunctionReturn,
    Memory,
    Register,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.arch.pt_regs import saved_registers
from usdt.base.machine import word_size
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.entry_return import EntryReturnMatch

if TYPE_CHECKING:
    from usdt.engine.compiler.resolve import TypeProvider
    from usdt.uprobes.functions import ProbeFunction

__all__ = (
    "GO_ARGUMENTS",
    "MAX_ARGUMENTS",
    "Parameters",
    "arguments_of",
    "call_stack",
    "place_of",
)

MAX_ARGUMENTS = 16
GO_ARGUMENTS = "a Go function: arguments are not where C has them, and that differs by version"


class Parameters(Protocol):
    """What knows the parameters of functions by name and type: debug information."""

    @property
    def missing_reason(self) -> str:
        """Why nothing may be known of a function: what is not here; "" if nothing is missing."""

    def arguments(self, function: ProbeFunction) -> tuple[Argument, ...]:
        """Named arguments of a function, in order; none where nothing is known."""

    def types(self, function: ProbeFunction) -> TypeProvider | None:
        """What knows members and types' names at a function."""


@functools.cache
def arguments_of(machine: str, *, is_go: bool = False, no_return: str = "") -> tuple[Argument, ...]:
    """``arg0``… and ``return`` of any function of a CPU; none of a CPU that is not known.

    Args:
        machine: the CPU, as ElfFile.machine_name gives it.
        is_go: whether it is Go code.
        no_return: why there is no ``return``.
    """
    convention = CONVENTIONS.get(machine)
    slots = saved_registers(machine)
    if convention is None or not slots:
        return ()
    word = word_size(machine)
    kind = ValueType(ValueClass.SIGNED, word)
    made = []
    for number in range(MAX_ARGUMENTS):
        later = number - len(convention.arguments)
        fetch: Register | Memory | Unreadable
        if is_go:
            fetch = Unreadable(GO_ARGUMENTS)
        elif later < 0:
            fetch = Register(slots[convention.arguments[number]], word)
        else:
            at = convention.stack + word * later
            fetch = Memory(slots[convention.sp], None, 1, at, word, word)
        made.append(Argument(f"arg{number}", kind, fetch, hidden=True))
    result: AtFunctionReturn | Unreadable = AtFunctionReturn(
        Register(slots[convention.result], word)
    )
    if no_return:
        result = Unreadable(no_return)
    return *made, Argument("return", kind, result, hidden=True)


@functools.cache
def call_stack(machine: str) -> EntryReturnMatch | None:
    """How entry and return of a function find one another."""
    convention = CONVENTIONS.get(machine)
    slots = saved_registers(machine)
    if convention is None or not slots:
        return None
    word = word_size(machine)
    popped: tuple[int, ...] = (0,)
    if convention.link is None:
        # The return address; on i386 a function that returns a structure takes its address, too.
        popped = (word,) if machine == "x86_64" else (word, 2 * word)
    return EntryReturnMatch(Register(slots[convention.sp], word), popped)


def place_of(machine: str, number: int) -> str:
    """Where an argument is, in words; -1: the result."""
    convention = CONVENTIONS.get(machine)
    if convention is None:
        return f"not known for {machine}"
    names = _narrow_names(machine)
    if number < 0:
        return f"in register {names.get(convention.result, convention.result)}"
    if number < len(convention.arguments):
        return f"in register {convention.arguments[number]}"
    at = convention.stack + word_size(machine) * (number - len(convention.arguments))
    return f"in memory at {names.get(convention.sp, convention.sp)} + {at}"


def _narrow_names(machine: str) -> dict[str, str]:
    return {"rax": "eax", "rsp": "esp"} if machine == "i386" else {}
