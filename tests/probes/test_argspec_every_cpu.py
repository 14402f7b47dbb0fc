"""Argument strings of every CPU: what cross compilers emit, and whatever else a note may hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fixtures import CROSS, cross
from hypothesis import given
from hypothesis import strategies as st

from usdt.arch.locations import Register, Unreadable
from usdt.arch.operands import MODULES, arch_of
from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.probes.argspec import parse_arguments
from usdt.probes.probe import read_probes
from usdt.probes.sites import arguments_of

if TYPE_CHECKING:
    from pathlib import Path

# Why an operand that a compiler wrote may be unreadable.
REASONS = (
    "holds a part of",
    "thread-local",
    "local label of the assembler",
    "is not in the symbol tables",
    "is not saved where",
    "ambiguous",
    "cannot be followed",
    "a rounded number",
)
# Written by hand to be nonsense.
NONSENSE = {"oddnotes", "regs"}


def probes_of(cpu: str) -> list[Path]:
    return [path for path in cross(cpu) if path.name not in NONSENSE]


@pytest.mark.parametrize("cpu", CROSS)
def test_every_operand_of_the_cross_compilers_is_understood(cpu: str) -> None:
    counted: Counter[bool] = Counter()
    for path in probes_of(cpu):
        with ElfFile(path) as elf, SymbolResolver(elf) as symbols:
            for probe in read_probes(str(path)).probes:
                for site in probe.sites[:100]:
                    for operand, argument in zip(
                        probe.operands(site),
                        arguments_of(probe, site, elf.type, symbols),
                        strict=True,
                    ):
                        assert operand.kind != "unknown", (path, operand)
                        unreadable = isinstance(argument.fetch, Unreadable)
                        counted[unreadable] += 1
                        if isinstance(argument.fetch, Unreadable):
                            reason = argument.fetch.reason
                            assert any(known in reason for known in REASONS), (
                                path,
                                operand,
                                reason,
                            )
    assert counted[False] > 1000
    assert counted[True] < counted[False] / 10


# What grammars are made of, so that many strings come near to being operands.
PIECES = [
    *("$", "%", "@", "#", "(", ")", "[", "]", ",", " ", ":", "+", "-", "_", ".", "!", "f", "i"),
    *("0", "1", "4", "8", "12", "0x1f", "2.5e+0", "99999999999999999999", "\x00", "\udc80", "é"),
    *("rax", "eax", "ah", "xmm0", "rip", "fs", "r0", "r2", "r15", "x0", "w1", "sp", "v0", "xzr"),
    *("fp", "ip", "lr", "pc", "a0", "s1", "t0", "zero", "fa0", "f0", "gp", "d0"),
    *("sv", ".LC0", "sv@GOTOFF", "@toc@l", ":lo12:", "%lo(", "%got_ofst(", "%tprel_lo("),
    *("lsl ", "sxtw ", "uxtw", "asr ", "-8@", "4@", "8f@", "1@", "16@"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def settle(text: str, machine: str) -> None:
    """Parse and resolve a text; whatever it is, it ends in operands or reasons, shown as JSON."""
    arch = arch_of(machine)
    assert arch is not None
    for operand in parse_arguments(text, machine):
        assert operand.kind != "unknown" or operand.error
        json.dumps(operand.to_json())
        arch.value_type(operand)
        for elf_type in (2, 3):
            fetched = arch.fetch(
                operand,
                symbol_address=lambda name: len(name) << 12,
                location=0x1000,
                machine=machine,
                elf_type=elf_type,
            )
            assert not isinstance(fetched, Unreadable) or fetched.reason
            if isinstance(fetched, Register):
                assert fetched.size == operand.size
                assert fetched.offset % fetched.size in (0, 1)
                assert 0 <= fetched.offset < 512


@pytest.mark.parametrize("machine", MODULES)
@given(text=TEXTS)
def test_texts_near_the_grammar_end_in_operands_or_reasons(machine: str, text: str) -> None:
    settle(text, machine)


@pytest.mark.parametrize("machine", MODULES)
@given(text=st.text(max_size=40))
def test_any_text_ends_in_operands_or_reasons(machine: str, text: str) -> None:
    settle(text, machine)


@pytest.mark.parametrize("machine", MODULES)
@pytest.mark.parametrize(
    "text",
    ["[" * 60000, "(" * 60000, "8@" + "-" * 60000, "8@[x0" + ", x1" * 10000, "%lo(" * 10000],
    ids=["brackets", "parentheses", "signs", "parts", "relocations"],
)
def test_long_texts_end_at_once(machine: str, text: str) -> None:
    for operand in parse_arguments(text, machine):
        assert operand.kind == "unknown"
        assert operand.error is not None
        assert len(operand.error) < 300
