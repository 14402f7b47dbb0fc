"""Expressions as instructions and as constants: two evaluators that must agree.

The same random expression is run as a program, over registers and over memory, and folded with
every argument written as the number it has. What gcc says of them is in tests/live.
"""

from __future__ import annotations

import random
import re
import struct
from typing import TYPE_CHECKING

import pytest
from bpfmachine import Machine
from expressions import ARGUMENTS, POINTER, expressions
from planning import INTEGERS, plan

from usdt.arch.locations import Memory, Register, Unreadable
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.ir import Number, Unavailable, wrap
from usdt.engine.compiler.resolve.expressions import resolve
from usdt.engine.compiler.scope import Scope
from usdt.engine.language import parse_expression
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.event import EventFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import Location

_AT_ONCE = 60
_ROWS = 8
_BASE = 0x7F0000000000
_TYPES = {
    "signed char": "s8",
    "unsigned char": "u8",
    "short": "s16",
    "unsigned short": "u16",
    "int": "s32",
    "unsigned int": "u32",
    "long": "s64",
    "unsigned long": "u64",
}
_KINDS = [INTEGERS[_TYPES[name]] for name in ARGUMENTS]
_EXPRESSIONS = [
    one.item for one in expressions(7, 450, 4) if f"arg{POINTER}" not in one.item
]  # what a pointer points at is no constant


def _rows() -> list[list[int]]:
    source = random.Random(8)
    rows = []
    for _ in range(_ROWS):
        row = []
        for kind in _KINDS:
            low = -(1 << 8 * kind.size - 1) if kind.signed else 0
            high = low + (1 << 8 * kind.size) - 1
            row.append(source.choice((low, high, 0, 1, source.randint(low, high))))
        rows.append(row)
    return rows


_MEMORY = [Memory(112, None, 1, 8 * n, 8, kind.size) for n, kind in enumerate(_KINDS)]
_REGISTER = [Register(8 * n, kind.size) for n, kind in enumerate(_KINDS)]


def _arguments(places: Sequence[Location]) -> tuple[Argument, ...]:
    pairs = zip(_KINDS, places, strict=True)
    return tuple(Argument(f"arg{n}", kind, place) for n, (kind, place) in enumerate(pairs))


def _literal(kind: str, value: int) -> str:
    if value == -(1 << 63):
        return "(-0x7fffffffffffffffl-1)"
    return f"(({kind}){value}{'ul' if value > 0 else ''})"


def _folded(item: str, row: list[int]) -> int | None:
    written = [_literal(kind, value) for kind, value in zip(ARGUMENTS, row, strict=True)]
    text = re.sub(r"arg(\d+)", lambda found: written[int(found[1])], item)
    node = resolve(parse_expression(text).expression, Scope(text, "p:q", {}, 0))
    if isinstance(node, Unavailable):
        assert node.reason == "division by zero"
        return None
    assert isinstance(node, Number), node
    return node.value


@pytest.mark.parametrize("places", [_REGISTER, _MEMORY], ids=["registers", "memory"])
@pytest.mark.parametrize("sleepable", [False, True], ids=["plain", "sleepable"])
def test_programs_and_folding_agree(places: Sequence[Location], sleepable: bool) -> None:
    arguments = _arguments(places)
    rows = [(row, b"".join(struct.pack("=Q", v & (1 << 64) - 1) for v in row)) for row in _rows()]
    wrong = []
    for first in range(0, len(_EXPRESSIONS), _AT_ONCE):
        items = _EXPRESSIONS[first : first + _AT_ONCE]
        made = plan(", ".join(items), arguments)
        code = generate([ProgramVariant(1, 0, made)], TaskFilter(), sleepable=sleepable)
        decoder = Decoder(EventFormatter())
        decoder.add(1, "p:q", made)
        for row, packed in rows:
            context = packed + bytes(168 - len(packed))
            if places is _MEMORY:
                context = bytes(112) + struct.pack("=Q", _BASE) + bytes(48)
            machine = Machine(context=context, user={_BASE: packed})
            machine.run(code)
            data = struct.pack("=II", len(machine.records[0]), 0) + machine.records[0]
            (event,) = next(decoder.batches(data))
            for item in items:
                found = event.args[item]
                found = None if isinstance(found, Unreadable) else found
                if found != (expected := _folded(item, row)):
                    wrong.append((item, row, found, expected))
    assert not wrong


@pytest.mark.parametrize("value", [-1, 0, 1, 127, 128, -128, -129, 0x7FFFFFFF, 0x80000000, 1 << 63])
def test_every_cast_of_every_type(value: int) -> None:
    names = dict(zip(_TYPES.values(), _TYPES, strict=True))
    arguments = tuple(
        Argument(f"arg{n}", kind, Register(0, kind.size))
        for n, kind in enumerate(INTEGERS.values())
    )
    casts = {
        f"({names[target]})arg{n}": (wrap(value, kind), INTEGERS[target])
        for n, kind in enumerate(INTEGERS.values())
        for target in INTEGERS
    }
    made = plan(", ".join(casts), arguments)
    machine = Machine(context=struct.pack("=Q", value & (1 << 64) - 1) + bytes(160))
    machine.run(generate([ProgramVariant(1, 0, made)], TaskFilter(), sleepable=False))
    decoder = Decoder(EventFormatter())
    decoder.add(1, "p:q", made)
    data = struct.pack("=II", len(machine.records[0]), 0) + machine.records[0]
    (event,) = next(decoder.batches(data))
    assert event.args == {key: wrap(*pair) for key, pair in casts.items()}
