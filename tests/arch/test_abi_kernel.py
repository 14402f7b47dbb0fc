"""Where kernel functions are passed values, by CPU; they use no floating-point registers."""

from __future__ import annotations

import pytest

from usdt.arch.abi import Value, passing_of
from usdt.btf.format import Encoding, Kind
from usdt.btf.reader import Btf
from usdt.btf.writer import BtfWriter

_MADE = BtfWriter()
_INT = _MADE.integer("int", 4, Encoding.SIGNED)
_LONG = _MADE.integer("long", 8, Encoding.SIGNED)
_CHAR = _MADE.integer("char", 1, Encoding.SIGNED)
_WIDE = _MADE.integer("__int128", 16, Encoding.SIGNED)
_DOUBLE = _MADE.record(Kind.FLOAT, "double", 8)
_PAIR = _MADE.composite(Kind.STRUCT, "pair", 16, [("a", _LONG, 0, 0), ("b", _LONG, 64, 0)])
_SMALL = _MADE.composite(
    Kind.STRUCT, "small", 3, [("a", _CHAR, 0, 0), ("b", _CHAR, 8, 0), ("c", _CHAR, 16, 0)]
)
_WORD = _MADE.composite(Kind.STRUCT, "word", 8, [("a", _LONG, 0, 0)])
_LARGE = _MADE.composite(
    Kind.STRUCT, "large", 24, [("a", _LONG, 0, 0), ("b", _LONG, 64, 0), ("c", _LONG, 128, 0)]
)
_EMPTY = _MADE.composite(Kind.STRUCT, "empty", 0, [])
_BTF = Btf(_MADE.data())
_SPLIT = "not readable: one part of this structure of 16 bytes is in registers, the other on the"


@pytest.mark.parametrize(
    ("machine", "types", "expected"),
    [
        pytest.param(
            *("x86_64", [_INT] * 8, ["in memory at rsp + 8", "in memory at rsp + 16"]),
            id="x86-64: the seventh is on the stack",
        ),
        pytest.param(
            *("x86_64", [_LONG, _PAIR, _INT], ["in registers rsi:rdx", "in register rcx"]),
            id="x86-64: a structure of two words in two registers",
        ),
        pytest.param(
            *("x86_64", [*[_LONG] * 5, _PAIR, _INT], ["in memory at rsp + 8", "in register r9"]),
            id="x86-64: one that does not fit is on the stack, and the next takes the register",
        ),
        pytest.param(
            *("x86_64", [_LARGE, _INT], ["in memory at rsp + 8", "in register rdi"]),
            id="x86-64: a large one is always on the stack",
        ),
        pytest.param(
            *("x86_64", [_SMALL, _DOUBLE], ["in register rdi", "in register rsi"]),
            id="x86-64: three bytes in a register, and no float in any other",
        ),
        pytest.param(
            *("x86_64", [_EMPTY, _INT], ["in register ", "in register rdi"]),
            id="x86-64: an empty one takes nothing",
        ),
        pytest.param(
            *(
                "aarch64",
                [*[_LONG] * 7, _PAIR, _INT],
                ["in memory at sp + 0", "in memory at sp + 16"],
            ),
            id="arm64: one that does not fit ends the registers",
        ),
        pytest.param(
            *("aarch64", [_INT, _WIDE, _INT], ["in registers x2:x3", "in register x4"]),
            id="arm64: 16 bytes of alignment begin at an even register",
        ),
        pytest.param(
            *("aarch64", [_LARGE, _INT], ["at the address in register x0", "in register x1"]),
            id="arm64: a large one by reference",
        ),
        pytest.param(
            *("riscv64", [*[_LONG] * 7, _PAIR, _INT], [_SPLIT, "in memory at sp + 8"]),
            id="RISC-V: half in the last register, half on the stack",
        ),
        pytest.param(
            *("loongarch64", [_LARGE, _PAIR], ["at the address in register r4", "in registers r5"]),
            id="LoongArch: as RISC-V",
        ),
        pytest.param(
            *("s390x", [_SMALL, _WORD, _PAIR], ["in register r3", "at the address in register r4"]),
            id="s390x: sizes that are powers of two in registers, others by reference",
        ),
        pytest.param(
            *("s390x", [_INT] * 6, ["in register r6", "in memory at r15 + 164"]),
            id="s390x: the sixth is on the stack",
        ),
        pytest.param(
            *("ppc64le", [_LARGE, _INT], ["in registers r3:r4:r5", "in register r6"]),
            id="Power: structures of any size in registers",
        ),
        pytest.param(
            *("mips64el", [_INT, _LARGE], ["in register $4", "in registers $5:$6:$7"]),
            id="MIPS: as Power",
        ),
        pytest.param(
            *("arm", [_INT, _PAIR, _INT], ["not readable: how arm", "not readable: its place"]),
            id="arm: what is not known ends what is",
        ),
    ],
)
def test_the_last_parameters_of_a_call(machine: str, types: list[int], expected: list[str]) -> None:
    places, _ = passing_of(_BTF, machine, map(Value, types), Value(0), kernel=True)
    shown = [one.where for one in places][-len(expected) :]
    assert all(one.startswith(text) for one, text in zip(shown, expected, strict=True)), shown


@pytest.mark.parametrize(
    ("machine", "result", "first"),
    [
        ("x86_64", _LARGE, "rsi"),
        ("x86_64", _PAIR, "rdi"),
        ("aarch64", _LARGE, "x0"),
        ("s390x", _PAIR, "r3"),
        ("mips64", _LARGE, "$5"),
        ("ppc64", _LARGE, "r4"),
    ],
)
def test_a_result_in_memory_takes_the_first_register(machine: str, result: int, first: str) -> None:
    (place,), _ = passing_of(_BTF, machine, [Value(_LONG)], Value(result), kernel=True)
    assert place.where == f"in register {first}"


@pytest.mark.parametrize("machine", ["mips64", "riscv64", "i386"])
def test_rust_results_of_cpus_without_rules(machine: str) -> None:
    _, result = passing_of(_BTF, machine, [], Value(_INT), rust=True)
    assert result.where.startswith("in register")
