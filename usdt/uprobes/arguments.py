"""Arguments and result of a function without debug information, by the calling convention.

Every argument is assumed to be an integer or a pointer in one register or stack slot. Names and
types of parameters come from a :class:`Parameters`, if there is one.
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
    "location_text",
)

MAX_ARGUMENTS = 16
GO_ARGUMENTS = "a Go function: its calling convention is not C's, and differs by version"


class Parameters(Protocol):
    """A source of the names and types of parameters, such as debug information."""

    @property
    def missing_reason(self) -> str:
        """Return the part of the debug information that is missing; "" if it is complete."""

    def described(self, function: ProbeFunction) -> object | None:
        """Return the description of a function, or None if it has none."""

    def arguments(self, function: ProbeFunction) -> tuple[Argument, ...]:
        """Return the named arguments of a function, in order; empty if nothing is known."""

    def types(self, function: ProbeFunction) -> TypeProvider | None:
        """Return the provider of types and members at a function."""


@functools.cache
def arguments_of(machine: str, *, is_go: bool = False, no_return: str = "") -> tuple[Argument, ...]:
    """Return ``arg0``, … and ``return`` of any function of a CPU; empty for an unknown CPU.

    Args:
        machine: the CPU, as ElfFile.machine_name returns it.
        is_go: True for Go code.
        no_return: why ``return`` cannot be read; "" if it can.
    """
    convention = CONVENTIONS.get(machine)
    slots = saved_registers(machine)
    if convention is None or not slots:
        return ()
    word = word_size(machine)
    kind = ValueType(ValueClass.SIGNED, word)
    arguments = []
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
        arguments.append(Argument(f"arg{number}", kind, fetch, hidden=True))
    result: AtFunctionReturn | Unreadable = AtFunctionReturn(
        Register(slots[convention.result], word)
    )
    if no_return:
        result = Unreadable(no_return)
    return *arguments, Argument("return", kind, result, hidden=True)


@functools.cache
def call_stack(machine: str) -> EntryReturnMatch | None:
    """Return the rule that matches a call's return with its entry; None for an unknown CPU."""
    convention = CONVENTIONS.get(machine)
    slots = saved_registers(machine)
    if convention is None or not slots:
        return None
    word = word_size(machine)
    popped: tuple[int, ...] = (0,)
    if convention.link is None:
        # A return pops the return address; on i386, a function that returns a structure also pops
        # the address of the result.
        popped = (word,) if machine == "x86_64" else (word, 2 * word)
    return EntryReturnMatch(Register(slots[convention.sp], word), popped)


def location_text(machine: str, number: int) -> str:
    """Return the location of an argument as text; ``number`` -1 is the result."""
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
