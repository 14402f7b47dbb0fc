"""Operands of x86-64 and i386: what they mean, and what a program fetches for them."""

from __future__ import annotations

import pytest

from usdt.arch.locations import (
    Address,
    Constant,
    Location,
    Memory,
    Register,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.arch.operands import arch_of, x86
from usdt.arch.pt_regs import PT_REGS_X86_64
from usdt.probes.argspec import Operand, parse_arguments

ET_EXEC, ET_DYN, LOCATION = 2, 3, 0x1100
SYMBOLS: dict[str, int | str] = {
    "sv": 0x4010,
    "seq_iter.6": 0x4020,
    "shared": 0x4030,
    "shared@GOT": 0x3FD0,
    "_GLOBAL_OFFSET_TABLE_": 0x3FE8,
    ".LC0": "no symbol table keeps .LC0",
    "ti": "ambiguous: 2 symbols named ti",
}
R = PT_REGS_X86_64


def one(text: str, machine: str) -> Operand:
    (operand,) = parse_arguments(text, machine)
    return operand


def fetch_of(text: str, machine: str = "x86_64", elf_type: int = ET_DYN) -> Location:
    return x86.fetch(
        one(text, machine),
        symbol_address=lambda name: SYMBOLS.get(name, f"no {name}"),
        location=LOCATION,
        machine=machine,
        elf_type=elf_type,
    )


def mem(
    base: str | None, displacement: int = 0, index: str | None = None, scale: int = 1, size: int = 8
) -> Memory:
    return Memory(
        base=None if base is None else R[base],
        index=None if index is None else R[index],
        scale=scale,
        displacement=displacement,
        address_size=8,
        size=size,
    )


def mem32(
    base: str | None, displacement: int = 0, index: str | None = None, scale: int = 1, size: int = 4
) -> Memory:
    return Memory(
        base=None if base is None else R[base],
        index=None if index is None else R[index],
        scale=scale,
        displacement=displacement,
        address_size=4,
        size=size,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@$5", 5, id="decimal"),
        pytest.param("-4@$-5", -5, id="negative"),
        pytest.param("4@$-1", 4294967295, id="negative wrapped to unsigned 4 bytes"),
        pytest.param("-4@$4294967295", -1, id="unsigned wrapped to signed 4 bytes"),
        pytest.param("4@$-2147483648", 2147483648, id="the least int as unsigned"),
        pytest.param("1@$-1", 255, id="wrapped to one byte"),
        pytest.param("-1@$-128", -128, id="the least signed byte"),
        pytest.param("-2@$65535", -1, id="wrapped to two bytes"),
        pytest.param("8@$18446744073709551615", 2**64 - 1, id="the greatest unsigned long"),
        pytest.param("-8@$18446744073709551615", -1, id="the same as signed"),
        pytest.param("8@$-9223372036854775808", 2**63, id="the least long as unsigned"),
        pytest.param("-8@$-9223372036854775808", -(2**63), id="the least long"),
        pytest.param("8@$0xdeadbeef", 0xDEADBEEF, id="hexadecimal"),
        pytest.param("-8@$-0x10", -16, id="negative hexadecimal"),
        pytest.param("8@$010", 8, id="octal"),
        pytest.param("8@$0b101", 5, id="binary"),
        pytest.param("8@$4+8-2", 10, id="a sum"),
        pytest.param("8f@$4607182418800017408", 0x3FF0000000000000, id="the bits of a double"),
    ],
)
@pytest.mark.parametrize("machine", ["x86_64", "i386"])
def test_constants(text: str, expected: int, machine: str) -> None:
    operand = one(text, machine)
    assert (operand.kind, operand.value, operand.error) == ("constant", expected, None)
    assert fetch_of(text, machine) == Constant(expected)


@pytest.mark.parametrize(
    "text", ["8@$18446744073709551616", "8@$-9223372036854775809", "8@$" + "9" * 5000]
)
def test_a_constant_that_fits_no_64_bits_is_unknown(text: str) -> None:
    assert one(text, "x86_64").kind == "unknown"


def test_a_constant_of_16_bytes_says_it_is_not_read() -> None:
    assert fetch_of("16@$1") == Unreadable(
        "a constant of 16 bytes is not supported (1, 2, 4 and 8 are)"
    )


@pytest.mark.parametrize(
    ("text", "slot", "size"),
    [
        pytest.param("8@%rax", "rax", 8, id="a full register"),
        pytest.param("-4@%eax", "rax", 4, id="its lower half"),
        pytest.param("2@%ax", "rax", 2, id="its lowest two bytes"),
        pytest.param("1@%al", "rax", 1, id="its lowest byte"),
        pytest.param("1@%eax", "rax", 1, id="the size rules, not the register's width"),
        pytest.param("8@%edi", "rdi", 8, id="the size rules upwards too: all 8 bytes are saved"),
        pytest.param("2@%di", "rdi", 2, id="di"),
        pytest.param("-1@%dil", "rdi", 1, id="dil"),
        pytest.param("1@%sil", "rsi", 1, id="sil"),
        pytest.param("1@%bpl", "rbp", 1, id="bpl"),
        pytest.param("1@%spl", "rsp", 1, id="spl"),
        pytest.param("1@%r8b", "r8", 1, id="r8b"),
        pytest.param("2@%r9w", "r9", 2, id="r9w"),
        pytest.param("-4@%r10d", "r10", 4, id="r10d"),
        pytest.param("8@%r15", "r15", 8, id="r15"),
        pytest.param("8@%rip", "rip", 8, id="the instruction pointer"),
        pytest.param("4@%eip", "rip", 4, id="its lower half too"),
        pytest.param("2@%cs", "cs", 2, id="a segment register that is saved"),
        pytest.param("4f@%edx", "rdx", 4, id="a float"),
        pytest.param("8f@%rdx", "rdx", 8, id="a double"),
        pytest.param("%rdi", "rdi", 8, id="no size"),
    ],
)
def test_registers_of_x86_64(text: str, slot: str, size: int) -> None:
    assert one(text, "x86_64").kind == "register"
    assert fetch_of(text) == Register(R[slot], size)


@pytest.mark.parametrize("letter", "abcd")
@pytest.mark.parametrize("machine", ["x86_64", "i386"])
def test_high_bytes_are_one_byte_further(letter: str, machine: str) -> None:
    assert fetch_of(f"1@%{letter}h", machine) == Register(R[f"r{letter}x"] + 1, 1)


@pytest.mark.parametrize(
    ("text", "slot", "size"),
    [
        pytest.param("-4@%eax", "rax", 4, id="a full register"),
        pytest.param("1@%eax", "rax", 1, id="one byte of a full register"),
        pytest.param("2@%edi", "rdi", 2, id="two bytes of a full register"),
        pytest.param("1@%edx", "rdx", 1, id="one byte of edx"),
        pytest.param("4@%ebp", "rbp", 4, id="ebp"),
        pytest.param("4@%esp", "rsp", 4, id="esp"),
        pytest.param("2@%si", "rsi", 2, id="si"),
        pytest.param("1@%bl", "rbx", 1, id="bl"),
        pytest.param("4@%eip", "rip", 4, id="eip"),
        pytest.param("%edi", "rdi", 4, id="no size"),
    ],
)
def test_registers_of_i386(text: str, slot: str, size: int) -> None:
    assert fetch_of(text, "i386") == Register(R[slot], size)


@pytest.mark.parametrize(
    "name", ["r8", "rax", "sil", "dil", "bpl", "spl", "r8d", "rip", "xmm8", "riz", "", "foo", "EAX"]
)
def test_i386_has_no_such_register(name: str) -> None:
    operand = one(f"4@%{name}", "i386")
    assert operand.kind == "unknown"
    assert operand.error == f"i386 has no register {name!r}"


@pytest.mark.parametrize("name", ["xmm0", "ymm1", "zmm31", "mm3", "st", "st(7)", "k1", "fs", "gs"])
def test_registers_the_kernel_does_not_save_say_so(name: str) -> None:
    operand = one(f"8f@%{name}", "x86_64")
    assert (operand.kind, operand.register) == ("register", name)
    reason = f"%{name} is not saved where a program can read it"
    assert fetch_of(f"8f@%{name}") == Unreadable(reason)


@pytest.mark.parametrize(
    ("text", "machine", "reason"),
    [
        pytest.param(
            "2@%ah",
            "x86_64",
            "%ah holds a part of its 2 bytes; the rest is not noted",
            id="a high byte is one byte",
        ),
        pytest.param(
            "3@%eax",
            "x86_64",
            "a value of 3 bytes in a register is not supported (1, 2, 4 and 8 are)",
            id="an odd size in a register",
        ),
    ],
)
def test_registers_that_hold_not_all_of_it_keep_their_place(
    text: str, machine: str, reason: str
) -> None:
    operand = one(text, machine)
    assert operand.kind == "register"
    assert fetch_of(text, machine) == Unreadable(reason)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("8@(%rsp)", mem("rsp"), id="a base alone"),
        pytest.param("8@-24(%rbp)", mem("rbp", -24), id="a base and a displacement"),
        pytest.param("8@0x10(%rsp)", mem("rsp", 16), id="a hexadecimal displacement"),
        pytest.param("8@010(%rsp)", mem("rsp", 8), id="an octal displacement"),
        pytest.param("4@-8+3+1(%rbp)", mem("rbp", -4, size=4), id="a sum"),
        pytest.param("4@8+-4(%rbp)", mem("rbp", 4, size=4), id="a sum with two signs"),
        pytest.param("4@+8(%rbp)", mem("rbp", 8, size=4), id="a plus before it"),
        pytest.param("4@18446744073709551612(%rbp)", mem("rbp", -4, size=4), id="wraps around"),
        pytest.param("-4@(%rax,%rdi,4)", mem("rax", 0, "rdi", 4, 4), id="base, index, scale"),
        pytest.param("-1@(%r9,%r8)", mem("r9", 0, "r8", 1, 1), id="no scale"),
        pytest.param("-4@48(%rdi,%rsi,4)", mem("rdi", 48, "rsi", 4, 4), id="all four"),
        pytest.param("8@( %rax , %rdi , 8 )", mem("rax", 0, "rdi", 8), id="blanks inside"),
        pytest.param("8@(,%rdi,8)", mem(None, 0, "rdi", 8), id="no base"),
        pytest.param("8@(,%rdi)", mem(None, 0, "rdi", 1), id="no base and no scale"),
        pytest.param("8@16(,%rdi,2)", mem(None, 16, "rdi", 2), id="no base, a displacement"),
        pytest.param("8@(%rax,%riz,4)", mem("rax"), id="a pseudo index"),
        pytest.param("8@(%rax,,)", mem("rax"), id="commas and nothing between"),
        pytest.param("8@4096", mem(None, 4096), id="an absolute address"),
        pytest.param("8@8(%rip)", mem("rip", 8), id="a number relative to the noted place"),
        pytest.param("8@%ds:(%rax)", mem("rax"), id="a segment that begins at 0"),
        pytest.param("8@%ss:-8(%rbp)", mem("rbp", -8), id="the stack's segment"),
        pytest.param("4@sv(%rip)", mem("rip", 0x4010 - LOCATION, size=4), id="a symbol"),
        pytest.param("8@32+sv(%rip)", mem("rip", 0x4030 - LOCATION), id="number and symbol"),
        pytest.param("8@sv+32(%rip)", mem("rip", 0x4030 - LOCATION), id="symbol and number"),
        pytest.param("8@sv-16(%rip)", mem("rip", 0x4000 - LOCATION), id="symbol less a number"),
        pytest.param("8@(sv+8)(%rip)", mem("rip", 0x4018 - LOCATION), id="in parentheses"),
        pytest.param("8@(sv+8)", mem("rip", 0x4018 - LOCATION), id="in parentheses, no register"),
        pytest.param(
            "8@seq_iter.6(%rip)", mem("rip", 0x4020 - LOCATION), id="a static of a function"
        ),
        pytest.param("16@(%rdi)", mem("rdi", size=16), id="a struct by value"),
        pytest.param("3@(%rdi)", mem("rdi", size=3), id="a struct of an odd size"),
        pytest.param("16f@8(%rsp)", mem("rsp", 8, size=16), id="a long double"),
        pytest.param("4f@(%rax)", mem("rax", size=4), id="a float"),
        pytest.param(
            "4@(%eax)", Memory(R["rax"], None, 1, 0, 4, 4), id="32-bit registers cut the address"
        ),
        pytest.param(
            "8@shared@GOTPCREL(%rip)",
            mem("rip", 0x3FD0 - LOCATION),
            id="a slot of the table the loader fills",
        ),
        pytest.param("4@sv", mem("rip", 0x4010 - LOCATION, size=4), id="a bare symbol"),
        pytest.param(
            "4@sv(,%rdi,4)", mem("rip", 0x4010 - LOCATION, "rdi", 4, 4), id="a symbol and an index"
        ),
        pytest.param(
            "1@sv(%rdi)", mem("rdi", 0x4010 - LOCATION, "rip", 1, 1), id="a symbol and a base"
        ),
        pytest.param(
            "4@sv@GOTOFF(%rbx)", mem("rbx", 0x4010 - 0x3FE8, size=4), id="relative to the table"
        ),
    ],
)
def test_memory_of_x86_64_in_a_file_loaded_anywhere(text: str, expected: Memory) -> None:
    assert one(text, "x86_64").kind == "memory"
    assert fetch_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("4@sv", mem(None, 0x4010, size=4), id="a bare symbol"),
        pytest.param("4@sv+12", mem(None, 0x401C, size=4), id="a bare symbol and a number"),
        pytest.param("4@sv(,%rdi,4)", mem(None, 0x4010, "rdi", 4, 4), id="indexed by a register"),
        pytest.param("1@sv(%rdi)", mem("rdi", 0x4010, size=1), id="with a base"),
        pytest.param("1@sv(%rdi,%rax,2)", mem("rdi", 0x4010, "rax", 2, 1), id="with both"),
        pytest.param("4@sv(%rip)", mem("rip", 0x4010 - LOCATION, size=4), id="relative to ip"),
        pytest.param("8@$sv", Constant(0x4010), id="the address of a symbol"),
        pytest.param("8@$sv+4", Constant(0x4014), id="the address of a symbol and a number"),
        pytest.param("1@$4+sv", Constant(0x14), id="cut to its size"),
        pytest.param("8@sv@GOTPCREL(%rip)", Constant(0x4010), id="a slot that was never made"),
    ],
)
def test_x86_64_in_a_file_loaded_at_its_link_time_address(text: str, expected: Location) -> None:
    assert fetch_of(text, elf_type=ET_EXEC) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@20(%esp)", mem32("rsp", 20), id="on the stack"),
        pytest.param("-8@4(%esp)", mem32("rsp", 4, size=8), id="8 bytes on the stack"),
        pytest.param("-4@4(%eax,%ecx)", mem32("rax", 4, "rcx"), id="base and index"),
        pytest.param("-4@(%esp,%eax,4)", mem32("rsp", 0, "rax", 4), id="base, index and scale"),
        pytest.param("4@4294967292(%ebp)", mem32("rbp", -4), id="a displacement wraps around"),
        pytest.param("4@sv@GOTOFF(%ebx)", mem32("rbx", 0x4010 - 0x3FE8), id="relative to the GOT"),
        pytest.param(
            "4@40+sv@GOTOFF(%ebx)", mem32("rbx", 0x4038 - 0x3FE8), id="with a number before"
        ),
        pytest.param(
            "-4@sv@GOTOFF(%eax,%edx,4)", mem32("rax", 0x4010 - 0x3FE8, "rdx", 4), id="with an index"
        ),
        pytest.param(
            "-1@sv@GOTOFF(%eax,%edx)",
            mem32("rax", 0x4010 - 0x3FE8, "rdx", 1, 1),
            id="no scale: either register may be the table's",
        ),
        pytest.param("4@shared@GOT(%ebx)", mem32("rip", 0x3FD0 - LOCATION), id="a slot of the GOT"),
        pytest.param("-4@sv", mem32("rip", 0x4010 - LOCATION), id="a bare symbol"),
    ],
)
def test_memory_of_i386(text: str, expected: Memory) -> None:
    assert one(text, "i386").kind == "memory"
    assert fetch_of(text, "i386") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@sv", mem32(None, 0x4010), id="a bare symbol"),
        pytest.param("-4@sv+12", mem32(None, 0x401C), id="a bare symbol and a number"),
        pytest.param("-4@sv(,%eax,4)", mem32(None, 0x4010, "rax", 4), id="indexed"),
        pytest.param("-1@sv(%eax)", mem32("rax", 0x4010, size=1), id="with a base"),
        pytest.param("-4@sv@GOTOFF(%ebx)", mem32("rbx", 0x4010 - 0x3FE8), id="relative to the GOT"),
        pytest.param("4@$sv", Constant(0x4010), id="the address of a symbol"),
    ],
)
def test_i386_in_a_file_loaded_at_its_link_time_address(text: str, expected: Location) -> None:
    assert fetch_of(text, "i386", ET_EXEC) == expected


THREAD_LOCAL = "thread-local: the thread pointer is not among the saved registers"
LOADED = "the address of sv depends on where the file is loaded"


@pytest.mark.parametrize(
    ("text", "machine", "reason"),
    [
        pytest.param("-8@%fs:tl@tpoff", "x86_64", THREAD_LOCAL, id="thread-local of x86-64"),
        pytest.param("-4@%gs:tl@ntpoff", "i386", THREAD_LOCAL, id="thread-local of i386"),
        pytest.param("8@%fs:0x28", "x86_64", THREAD_LOCAL, id="the stack protector's canary"),
        pytest.param("8@%fs:(%rax)", "x86_64", THREAD_LOCAL, id="through a register"),
        pytest.param("8@tl@tpoff(%rax)", "x86_64", THREAD_LOCAL, id="without the segment"),
        pytest.param("8@tl@gottpoff(%rip)", "x86_64", THREAD_LOCAL, id="the offset's own slot"),
        pytest.param("4@ti(%rip)", "x86_64", SYMBOLS["ti"], id="an ambiguous symbol"),
        pytest.param("8f@.LC0(%rip)", "x86_64", SYMBOLS[".LC0"], id="a label of the assembler"),
        pytest.param("8@none@GOTPCREL(%rip)", "x86_64", "no none", id="a symbol nobody knows"),
        pytest.param("8@$none", "x86_64", "no none", id="its address"),
        pytest.param("8@sv(%rbx,%rdi,4)", "x86_64", LOADED, id="no register is left for ip"),
        pytest.param(
            "8@sv@PLT(%rbx)", "x86_64", "relocation @PLT cannot be followed here", id="another @"
        ),
        pytest.param(
            "8@sv@GOTPCREL+8(%rip)",
            "x86_64",
            "relocation @GOTPCREL cannot be followed here",
            id="beside a slot of the table",
        ),
        pytest.param(
            "8@4@GOTOFF(%rbx)", "x86_64", "relocation @GOTOFF has no symbol", id="no symbol"
        ),
        pytest.param(
            "5000@(%rax)",
            "x86_64",
            "a value of 5000 bytes is not supported (at most 4096)",
            id="a value larger than any",
        ),
    ],
)
def test_what_cannot_be_read_keeps_its_kind_and_says_why(
    text: str, machine: str, reason: str
) -> None:
    assert one(text, machine).kind in ("memory", "constant")
    assert fetch_of(text, machine) == Unreadable(reason)


@pytest.mark.parametrize(
    ("text", "machine", "displacement", "size"),
    [
        pytest.param("8@sv@GOTPCREL(%rip)", "x86_64", 0x4010, 8, id="a slot that was never made"),
        pytest.param("8@$sv", "x86_64", 0x4010, 8, id="an address as a constant"),
        pytest.param("8@$sv+4", "x86_64", 0x4014, 8, id="an address and a number"),
        pytest.param("4@$sv", "i386", 0x4010, 4, id="an address of 32 bits"),
    ],
)
def test_an_address_in_a_file_loaded_anywhere_is_relative_to_ip(
    text: str, machine: str, displacement: int, size: int
) -> None:
    ip = PT_REGS_X86_64["rip"]
    assert fetch_of(text, machine) == Address(ip, displacement - LOCATION, size, size)


def test_a_file_without_a_got_has_no_got_relative_operands() -> None:
    fetched = x86.fetch(
        one("4@sv@GOTOFF(%ebx)", "i386"),
        symbol_address=lambda name: 16 if name == "sv" else f"no {name}",
        location=0,
        machine="i386",
        elf_type=ET_DYN,
    )
    assert fetched == Unreadable("no _GLOBAL_OFFSET_TABLE_")


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        pytest.param("8@()", "x86_64", id="empty parentheses"),
        pytest.param("8@(,)", "x86_64", id="a comma alone"),
        pytest.param("8@(4)(%rax", "x86_64", id="parentheses that do not close"),
        pytest.param("8@,%rax)", "x86_64", id="parentheses that do not open"),
        pytest.param("8@(%rax,4)", "x86_64", id="a scale where the index belongs"),
        pytest.param("8@(,,4)", "x86_64", id="a scale of nothing"),
        pytest.param("8@(%rax,%rdi,3)", "x86_64", id="a scale of 3"),
        pytest.param("8@(%rax,%rdi,-1)", "x86_64", id="a negative scale"),
        pytest.param("8@(%rax,%rdi,4,1)", "x86_64", id="four parts"),
        pytest.param("8@(%rax,%edi,4)", "x86_64", id="registers of two widths"),
        pytest.param("8@(%ax)", "x86_64", id="a 16-bit base"),
        pytest.param("8@(%al)", "x86_64", id="an 8-bit base"),
        pytest.param("8@(%xmm0)", "x86_64", id="a vector base"),
        pytest.param("8@(%rip,%rax,4)", "x86_64", id="an index on ip"),
        pytest.param("8@(%rax,%rip)", "x86_64", id="ip as an index"),
        pytest.param("4@(%rax)", "i386", id="a 64-bit base on i386"),
        pytest.param("4@sv(%eip)", "i386", id="ip-relative on i386"),
        pytest.param("8@a+b(%rip)", "x86_64", id="two symbols"),
        pytest.param("8@4-sv(%rip)", "x86_64", id="less a symbol"),
        pytest.param("8@8+(%rax)", "x86_64", id="a sum without an end"),
        pytest.param("8@8--4(%rax)", "x86_64", id="two minus signs"),
        pytest.param("8@1_0(%rax)", "x86_64", id="an underscore in a number"),
        pytest.param("8@09(%rax)", "x86_64", id="9 in an octal number"),
        pytest.param("8@0x(%rax)", "x86_64", id="hexadecimal without digits"),
        pytest.param("8@12ab(%rax)", "x86_64", id="letters after a number"),
        pytest.param("8@99999999999999999999(%rax)", "x86_64", id="more than 64 bits"),
        pytest.param("8@sv@GOT@GOT(%rax)", "x86_64", id="two relocations"),
        pytest.param("8@sv@(%rax)", "x86_64", id="an empty relocation"),
        pytest.param("8@$", "x86_64", id="a constant without a number"),
        pytest.param("8@$sv@GOTOFF", "x86_64", id="a relocated constant"),
        pytest.param("8@%", "x86_64", id="a register without a name"),
        pytest.param("8@%fs:", "x86_64", id="a segment and nothing"),
        pytest.param("8@%xx:8", "x86_64", id="no segment"),
        pytest.param("8@*%rax", "x86_64", id="a jump's star"),
        pytest.param("8@[x0]", "x86_64", id="another CPU's operand"),
    ],
)
def test_what_is_no_operand_is_unknown(text: str, machine: str) -> None:
    operand = one(text, machine)
    assert operand.kind == "unknown"
    assert operand.error
    assert fetch_of(text, machine) == Unreadable(operand.error)


@pytest.mark.parametrize(
    ("text", "kind", "size"),
    [
        pytest.param("-4@%eax", ValueClass.SIGNED, 4, id="int"),
        pytest.param("1@%al", ValueClass.UNSIGNED, 1, id="unsigned char"),
        pytest.param("4f@%eax", ValueClass.FLOAT, 4, id="float"),
        pytest.param("8f@%rax", ValueClass.FLOAT, 8, id="double"),
        pytest.param("16f@(%rax)", ValueClass.BYTES, 16, id="long double: raw bytes"),
        pytest.param("16@(%rax)", ValueClass.BYTES, 16, id="struct: raw bytes"),
        pytest.param("-16@(%rax)", ValueClass.BYTES, 16, id="__int128: raw bytes"),
        pytest.param("3@(%rax)", ValueClass.BYTES, 3, id="odd size: raw bytes"),
    ],
)
def test_value_types(text: str, kind: ValueClass, size: int) -> None:
    arch = arch_of("x86_64")
    assert arch is not None
    assert arch.value_type(one(text, "x86_64")) == ValueType(kind, size)


def test_an_i386_kernel_saves_registers_in_words() -> None:
    here, there = x86.registers_of("i386", "i386"), x86.registers_of("i386", "x86_64")
    assert (here["eax"], here["ah"], here["eip"], here["esp"]) == (
        (24, 4),
        (25, 1),
        (48, 4),
        (60, 4),
    )
    assert (there["eax"], there["ah"], there["esp"]) == ((80, 4), (81, 1), (152, 4))
    assert here.keys() == there.keys()
