"""Registers and callers of functions of programs and of the kernel."""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from functions import WAYS, binds, here, seen
from symbol_programs import compiled
from tracing_tools import one_error, run_usdt

from usdt.arch.calling_convention import CONVENTIONS, KERNEL_CONVENTIONS
from usdt.base.errors import LanguageError, TracingError
from usdt.base.machine import KERNEL_MACHINE, PROCESS_MACHINE
from usdt.bpf.kprobes import KprobeMethod
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_RETURNS = {"aarch64": "ret", "arm": "bx lr", "s390x": "br %r14", "ppc64le": "blr"}
# Without frame pointers; the call in ends() is its last instruction.
_SOURCE = rf"""
#include <stdio.h>
#include <stdlib.h>
extern long stepped(long n);
__asm__(".globl stepped\n.type stepped, %function\nstepped:\n nop\n"
        "inside:\n nop\n {_RETURNS.get(PROCESS_MACHINE, "ret")}\n.size stepped, .-stepped\n");
__attribute__((noinline)) long leaf(long n) {{ __asm__ volatile("" : "+r"(n)); return n * 2; }}
__attribute__((noinline)) long first(long n) {{ return leaf(n) + 1; }}
__attribute__((noinline)) long second(long n) {{ return leaf(n) + stepped(n) + 2; }}
__attribute__((noinline, noreturn)) void leave(int code) {{ exit(code); }}
__attribute__((noinline, noreturn)) void ends(int code) {{ leave(code); }}
int main(void)
{{
    for (long n = 10; n < 13; n++)
        if (first(n) + second(n) == 0)
            return 1;
    ends(0);
}}
"""
_OPTIONS = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fcf-protection=none")


def made(folder: Path, *options: str) -> Path:
    options = tuple(one for one in (*_OPTIONS, *options) if one[:4] != "-fcf" or _X86)
    return compiled(folder, _SOURCE, *options, name="callers")


_X86 = PROCESS_MACHINE in ("x86_64", "i386")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("registers"))


def shown(program: Path, probe: str, *words: str) -> list[dict[str, Any]]:
    done = run_usdt("trace", "--json", "-c", program, *words, probe)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["args"] for line in done.stdout.splitlines() if '"args"' in line]


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """A 32-bit program on an x86-64 kernel."""
    if PROCESS_MACHINE != "x86_64":
        pytest.skip("needs x86-64, whose kernel runs programs of i386")
    try:
        return made(tmp_path, "-m32")
    except subprocess.CalledProcessError:
        pytest.skip("gcc -m32 makes no programs: apt-get install gcc-multilib")


def callers(events: list[dict[str, Any]]) -> list[str]:
    return [event["caller"]["symbol"] for event in events]


@pytest.mark.parametrize("items", ["caller", "caller, return", "return > 0, caller"])
def test_callers_need_no_frame_pointer(program: Path, items: str) -> None:
    events = shown(program, f"uprobe:{program}:leaf({items})")
    assert callers(events) == ["first", "second"] * 3


def test_callers_of_a_32_bit_program(narrow: Path) -> None:
    events = shown(narrow, f"uprobe:{narrow}:leaf(caller, reg(esp), *(int *)(reg(esp) + 4), arg0)")
    assert callers(events) == ["first", "second"] * 3
    for event in events:
        assert int(event["reg(esp)"], 16) < 1 << 32
        assert event["*(int*)(reg(esp)+4)"] == event["arg0"]


def test_a_call_that_ends_its_function(program: Path) -> None:
    (event,) = shown(program, f"uprobe:{program}:leave(caller, usym(caller - 1), caller + 0)")
    assert event["caller"]["symbol"] == "ends"
    assert event["usym(caller-1)"]["symbol"] == "ends"
    assert event["caller"]["address"] == event["caller+0"]


def test_callers_without_bpf(program: Path) -> None:
    probe = f"uprobe:{program}:leaf(caller, arg0 > 10)"
    try:
        events = shown(program, probe, "--via", "tracefs")
    except AssertionError as err:
        if "tracefs" not in str(err) or "uprobe_events" not in str(err):
            raise
        pytest.skip("needs uprobe_events in tracefs")
    assert callers(events) == ["first", "second"] * 2


def test_hits_by_caller(program: Path) -> None:
    words = "--json", "--by", "caller", "-c", program, f"uprobe:{program}:leaf"
    done = run_usdt("count", *words)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["key"]["caller"]["symbol"]: row["count"] for row in rows} == {
        "first": 3,
        "second": 3,
    }


def test_callers_in_a_recording(program: Path, tmp_path: Path) -> None:
    words = "-o", tmp_path / "it", "-c", program, f"uprobe:{program}:leaf(caller)"
    assert run_usdt("record", *words).returncode == 0
    done = run_usdt("report", "--json", tmp_path / "it")
    events = [json.loads(line)["args"] for line in done.stdout.splitlines()]
    assert callers(events) == ["first", "second"] * 3


def test_arguments_are_in_registers(program: Path) -> None:
    if not CONVENTIONS[PROCESS_MACHINE].arguments:
        pytest.skip("needs a CPU with arguments in registers")
    name = f'reg("{CONVENTIONS[PROCESS_MACHINE].arguments[0]}")'
    events = shown(program, f"uprobe:{program}:leaf({name}, {name} > 11, arg0)")
    assert [(event["arg0"], event[name]) for event in events] == [(12, "0xc")] * 2


def inside(program: Path) -> int:
    """The offset of the second instruction of stepped()."""
    with SymbolTables(ElfFile(str(program))) as symbols:
        first, second = (symbols.named(name)[0].address for name in ("stepped", "inside"))
    return second - first


def test_registers_inside_a_function(program: Path) -> None:
    if not CONVENTIONS[PROCESS_MACHINE].arguments:
        pytest.skip("needs a CPU with arguments in registers")
    register = CONVENTIONS[PROCESS_MACHINE].arguments[0]
    place = f"uprobe:{program}:stepped+{inside(program)}"
    events = shown(program, f'{place}(reg("{register}") + 0)')
    assert [list(event.values()) for event in events] == [[10], [11], [12]]
    done = run_usdt("count", "--json", "-c", program, f"{place}(reg({register}) > 10)")
    assert json.loads(done.stdout)["count"] == 2
    done = run_usdt("stats", "--json", "-c", program, f"{place}(reg({register}))")
    assert json.loads(done.stdout)["sum"] == 33
    assert run_usdt("check", f"{place}(reg({register}))").returncode == 0
    for items, reason in (("arg0", "reg(NAME) reads a register"), ("caller", "ustack and kstack")):
        assert reason in one_error(run_usdt("trace", f"{place}({items})"), code=2)


def test_a_double_in_a_register_and_its_bits_in_memory(tmp_path: Path) -> None:
    if PROCESS_MACHINE != "x86_64":
        pytest.skip("needs x86-64, for the code of the function")
    source = "double half(double x) { return x / 2; } int main(void) { return half(3) == 0; }"
    path = compiled(tmp_path, source, "-O0", "-g", "-fcf-protection=none", name="half")
    function = f"uprobe:{path}:half"
    reason = "a floating-point number in register xmm0, which programs on uprobes cannot read"
    for item in ("x", "return"):
        assert shown(path, f"{function}({item})") == [{item: {"error": reason}}]
        checked = run_usdt("check", f"{function}({item})")
        assert f"half: {item} cannot be read: {reason}" in checked.stdout
        assert checked.returncode == 1
    compared = run_usdt("trace", "-c", path, f"{function}(x > 1)")
    assert f"not readable: {reason}" in one_error(compared, code=2)
    probe = f"{function}+9(hex(*(long *)(reg(rbp) - 8)))"  # push, mov, movsd
    (event,) = shown(path, probe)
    assert [int(value, 16).to_bytes(8, "little") for value in event.values()] == [
        struct.pack("<d", 3.0)
    ]


def test_a_usdt_probe_has_registers_and_a_tracepoint_has_none() -> None:
    program = build("default", "loop")
    done = run_usdt(
        *("trace", "--json", "-c", f"{program} -n 2"), "loop:hit(usym(reg(sp)), reg(sp) != 0)"
    )
    events = [json.loads(line)["args"] for line in done.stdout.splitlines() if '"cpu"' in line]
    assert {event["usym(reg(sp))"]["module"] for event in events} == {"[stack]"}, done.stderr
    error = one_error(run_usdt("trace", "-c", program, "loop:hit(caller)"), code=2)
    assert "at a function's entry, which loop:hit is not" in error
    done = run_usdt("trace", "-a", "-d", "1", "tracepoint:sched:sched_switch(reg(sp))")
    assert "only functions (uprobe:, kprobe:) and USDT probes" in one_error(done, code=2)


# --- the kernel ----------------------------------------------------------------------------------

_FULL = [way for way in WAYS if way not in (KprobeMethod.FENTRY, KprobeMethod.KPROBE_MULTI)]
_kernel = pytest.mark.usefixtures("kprobes")
_ARGUMENTS = KERNEL_CONVENTIONS[KERNEL_MACHINE].arguments


@_kernel
@pytest.mark.parametrize("way", [way for way in WAYS if way is not KprobeMethod.FENTRY])
def test_callers_of_a_kernel_function(way: KprobeMethod) -> None:
    found = seen(binds, "inet_bind(caller, caller != 0)", way=here(way))
    assert len(found) == 2
    for event in found:
        assert "bind" in event["args"]["caller"]["symbol"], event
        assert event["args"]["caller"]["symbol"] != "inet_bind"


@_kernel
@pytest.mark.parametrize("way", _FULL)
def test_registers_of_a_kernel_function(way: KprobeMethod) -> None:
    name = f'reg("{_ARGUMENTS[2]}")'
    found = seen(binds, f"inet_bind((int){name}, (int){name} == 16)", way=here(way))
    assert [event["args"] for event in found] == [{f"(int){name}": 16}] * 2


@_kernel
def test_the_way_is_chosen_by_what_it_reads() -> None:
    name = _ARGUMENTS[2]
    found = seen(binds, f"inet_bind(caller, (int)reg({name}), return)")
    assert Counter(event["args"]["return"] for event in found) == {-99: 1, 0: 1}
    for probe, way in (
        (f"inet_bind(reg({name}))", KprobeMethod.KPROBE_MULTI),
        ("inet_bind(caller)", KprobeMethod.FENTRY),
        ("fentry:inet_bind(caller)", KprobeMethod.FENTRY),
    ):
        if WAYS[way]():
            with pytest.raises(LanguageError, match=r"do not have the register that this reads"):
                seen(binds, probe, way=way)


@_kernel
def test_registers_inside_a_kernel_function() -> None:
    # Where its second instruction begins differs: try those that the kernel accepts.
    tried: list[str] = []
    for offset in range(1, 24):
        try:
            found = seen(binds, f'inet_bind+{offset}(reg("sp") != 0, ksym(reg("sp")), pid)')
        except TracingError as err:
            tried.append(str(err))
            continue
        if found:
            assert len(found) == 2
            assert found[0]["probe"] == f"kprobe:inet_bind+{offset:#x}"
            break
    else:
        pytest.fail("; ".join(tried[-3:]))
    with pytest.raises(LanguageError, match="inside a function"):
        seen(binds, "inet_bind+4(arg0)")
