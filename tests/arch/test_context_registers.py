"""Registers by name, and return addresses, of every CPU."""

from __future__ import annotations

import pytest

from kprobe.events.dialect import _REGISTERS as ACCEPTED
from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.context_registers import ContextRegisters
from usdt.arch.locations import Memory, Register, Unreadable
from usdt.arch.pt_regs import PT_REGS, saved_registers
from usdt.arch.register_names import register_offsets
from usdt.base.machine import KERNEL_MACHINE, word_size

MACHINES = sorted({*PT_REGS, *CONVENTIONS})


@pytest.mark.parametrize("machine", MACHINES)
def test_every_saved_register_has_a_name(machine: str) -> None:
    named = register_offsets(machine)
    assert named.keys() >= saved_registers(machine).keys() or machine == "i386"
    registers, size = ContextRegisters(machine), word_size(machine)
    for name in named:
        location = registers.register(name)
        assert isinstance(location, Register)
        assert location.size == (2 if name in ("cs", "ds", "es", "fs", "gs", "ss") else size)


def test_the_kernels_names_are_known() -> None:
    for machine, names in ACCEPTED.items():
        known = register_offsets({"i686": "i386"}.get(machine, machine))
        assert known.keys() >= names - {"cs", "ss", "ds", "es", "fs", "gs"}


@pytest.mark.parametrize(
    ("machine", "one", "other"),
    [
        ("x86_64", "rdi", "di"),
        ("x86_64", "eflags", "flags"),
        ("i386", "eax", "ax"),
        ("i386", "orig_eax", "orig_ax"),
        ("aarch64", "x30", "lr"),
        ("arm", "r11", "fp"),
        ("ppc64le", "r3", "gpr3"),
        ("riscv64", "pc", "epc"),
        ("mips64el", "$4", "r4"),
        ("loongarch64", "era", "csr_era"),
    ],
)
def test_a_register_of_two_names(machine: str, one: str, other: str) -> None:
    registers = ContextRegisters(machine)
    assert registers.register(one) == registers.register(other)


def test_a_register_of_a_narrow_process_lies_in_a_wider_slot() -> None:
    if KERNEL_MACHINE != "x86_64":
        pytest.skip("needs an x86-64 kernel")
    assert ContextRegisters("i386").register("edi") == Register(112, 4)
    assert ContextRegisters("x86_64").register("rdi") == Register(112, 8)
    assert isinstance(ContextRegisters("i386").register("rdi"), Unreadable)
    assert isinstance(ContextRegisters("i386").register("r8"), Unreadable)


@pytest.mark.parametrize("name", ["xmm0", "ymm15", "v3", "d0", "st0", "zmm31"])
def test_vector_registers_are_not_saved(name: str) -> None:
    found = ContextRegisters("x86_64").register(name)
    assert isinstance(found, Unreadable)
    assert "no vector and floating-point registers" in found.reason


def test_a_register_that_there_is_not() -> None:
    assert ContextRegisters("aarch64").register("rdi") == Unreadable("aarch64 has no register rdi")
    assert "have registers" in str(ContextRegisters().register("rdi"))


@pytest.mark.parametrize("machine", CONVENTIONS)
def test_the_return_address_is_in_a_register_or_on_top_of_the_stack(machine: str) -> None:
    convention, slots, size = CONVENTIONS[machine], saved_registers(machine), word_size(machine)
    for kernel in (False, True):
        found = ContextRegisters(machine, kernel=kernel, entry=True).caller
        if convention.link is not None:
            assert found == Register(slots[convention.link], size)
        else:
            stack = slots[convention.sp]
            assert found == Memory(stack, None, 1, 0, size, size, kernel=kernel)


def test_no_return_address_is_made_up() -> None:
    assert isinstance(ContextRegisters("sparc", entry=True).caller, Unreadable)
    assert isinstance(ContextRegisters(entry=True, no_registers="none here").caller, Unreadable)
