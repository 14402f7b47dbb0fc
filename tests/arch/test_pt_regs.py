"""Offsets, numbers and sizes of other CPUs are those of the kernel's own headers."""

from __future__ import annotations

import pytest
from cross import TRIPLETS, numbers_of

from usdt.arch.pt_regs import PT_REGS, PT_REGS_X86_64, saved_registers
from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, PROCESS_MACHINE, word_size
from usdt.bpf._uapi import SYSCALLS, ioctl_number

MACHINES = ("x86_64", "i386", *TRIPLETS)

# struct pt_regs or what programs get in its place, and its members by the names used here.
_POWERPC = {
    **{f"r{n}": f"gpr[{n}]" for n in range(32)},
    **{name: name for name in ("nip", "msr", "ctr", "link", "xer", "ccr")},
}
_RISCV = {name: name for name in PT_REGS["riscv64"]}
_I386 = {
    **{f"r{name}": f"e{name}" for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "ip")},
    "rsp": "esp",
    "eflags": "eflags",
    **{name: f"x{name}" for name in ("ds", "es", "fs", "gs", "cs", "ss")},
}
STRUCTURES = {
    "x86_64": ("struct pt_regs", {name: name for name in PT_REGS_X86_64}),
    "i386": ("struct pt_regs", _I386),
    "aarch64": (
        "struct user_pt_regs",
        {**{f"x{n}": f"regs[{n}]" for n in range(31)}, "sp": "sp", "pc": "pc", "pstate": "pstate"},
    ),
    "arm": (
        "struct pt_regs",
        {name: f"uregs[{n}]" for n, name in enumerate(PT_REGS["arm"])},
    ),
    "ppc64le": ("struct pt_regs", _POWERPC),
    "riscv64": ("struct user_regs_struct", _RISCV),
    "s390x": (
        "user_pt_regs",
        {"pswm": "psw.mask", "pswa": "psw.addr", **{f"r{n}": f"gprs[{n}]" for n in range(16)}},
    ),
}


@pytest.mark.parametrize("machine", STRUCTURES)
def test_registers_are_where_the_headers_say(machine: str) -> None:
    structure, members = STRUCTURES[machine]
    offsets = {name: f"offsetof({structure}, {member})" for name, member in members.items()}
    assert numbers_of(machine, "asm/ptrace.h", offsets) == {
        name: PT_REGS[machine][name] for name in members
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_headers(machine: str) -> None:
    wanted = {
        "bpf": "__NR_bpf",
        "perf_event_open": "__NR_perf_event_open",
        "set_bpf": "(int)PERF_EVENT_IOC_SET_BPF",
        "enable": "PERF_EVENT_IOC_ENABLE",
        "word": "sizeof(long)",
        "big": "__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__",
    }
    found = numbers_of(machine, "asm/unistd.h linux/perf_event.h", wanted)
    numbers = SYSCALLS.get(machine, SYSCALLS["generic"])
    assert (found["bpf"], found["perf_event_open"]) == numbers
    assert found["set_bpf"] & 0xFFFFFFFF == ioctl_number("$", 8, 4, machine=machine)
    assert found["enable"] == ioctl_number("$", 0, machine=machine)
    assert found["word"] == word_size(machine)
    assert bool(found["big"]) is (machine in BIG_ENDIAN)


@pytest.mark.parametrize(
    ("machine", "kernel", "name", "offset"),
    [
        pytest.param("i386", "x86_64", "rax", 80, id="i386 on x86-64"),
        pytest.param("i386", "i386", "rax", 24, id="i386"),
        pytest.param("i386", "s390x", "rax", 24, id="i386 seen elsewhere"),
        pytest.param("arm", "aarch64", "sp", 104, id="arm on arm64"),
        pytest.param("s390", "s390x", "r2", 44, id="the end of a big-endian slot"),
        pytest.param("ppc", "ppc64", "r3", 28, id="another"),
        pytest.param("ppc", "ppc", "r3", 12, id="in words of its own"),
        pytest.param("mips", "mips", "$4", 48, id="behind the argument space"),
        pytest.param("mips", "mips64", "$4", 36, id="which 64-bit kernels lack"),
    ],
)
def test_registers_of_a_process_on_a_kernel(
    machine: str, kernel: str, name: str, offset: int
) -> None:
    assert saved_registers(machine, kernel)[name] == offset


def test_a_machine_without_a_table_has_no_registers() -> None:
    assert saved_registers("vax") == {}


def test_this_machine_is_known() -> None:
    assert KERNEL_MACHINE in PT_REGS
    assert word_size(PROCESS_MACHINE) <= word_size(KERNEL_MACHINE)
