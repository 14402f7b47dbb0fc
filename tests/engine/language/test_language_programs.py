"""Whatever parses becomes a program or a clear error, and the program ends at every hit."""

from __future__ import annotations

import struct

from bpfmachine import Machine
from hypothesis import given, settings
from hypothesis import strategies as st
from planning import plan

from usdt.base.errors import LanguageError, TracingError
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.language import BUILTINS, render
from usdt.engine.language.tree import (
    FUNCTIONS,
    PRECEDENCE,
    STACKS,
    Binary,
    Call,
    Cast,
    Expression,
    Index,
    Integer,
    Member,
    Name,
    Text,
    TypeKind,
    TypeName,
    Unary,
    read_at_return,
)

_TEXT = 0x7F0000001000
_NAMES = (*(f"arg{n}" for n in range(14)), *BUILTINS, "return", "nobody")
_TYPES = (
    *(TypeName(TypeKind.INTEGER, name, size, signed, stars)
      for name, size, signed in (("char", 1, True), ("u16", 2, False), ("int", 4, True),
                                 ("unsigned long", 8, False), ("bool", 1, False))
      for stars in (0, 1)),
    TypeName(TypeKind.VOID, "void", 0, signed=False, pointers=1),
    TypeName(TypeKind.STRUCT, "file", 0, signed=False, pointers=1),
)  # fmt: skip
_NOWHERE = (st.just(0), st.just(0))


def _grown(trees: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    calls = [
        st.builds(Call, st.just(function), st.tuples(*[trees] * count), *_NOWHERE)
        for function, counts in FUNCTIONS.items()
        if function not in ("contains", "out", "reg", *STACKS)
        for count in range(counts[0], counts[1] + 1)
    ]
    operators = st.sampled_from([*PRECEDENCE])
    return st.one_of(
        st.builds(Binary, operators, trees, trees, *_NOWHERE),
        st.builds(Binary, operators, trees, trees, *_NOWHERE),
        st.builds(Unary, st.sampled_from("!~-+*"), trees, *_NOWHERE),
        st.builds(Cast, st.sampled_from(_TYPES), trees, *_NOWHERE),
        st.builds(Index, trees, trees, *_NOWHERE),
        st.builds(Member, trees, st.just("m"), st.booleans(), *_NOWHERE),
        st.builds(read_at_return, trees),
        *calls,
    )


def _integers() -> st.SearchStrategy[Expression]:
    values = st.one_of(st.integers(0, 20), st.integers(0, (1 << 31) - 1))
    return st.builds(Integer, values, st.just(value=False), st.just(4), *_NOWHERE)


_PARTS = ((b"",), (b"GET",), (b"x" * 40, b""), (b"", b"GET", b""), (b"", b"\0x", b"y"))
_LEAVES = st.one_of(
    st.builds(Name, st.sampled_from(_NAMES), *_NOWHERE),
    st.builds(Name, st.sampled_from(_NAMES[:9]), *_NOWHERE),
    _integers(),
    st.builds(Text, st.sampled_from(_PARTS), *_NOWHERE),
    st.sampled_from([Call("reg", (Text((name,), 0, 0),), 0, 0) for name in (b"di", b"xmm0")]),
)
_TREES = st.recursive(_LEAVES, _grown, max_leaves=10)
_NUMBERS = st.recursive(  # what is more often understood: half of all others is refused
    st.one_of(st.builds(Name, st.sampled_from(_NAMES[:9]), *_NOWHERE), _integers()),
    lambda trees: st.one_of(
        st.builds(Binary, st.sampled_from([*PRECEDENCE]), trees, trees, *_NOWHERE),
        st.builds(Unary, st.sampled_from("!~-+"), trees, *_NOWHERE),
        st.builds(Cast, st.sampled_from(_TYPES[::2]), trees, *_NOWHERE),
    ),
    max_leaves=40,
)


def _check(error: TracingError) -> None:
    if not isinstance(error, LanguageError):
        assert "nested too deeply for the BPF stack" in str(error)
        return
    assert 0 <= error.column <= len(error.text)
    assert 0 < len(error.reason) < 400


@given(st.lists(st.one_of(_TREES, _NUMBERS), min_size=1, max_size=4), st.booleans(), st.data())
@settings(max_examples=300)
def test_items_become_a_program_that_ends_or_an_error(
    trees: list[Expression], sleepable: bool, data: st.DataObject
) -> None:
    try:
        made = plan(", ".join(map(render, trees)))
        code = generate([ProgramVariant(1, 0, made)], TaskFilter(), sleepable=sleepable)
    except TracingError as err:
        _check(err)
        return
    registers = data.draw(st.lists(st.integers(0, (1 << 64) - 1), min_size=21, max_size=21))
    registers[14] = _TEXT  # rdi: where arguments in memory lie
    machine = Machine(
        context=struct.pack("=21Q", *registers),
        user={_TEXT: b"GET /" + bytes(400)},
        absent=data.draw(st.sampled_from([set(), {_TEXT}])),
        room=data.draw(st.sampled_from([1 << 20, 0])),
    )
    machine.run(code)
    assert len(machine.records) <= 1
    if made.always_false:
        assert machine.records == []
        assert not machine.counters
