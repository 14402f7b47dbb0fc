"""Unwind tables: every row of real files beside readelf, and tables that are damaged."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.dwarf.units.errors import MalformedDwarf
from usdt.elf.file import ElfFile
from usdt.procfs.maps import read_maps
from usdt.unwind.expressions import MemoryNotRead, evaluate
from usdt.unwind.frame_table import FrameTable
from usdt.unwind.instructions import CommonInformation, rows_of
from usdt.unwind.rules import Cfa, RegisterRule, Row, RuleKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = [
    *("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
    "ra",
]
SOURCE = r"""
#include <alloca.h>
#include <string.h>
extern int use(char *);
int plain(int n) { return n + 1; }
int saves(int a, int b, int c) { return use((char *)0) + a + use((char *)1) * b - c; }
int dynamic(int n) { char *p = alloca(n); memset(p, 1, n); return use(p); }
int aligned(void) { char p[64] __attribute__((aligned(64))); return use(p); }
int use(char *p) { return p ? *p : 0; }
int main(void) { return plain(1) + saves(1, 2, 3) + dynamic(9) + aligned(); }
"""


def rows_of_readelf(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (address, column → rule) of every row that readelf prints."""
    command = [need_program("readelf", "binutils"), "-wF", path]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    text = text.partition("Contents of the .debug_frame")[0]
    text = re.sub(r" r\d+ \((\w+)\)", r" \1", text)  # in another register
    common: dict[str, dict[str, str]] = {}
    for entry in re.split(r"\n(?=[0-9a-f]{8} )", text)[1:]:
        head, *lines = entry.splitlines()
        rows = [line.split() for line in lines if line.strip()]
        columns = rows.pop(0)[1:] if rows else []
        if found := re.search(r"FDE cie=(\w+) pc=(\w+)\.\.(\w+)", head):
            if int(found[3], 16) > int(found[2], 16):
                if found[1] in common:
                    yield int(found[2], 16), common[found[1]]
                for address, *values in rows:
                    yield int(address, 16), dict(zip(columns, values, strict=True))
        elif " CIE " in head and rows:
            common[head.split()[0]] = dict(zip(columns, rows[0][1:], strict=True))


def as_readelf(row: Row) -> dict[str, str]:
    """A row in readelf's words, without registers that have no rule."""
    cfa = row.cfa
    text = {"CFA": f"{NAMES[cfa.register]}{cfa.offset:+}" if isinstance(cfa, Cfa) else "exp"}
    for number, rule in row.rules.items():
        match rule.kind:
            case RuleKind.SAVED:
                text[NAMES[number]] = f"c{rule.operand:+}"
            case RuleKind.IS:
                text[NAMES[number]] = f"v{rule.operand:+}"
            case RuleKind.SAVED_AT:
                text[NAMES[number]] = "exp"
            case RuleKind.COMPUTED:
                text[NAMES[number]] = "vexp"
            case RuleKind.REGISTER if isinstance(rule.operand, int):
                text[NAMES[number]] = NAMES[rule.operand]
    return text


@pytest.mark.parametrize("compiler", ["gcc -O2", "gcc -O0", "gcc -O2 -static", "clang -O2", "libc"])
def test_rows_are_those_of_readelf(compiler: str, tmp_path: Path) -> None:
    path = str(tmp_path / "program")
    if compiler == "libc":
        path = next(one.path for one in read_maps(os.getpid()) if "/libc.so" in one.path)
    else:
        need_program(compiler.split(maxsplit=1)[0])
        (tmp_path / "program.c").write_text(SOURCE)
        command = [*compiler.split(), "-o", path, tmp_path / "program.c"]
        compile_in(tmp_path, command)
    # Of two rows for one address the later one holds.
    theirs = dict(rows_of_readelf(path))
    with ElfFile(path) as elf:
        table = FrameTable(elf)
        checked = 0
        for address, values in theirs.items():
            row = table.row(address)
            assert row is not None, hex(address)
            ours = as_readelf(row)
            expected = {name: rule for name, rule in values.items() if rule not in ("u", "s")}
            assert ours == expected, hex(address)
            checked += 1
        assert checked > 10
        assert table.row(min(theirs) - 1) is None


COMMON = CommonInformation(
    code_factor=1,
    data_factor=-8,
    return_register=16,
    pointer_encoding=0x1B,
    augmented=True,
    signal=False,
    instructions=bytes.fromhex("0c070890 01".replace(" ", "")),  # CFA = rsp + 8; ra at CFA - 8
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("41 0e10", [(0, 8), (1, 16)], id="advance and a new offset"),
        pytest.param("0210 0e20", [(0, 8), (16, 32)], id="advance by a byte"),
        pytest.param("030001 0e20", [(0, 8), (256, 32)], id="advance by two bytes"),
        pytest.param("41 0a 0e40 42 0b", [(0, 8), (1, 64), (3, 8)], id="remember and restore"),
        pytest.param("41 137e", [(0, 8), (1, 16)], id="a signed, factored offset"),
        pytest.param("2e08 00 00", [(0, 8)], id="the size of arguments, and nops"),
    ],
)
def test_instructions_make_rows(code: str, expected: list[tuple[int, int]]) -> None:
    starts, rows = rows_of(COMMON, bytes.fromhex(code), 0)
    found = [
        (start, row.cfa.offset if isinstance(row.cfa, Cfa) else None)
        for start, row in zip(starts, rows, strict=True)
    ]
    assert found == expected
    assert all(row.rules[16] == RegisterRule(RuleKind.SAVED, -8) for row in rows)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("0e", "cut off", id="an operand is missing"),
        pytest.param("10 03 05 00", "cut off", id="an expression is cut off"),
        pytest.param("3f", "unknown call frame instruction 0x3f", id="an unknown instruction"),
        pytest.param("0b", "not remembered", id="nothing was remembered"),
        pytest.param("0a" * 65, "without end", id="states are remembered without end"),
        pytest.param("07 8001", "register 128", id="no such register"),
        pytest.param("41" * (1 << 19), "more than", id="more rows than a function can have"),
    ],
)
def test_damaged_instructions_are_refused(code: str, reason: str) -> None:
    with pytest.raises(MalformedDwarf, match=reason):
        rows_of(COMMON, bytes.fromhex(code), 0)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        # The procedure linkage table: rsp + 8 + ((rip & 15) >= 11) * 8
        pytest.param("7708 8000 3f 1a 3b 2a 33 24 22", 0x1010, id="procedure linkage table"),
        pytest.param("77a001 06", 0xAB, id="a word of the stack"),
        pytest.param("35 12 22", 10, id="dup, plus"),
        pytest.param("31 32 14 1c 1e", 1, id="over, minus, times"),
        pytest.param("30 280100 34 35", 5, id="a branch that is not taken"),
        pytest.param("31 280100 34 35", 5, id="a branch that is taken"),
        pytest.param("08ff 0910 26", 0, id="shift of a byte"),
        pytest.param("77a001 9401", 0xAB, id="one byte of the stack"),
    ],
)
def test_expressions(code: str, value: int) -> None:
    def read(address: int, _: int) -> int:
        assert address == 0x1000 + 160
        return 0xAB

    assert evaluate(bytes.fromhex(code), {7: 0x1000, 16: 0x123F}, read) == value


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("22", "cut off", id="an empty stack"),
        pytest.param("08", "cut off", id="a constant is missing"),
        pytest.param("2ffdff", "does not end", id="a loop without end"),
        pytest.param("30" * 100, "does not end", id="more values than fit"),
        pytest.param("31 30 1b", "divides by zero", id="division by zero"),
        pytest.param("50", "operation 0x50", id="an operation that is not for this use"),
        pytest.param("7300", "register 3 is not known", id="a register that is not known"),
        pytest.param("31 9403", "reads 3 bytes", id="a size that is no word's"),
    ],
)
def test_damaged_expressions_are_refused(code: str, reason: str) -> None:
    with pytest.raises(MalformedDwarf, match=reason):
        evaluate(bytes.fromhex(code), {7: 0x1000}, lambda *_: 0)


def test_memory_that_is_not_known_is_said() -> None:
    def read(address: int, _: int) -> int:
        raise MemoryNotRead(address)

    with pytest.raises(MemoryNotRead):
        evaluate(bytes.fromhex("7700 06"), {7: 0x1000}, read)
