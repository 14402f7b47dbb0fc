"""Calling conventions name registers that are saved, and compilers follow them."""

from __future__ import annotations

import re

import pytest
from cross import TRIPLETS, assembly_of

from usdt.arch.calling_convention import CONVENTIONS, KERNEL_CONVENTIONS
from usdt.arch.pt_regs import PT_REGS, saved_registers
from usdt.base.machine import word_size

SOURCE = "long second(long a, long b) { return b; }\nlong ninth(%s) { return i; }\n"
# How a compiler spells a register of ptregs, and a load from the stack.
SPELLED = {
    "x86_64": (r"%{0}\b", r"{offset}\(%rsp\)"),
    "i386": (r"%e{short}\b", r"{offset}\(%esp\)"),
    "aarch64": (r"\b{0}\b", r"\[sp\]"),
    "arm": (r"\b{0}\b", r"\[sp, #{offset}\]"),
    "mips64el": (r"\{0}\b", r"{offset}\(\$sp\)"),
    "ppc64le": (r"\b{number}\b", r"{offset}\(1\)"),
    "riscv64": (r"\b{0}\b", r"{offset}\(sp\)"),
    "s390x": (r"%{0}\b", r"{offset}\(%r15\)"),
}


def spelled(pattern: str, name: str, offset: int = 0) -> str:
    number = re.sub(r"\D", "", name)
    return pattern.format(name, short=name[1:], number=number, offset=offset)


@pytest.mark.parametrize("machine", CONVENTIONS)
def test_registers_are_saved_ones(machine: str) -> None:
    for table in (CONVENTIONS, KERNEL_CONVENTIONS):
        found = table[machine]
        names = {*found.arguments, found.result, found.sp, found.link or found.sp}
        assert names <= saved_registers(machine).keys()


def test_every_kernel_has_a_convention() -> None:
    assert PT_REGS.keys() <= CONVENTIONS.keys()


@pytest.mark.parametrize("machine", ["x86_64", "i386", *TRIPLETS])
def test_compilers_follow_them(machine: str) -> None:
    convention = CONVENTIONS[machine]
    parameters = ", ".join(f"long {letter}" for letter in "abcdefghi")
    text = assembly_of(machine, SOURCE % parameters)
    second, _, ninth = text.partition("ninth:")
    register, memory = SPELLED[machine]
    if convention.arguments:
        assert re.search(spelled(register, convention.arguments[1]), second)
    assert re.search(spelled(register, convention.result), second.partition("second:")[2])
    offset = convention.stack + word_size(machine) * (8 - len(convention.arguments))
    assert re.search(spelled(memory, "", offset), ninth)
