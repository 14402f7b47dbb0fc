"""Operands of LoongArch, whose addresses may stand without brackets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from elfwriter import note, probe_elf
from operands import LOCATION, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Address, Constant, Location, Register
from usdt.probes.argspec import parse_arguments
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from pathlib import Path

M = "loongarch64"
SV = SYMBOLS["sv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@12", Constant(12), id="a bare number is a constant"),
        pytest.param("8@$r4", Register(32, 8), id="a register"),
        pytest.param("-4@$a0", Register(32, 4), id="by its name"),
        pytest.param("8@$fp", Register(176, 8), id="the frame pointer"),
        pytest.param("8@$s8", Register(248, 8), id="the last"),
        pytest.param("8@$zero", Constant(0), id="the zero register"),
        pytest.param("8@[$r3,16]", mem(M, "r3", 16), id="in brackets"),
        pytest.param("8@[$r3, 16]", mem(M, "r3", 16), id="with a blank"),
        pytest.param("8@[sp, 120]", mem(M, "r3", 120), id="in brackets, without a sigil"),
        pytest.param("8@[r3,16]", mem(M, "r3", 16), id="by number, without a sigil"),
        pytest.param("1@[a0, a1]", mem(M, "r4", 0, "r5", size=1), id="an index, without sigils"),
        pytest.param("8@$r3,16", mem(M, "r3", 16), id="without brackets"),
        pytest.param("8@$r3, 16", mem(M, "r3", 16), id="without brackets, with a blank"),
        pytest.param("8@[$r4]", mem(M, "r4"), id="no offset"),
        pytest.param("-4@-8($r22)", mem(M, "r22", -8, size=4), id="in parentheses"),
        pytest.param("8@($r4)", mem(M, "r4"), id="nothing but parentheses"),
        pytest.param("1@[$r4,$r5]", mem(M, "r4", 0, "r5", size=1), id="an index"),
        pytest.param("1@$r4,$r5", mem(M, "r4", 0, "r5", size=1), id="an index, no brackets"),
        pytest.param("8@$r12,%pc_lo12(sv)", mem(M, "era", SV - LOCATION), id="a symbol's low bits"),
        pytest.param("8@sv", Address(264, SV - LOCATION, 8, 8), id="a symbol's address"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


def test_a_blank_after_a_comma_separates_nothing() -> None:
    operands = parse_arguments("8@$r3, 16 -4@$r4 4@$r5, $r6", M)
    assert [operand.text for operand in operands] == ["8@$r3, 16", "-4@$r4", "4@$r5, $r6"]


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@$f0", "register", "f0 is not saved", id="floating point"),
        pytest.param("8f@$fa1", "register", "fa1 is not saved", id="by its name"),
        pytest.param("16@$vr3", "register", "vr3 is not saved", id="a vector"),
        pytest.param("8@$r12,%le_lo12(tl)", "memory", "thread-local", id="thread-local"),
        pytest.param("8@$r12,%got_pc_lo12(sv)", "memory", "cannot be followed", id="the GOT"),
        pytest.param("8@$r32", "unknown", "no register 'r32'", id="no such register"),
        pytest.param("8@[x3,16]", "unknown", "not a register", id="another CPU's register"),
        pytest.param("8@[$r3,16,8]", "unknown", "not a register", id="three parts"),
        pytest.param("8@[]", "unknown", "not a register", id="nothing inside"),
        pytest.param("8@16(r3)", "unknown", "no base register", id="no sigil in parentheses"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)


def test_a_file_of_this_machine_is_known_by_its_header(tmp_path: Path) -> None:
    # No compiler for it is at hand: a file with its number, and notes as its assembler has them.
    path = tmp_path / "file"
    args = b"-4@$r4 8@$r3, 16 8@[$r3,8]"
    path.write_bytes(probe_elf(note(b"one", args), machine=258))  # EM_LOONGARCH
    (probe,) = read_probes(str(path)).probes
    assert probe.machine == M
    (site,) = probe.sites
    assert [operand.kind for operand in probe.operands(site)] == ["register", "memory", "memory"]
    assert [operand.error for operand in probe.operands(site)] == [None] * 3
