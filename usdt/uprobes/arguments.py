"""Arguments and result of a function without debug information, by the calling convention.

Every argument is assumed to be an integer or a pointer in one register or stack slot.
"""

from __future__ import annotations

import functools

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

__all__ = (
    "GO_ARGUMENTS",
    "MAX_ARGUMENTS",
    "arguments_of",
    "call_stack",
    "location_text",
)

MAX_ARGUMENTS = 16
GO_ARGUMENTS = "a Go function: its calling convention is not C's, and differs by version"


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
