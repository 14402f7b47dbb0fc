"""struct __bpf_usdt_spec: what is put into it, and its bytes in both layouts and byte orders."""

from __future__ import annotations

import errno
import sys

import pytest

from usdt.arch.locations import Memory, Register, Unreadable, ValueClass, ValueType
from usdt.arch.operands import arch_of, x86
from usdt.arch.pt_regs import PT_REGS_X86_64
from usdt.base.machine import BIG_ENDIAN, word_size
from usdt.engine.compiler.arguments import Argument
from usdt.libbpf.usdt_spec import (
    ArgType,
    ByteOrder,
    Problem,
    Spec,
    SpecArgument,
    UsdtSpecLayout,
    decode_spec,
    encode_spec,
    make_spec,
)
from usdt.probes.argspec import parse_arguments

R = PT_REGS_X86_64
ET_EXEC, ET_DYN = 2, 3
LOCATION = 0x1100
ALL_ONES = (1 << 64) - 1


def arguments_of(text: str, elf_type: int = ET_DYN) -> tuple[list[Argument], list[str]]:
    operands = parse_arguments(text, "x86_64")
    found = []
    for index, operand in enumerate(operands):
        fetch = x86.fetch(
            operand,
            symbol_address=lambda name: {"sv": 0x4010}.get(name, f"no symbol {name}"),
            location=LOCATION,
            machine="x86_64",
            elf_type=elf_type,
        )
        found.append(Argument(f"arg{index}", x86.value_type(operand), fetch))
    return found, [operand.text for operand in operands]


def spec_of(
    text: str, layout: UsdtSpecLayout = UsdtSpecLayout.CLASSIC, elf_type: int = ET_DYN
) -> tuple[Spec, tuple[Problem, ...]]:
    arguments, texts = arguments_of(text, elf_type)
    return make_spec(arguments, texts, layout=layout, byteorder="little", word=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "-4@%edi",
            SpecArgument(ArgType.REG, 0, R["rdi"], signed=True, bitshift=32),
            id="a signed int in a register",
        ),
        pytest.param(
            "1@%r9b",
            SpecArgument(ArgType.REG, 0, R["r9"], bitshift=56),
            id="a byte in a register",
        ),
        pytest.param(
            "1@%ah",
            SpecArgument(ArgType.REG, 0, R["rax"] + 1, bitshift=56),
            id="a high byte, which libbpf itself does not know",
        ),
        pytest.param(
            "8f@%rdx",
            SpecArgument(ArgType.REG, 0, R["rdx"]),
            id="the bits of a double, which libbpf itself does not know",
        ),
        pytest.param(
            "8@-1204(%rbp)",
            SpecArgument(ArgType.REG_DEREF, ALL_ONES - 1203, R["rbp"]),
            id="memory below a register",
        ),
        pytest.param(
            "-2@(%rsp)",
            SpecArgument(ArgType.REG_DEREF, 0, R["rsp"], signed=True, bitshift=48),
            id="memory at a register",
        ),
        pytest.param(
            "-4@16+sv(%rip)",
            SpecArgument(ArgType.REG_DEREF, 0x4020 - LOCATION, R["rip"], signed=True, bitshift=32),
            id="memory at a symbol, relative to the site",
        ),
        pytest.param(
            "8@8(,%rdi,1)",
            SpecArgument(ArgType.REG_DEREF, 8, R["rdi"]),
            id="an index alone, not scaled, is a base",
        ),
        pytest.param(
            "-4@$-9",
            SpecArgument(ArgType.CONST, ALL_ONES - 8, signed=True, bitshift=32),
            id="a negative constant",
        ),
        pytest.param(
            "4@$-1",
            SpecArgument(ArgType.CONST, ALL_ONES, bitshift=32),
            id="a constant is stored as it is written, not as it is read",
        ),
        pytest.param(
            "8@$18446744073709551615",
            SpecArgument(ArgType.CONST, ALL_ONES),
            id="a constant above 2^63, which libbpf saturates",
        ),
    ],
)
def test_an_operand_becomes(text: str, expected: SpecArgument) -> None:
    for layout in UsdtSpecLayout:
        assert spec_of(text, layout) == (Spec((expected,)), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-4@(%rax,%rdi,4)", SpecArgument(ArgType.SIB, 0, 80, 112, 2, signed=True, bitshift=32)),
        ("1@-96(%rbp,%rax,8)", SpecArgument(ArgType.SIB, ALL_ONES - 95, 32, 80, 3, bitshift=56)),
        ("8@(%rbx,%rcx)", SpecArgument(ArgType.SIB, 0, 40, 88, 0)),
    ],
)
def test_an_index_register_needs_the_newer_layout(text: str, expected: SpecArgument) -> None:
    assert spec_of(text, UsdtSpecLayout.SIB) == (Spec((expected,)), ())
    spec, (problem,) = spec_of(text, UsdtSpecLayout.CLASSIC)
    assert spec.arguments[0].type is ArgType.NONE
    assert problem.errno == errno.ENOENT
    assert "libbpf 1.7" in problem.text


@pytest.mark.parametrize(
    ("text", "reason", "number"),
    [
        ("8@%xmm0", "%xmm0 is not saved", errno.ENOENT),
        ("16@8(%rsp)", "a value of 16 bytes", errno.EINVAL),
        ("8@nothing(%rip)", "no symbol nothing", errno.EINVAL),
        ("-4@%fs:tl@tpoff", "thread-local", errno.EINVAL),
        ("8@(%eax)", "32 bits", errno.EINVAL),
        ("8@4(,%rdi,8)", "an index without a base", errno.EINVAL),
        ("8@0x4000", "an absolute address", errno.EINVAL),
        ("8@$sv", "the address of a symbol", errno.EINVAL),
        ("8@nonsense!", "nonsense!", errno.EINVAL),
    ],
)
def test_what_cannot_be_expressed_keeps_its_place(text: str, reason: str, number: int) -> None:
    spec, (problem,) = spec_of(f"4@%edi {text} -8@%rsi", UsdtSpecLayout.SIB)
    assert [argument.type for argument in spec.arguments] == [
        ArgType.REG,
        ArgType.NONE,
        ArgType.REG,
    ]
    assert reason in problem.text
    assert problem.text.startswith("arg1 (")
    assert problem.errno == number


def test_the_address_of_a_symbol_is_a_constant_where_the_file_is_not_moved() -> None:
    (argument,) = spec_of("8@$sv", elf_type=ET_EXEC)[0].arguments
    assert (argument.type, argument.val_off) == (ArgType.CONST, 0x4010)


def test_more_than_twelve_arguments_are_cut_and_told() -> None:
    spec, (problem,) = spec_of(" ".join(["8@%rdi"] * 13))
    assert len(spec.arguments) == 12
    assert problem.errno == errno.E2BIG


def test_a_register_of_a_big_endian_machine_is_read_whole() -> None:
    # Four bytes at the end of the register at 24 of its pt_regs.
    argument = Argument("arg0", ValueType(ValueClass.SIGNED, 4), Register(28, 4))
    spec, problems = make_spec([argument], ["-4@%r2"], byteorder="big", word=8)
    assert not problems
    assert spec.arguments == (SpecArgument(ArgType.REG, 0, 24, signed=True, bitshift=32),)


def test_unreadable_arguments_carry_their_reason() -> None:
    argument = Argument("arg3", ValueType(ValueClass.UNSIGNED, 8), Unreadable("no such thing"))
    _, problems = make_spec([argument], ["8@x"])
    assert problems == (Problem("arg3 (8@x): no such thing"),)


# Compiled from the structures by clang 14 for bpfel, bpfeb, x86-64 and s390x, which agree.
ONE = SpecArgument(ArgType.SIB, 0x1122334455667788, 0x1234, 0xABC, 2, signed=True, bitshift=0x38)
LITTLE = "8877665544332211 0300bc2a 00003412 0138000000000000"
BIG = "1122334455667788 0000abc2 03001234 0138000000000000"


@pytest.mark.parametrize(
    ("byteorder", "layout", "data"),
    [
        ("little", UsdtSpecLayout.SIB, LITTLE),
        ("big", UsdtSpecLayout.SIB, BIG),
        ("little", UsdtSpecLayout.CLASSIC, "8877665544332211 03000000 3412 01 38"),
        ("big", UsdtSpecLayout.CLASSIC, "1122334455667788 00000003 1234 01 38"),
    ],
)
def test_the_bytes_are_those_of_the_compilers(
    byteorder: str, layout: UsdtSpecLayout, data: str
) -> None:
    spec = Spec((ONE,), 0xCAFEDEADBEEFFEED)
    encoded = encode_spec(spec, layout, byteorder)  # type: ignore[arg-type]
    first = bytes.fromhex(data)
    assert len(encoded) == layout.value
    assert encoded[: len(first)] == first
    assert not any(encoded[len(first) : -16])
    tail = (0xCAFEDEADBEEFFEED).to_bytes(8, byteorder) + (1).to_bytes(2, byteorder)  # type: ignore[arg-type]
    assert encoded[-16:] == tail + bytes(6)


@pytest.mark.parametrize("layout", UsdtSpecLayout)
@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_a_spec_reads_back(layout: UsdtSpecLayout, byteorder: str) -> None:
    spec, _ = spec_of("-4@%edi 8@-8(%rbp) 1@$3 8@(%rax,%rdi,8)", layout)
    again = decode_spec(encode_spec(spec, layout, byteorder), layout, byteorder)  # type: ignore[arg-type]
    assert again == spec


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(207), "208 bytes expected, 207 given"),
        (bytes(200) + (13).to_bytes(2, sys.byteorder) + bytes(6), "13 arguments"),
        (bytes(200) + b"\xff\xff" + bytes(6), "-1 arguments"),
        (b"\x07" * 192 + bytes(8) + (1).to_bytes(2, sys.byteorder) + bytes(6), "ArgType"),
    ],
)
def test_what_is_no_spec_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_spec(data, UsdtSpecLayout.CLASSIC)


def test_thirteen_arguments_are_never_written() -> None:
    with pytest.raises(ValueError, match="at most 12"):
        encode_spec(Spec((ONE,) * 13), UsdtSpecLayout.SIB)


@pytest.mark.parametrize(
    ("machine", "text", "expected"),
    [
        pytest.param("s390x", "-1@%r3", (ArgType.REG, 48, 0, 56), id="s390x: a whole register"),
        pytest.param("s390x", "4@8(%r15)", (ArgType.REG_DEREF, 144, 8, 32), id="s390x: memory"),
        pytest.param("ppc64le", "8@9", (ArgType.REG, 72, 0, 0), id="ppc64: a register"),
        pytest.param("ppc64le", "-4@i-1", (ArgType.CONST, 0, ALL_ONES, 32), id="ppc64: a constant"),
        pytest.param("riscv64", "2@-6(s0)", (ArgType.REG_DEREF, 64, -6 & ALL_ONES, 48), id="riscv"),
        pytest.param("aarch64", "8@[sp, 16]", (ArgType.REG_DEREF, 248, 16, 0), id="arm64"),
        pytest.param("arm", "4@[r11, #-8]", (ArgType.REG_DEREF, 44, -8 & ALL_ONES, 32), id="arm"),
    ],
)
def test_other_cpus(machine: str, text: str, expected: tuple[int, int, int, int]) -> None:
    arch = arch_of(machine)
    assert arch is not None
    (operand,) = parse_arguments(text, machine)
    fetch = arch.fetch(
        operand, symbol_address=str, location=LOCATION, machine=machine, elf_type=ET_DYN
    )
    argument = Argument("arg0", arch.value_type(operand), fetch)
    order: ByteOrder = "big" if machine in BIG_ENDIAN else "little"
    spec, problems = make_spec([argument], [text], byteorder=order, word=word_size(machine))
    assert problems == ()
    (made,) = spec.arguments
    assert (made.type, made.reg_off, made.val_off, made.bitshift) == expected
    assert (
        decode_spec(encode_spec(spec, UsdtSpecLayout.SIB, order), UsdtSpecLayout.SIB, order) == spec
    )


def test_an_index_of_32_bits_cannot_be_said() -> None:
    fetch = Memory(0, 8, 4, 0, 8, 4, ValueType(ValueClass.SIGNED, 4))
    argument = Argument("arg0", ValueType(ValueClass.SIGNED, 4), fetch)
    spec, (problem,) = make_spec(
        [argument], ["-4@[x0, w1, sxtw 2]"], layout=UsdtSpecLayout.SIB, word=8
    )
    assert spec.arguments[0].type is ArgType.NONE
    assert "an index of 32 bits" in problem.text
