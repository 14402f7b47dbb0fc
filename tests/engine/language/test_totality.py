"""Any text whatever ends, soon, in a tree or a LanguageError; and trees survive their own text."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from patience import patient

from usdt.base.errors import LanguageError
from usdt.engine.language import (
    FUNCTIONS,
    ProbeText,
    caret,
    parse_expression,
    parse_items,
    parse_probe,
    render,
)
from usdt.engine.language.c_type_names import _BASIC, NAMED_TYPES, TYPE_WORDS
from usdt.engine.language.tokens import MAX_LENGTH, _type_of
from usdt.engine.language.tree import (
    MAX_FRAMES,
    MAX_HEIGHT,
    PRECEDENCE,
    STACKS,
    Binary,
    Call,
    Cast,
    Index,
    Integer,
    Member,
    Name,
    Text,
    TypeKind,
    TypeName,
    Unary,
    read_at_return,
    walk,
)

PIECES = (
    *"()[],.?:;={}@$#\\'\" \t\n\0\x1b", "->", "++", "--", "&&", "||", *PRECEDENCE, *FUNCTIONS,
    *TYPE_WORDS, "u8", "size_t", "foo_t", "arg0", "return", "0", "1", "08", "0x", "0xff", "1.5",
    "9" * 30, '"a"', "'a'", "'", '"', r"\"", r"\x", "usdt:", "uprobe:", "kprobe:", "tracepoint:",
    "/a b:", "é", "日", "\udcff", "\ud800", "\u202e",
)  # fmt: skip

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
soups = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def check_error(error: LanguageError, text: str) -> None:
    assert 0 <= error.column <= len(error.text)
    assert error.text == text
    assert error.reason.isprintable(), "a reason is one line that a terminal may show"
    assert len(error.reason) < 250
    above, below = caret(error).split("\n")
    assert above.isprintable()
    assert below.strip() == "^"


def check(text: str) -> None:
    try:
        probe = parse_probe(text)
    except LanguageError as error:
        check_error(error, text)
        return
    assert isinstance(probe, ProbeText)
    for item in probe.items:
        assert item.expression == parse_expression(item.text).expression
        assert parse_expression(item.text).text == item.text
        for node in walk(item.expression):
            assert 0 <= node.start < node.end <= len(text)


@given(any_text)
def test_any_characters(text) -> None:
    check(text)


@given(any_text)
def test_any_characters_as_items(text) -> None:
    check(f"p:n({text})")


@given(soups)
@example('("\\')
@example("x('\"')")
def test_any_soup_of_tokens(text) -> None:
    check(text)


@given(soups)
@settings(max_examples=400)
def test_any_soup_of_tokens_as_items(text) -> None:
    check(f"p:n({text})")


@given(st.sampled_from(['p:n(a + str(b, 2) == "x\\n" && (struct X *)c->d[3])']), st.data())
def test_a_good_text_with_a_piece_changed(text, data) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    check(text[:start] + data.draw(st.sampled_from(PIECES)) + text[end:])


# --- trees and their text -------------------------------------------------------------------------

words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda word: word not in TYPE_WORDS
)
integers = st.builds(
    lambda value, suffix: Integer(value, *_type_of(value, 10, suffix), 0, 0),
    st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1)),
    st.sampled_from(["", "u", "l", "ul"]),
)
types = st.one_of(
    st.builds(
        lambda basic, pointers: TypeName(TypeKind.INTEGER, *basic, pointers),
        st.sampled_from([*_BASIC.values(), *((name, *rest) for name, rest in NAMED_TYPES.items())]),
        st.integers(0, 2),
    ),
    st.builds(
        TypeName,
        st.sampled_from([TypeKind.STRUCT, TypeKind.UNION]),
        words, st.just(0), st.just(False), st.integers(1, 2),
    ),
    st.builds(
        TypeName, st.just(TypeKind.ENUM), words, st.just(4), st.just(False), st.integers(0, 2)
    ),
    st.builds(
        TypeName,
        st.just(TypeKind.TYPEDEF), words.filter(lambda word: word not in NAMED_TYPES),
        st.just(0), st.just(False), st.integers(0, 2),
    ),
    st.builds(TypeName, st.just(TypeKind.VOID), st.just("void"), st.just(0), st.just(False),
              st.integers(1, 2)),
)  # fmt: skip
nowhere = (st.just(0), st.just(0))


def _split(middle, first, last):
    return (first, *middle, last)


parts = st.one_of(
    st.tuples(st.binary(max_size=6)),
    st.builds(
        _split,
        st.lists(st.binary(min_size=1, max_size=4), max_size=2),
        st.binary(max_size=4),
        st.binary(max_size=4),
    ),
)


def _stack(kind: str, frames: int) -> Call:
    return Call(kind, (Integer(frames, unsigned=False, size=4, start=0, end=0),), 0, 0)


def _register(name: bytes) -> Call:
    return Call("reg", (Text((name,), 0, 0),), 0, 0)


def grown(trees):
    calls = [
        st.builds(Call, st.just(function), st.tuples(*[trees] * count), *nowhere)
        for function, (least, most) in FUNCTIONS.items()
        if function not in ("contains", "out", "reg", *STACKS)
        for count in range(least, most + 1)
    ]
    return st.one_of(
        trees.map(read_at_return),
        st.builds(Unary, st.sampled_from("!~-+*"), trees, *nowhere),
        st.builds(Binary, st.sampled_from(list(PRECEDENCE)), trees, trees, *nowhere),
        st.builds(Cast, types, trees, *nowhere),
        st.builds(Member, trees, words, st.booleans(), *nowhere),
        st.builds(Index, trees, trees, *nowhere),
        *calls,
    )


trees = st.recursive(
    st.one_of(
        st.builds(Name, words, *nowhere),
        integers,
        st.builds(Text, parts, *nowhere),
        st.builds(_register, st.binary(max_size=4)),
        st.builds(_stack, st.sampled_from(STACKS), st.integers(1, MAX_FRAMES)),
    ),
    grown,
    max_leaves=12,
)


@given(trees)
@settings(max_examples=400)
def test_a_tree_survives_its_text(tree) -> None:
    text = render(tree)
    parsed = parse_expression(text).expression
    assert parsed == tree
    assert render(parsed) == text
    assert parse_expression(render(tree, full=True)).expression == tree


# --- size -----------------------------------------------------------------------------------------

LEVELS = 100_000
DEEP = [
    pytest.param("(" * LEVELS, id="parentheses that are opened"),
    pytest.param("(" * LEVELS + "a" + ")" * LEVELS, id="parentheses"),
    pytest.param("!" * LEVELS + "a", id="nots"),
    pytest.param("- " * LEVELS + "a", id="signs"),
    pytest.param("a" + "->a" * LEVELS, id="arrows"),
    pytest.param("a" + "[0]" * LEVELS, id="indices behind one another"),
    pytest.param("a[" * LEVELS + "0" + "]" * LEVELS, id="indices in one another"),
    pytest.param("str(" * LEVELS + "a" + ")" * LEVELS, id="calls"),
    pytest.param("(u8)" * LEVELS + "a", id="casts"),
    pytest.param("(a*" * LEVELS + "0", id="products in parentheses"),
    pytest.param("a" + "+a" * LEVELS, id="sums"),
    pytest.param("(int " + "*" * LEVELS + ")a", id="pointers to pointers"),
    pytest.param("a," * LEVELS + "a", id="items"),
    pytest.param('"' * LEVELS, id="quotes"),
    pytest.param('"' + "\\" * LEVELS, id="backslashes"),
    pytest.param("9" * LEVELS, id="digits"),
    pytest.param("'" * LEVELS, id="apostrophes"),
    pytest.param(" " * LEVELS, id="blanks"),
]


@pytest.mark.parametrize("text", DEEP)
@pytest.mark.parametrize("form", ["{}", "p:n({})"])
def test_a_huge_text_is_refused_at_once(text, form) -> None:
    begin = time.monotonic()
    with pytest.raises(LanguageError, match=r"characters are too many: a probe has at most 16384"):
        parse_probe(form.format(text))
    with pytest.raises(LanguageError):
        parse_items(text)
    assert time.monotonic() - begin < patient(60)


@pytest.mark.parametrize("text", DEEP)
@pytest.mark.parametrize("form", ["{}", "p:n({})"])
def test_the_longest_text_ends_soon(text, form) -> None:
    # The same, cut to just what is allowed: here the parser itself has to hold.
    text = form.format(text[: MAX_LENGTH - 5])
    begin = time.monotonic()
    check_any(text)
    assert time.monotonic() - begin < patient(60)  # not quadratic, which takes minutes


def check_any(text: str) -> None:
    for parse in (parse_probe, parse_items):
        try:
            parse(text)
        except LanguageError as error:
            check_error(error, text)


@pytest.mark.parametrize("size", [1 << 20, 1 << 24])
def test_megabytes_end_at_once_in_a_short_message(size) -> None:
    begin = time.monotonic()
    with pytest.raises(LanguageError) as caught:
        parse_probe("p:n(" + "a" * size + ")")
    assert time.monotonic() - begin < patient(60)
    assert len(str(caught.value)) < 250
    assert str(size + 5) in caught.value.reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("(", ")", id="parentheses"),
        pytest.param("!", "", id="nots"),
        pytest.param("(u8)", "", id="casts"),
        pytest.param("str(", ")", id="calls"),
        pytest.param("", "->a", id="arrows"),
        pytest.param("", "[0]", id="indices"),
        pytest.param("", "+a", id="sums"),
    ],
)
def test_the_limit_of_nesting_is_exact(before, after) -> None:
    most = MAX_HEIGHT if before == "(" else MAX_HEIGHT - 1  # a name is a level, parentheses no node
    tree = parse_expression(before * most + "a" + after * most).expression
    assert parse_expression(render(tree)).expression == tree
    with pytest.raises(LanguageError, match="nested deeper than 100 levels"):
        parse_expression(before * (most + 1) + "a" + after * (most + 1))


def test_a_deep_caller_has_room_enough() -> None:
    # The parser brings its own stacks: it needs a handful of Python's frames, however deep a text.
    text = "p:n(" + "(!" * 49 + "a" + ")" * 49 + ")"

    def dive(levels: int) -> ProbeText:
        return dive(levels - 1) if levels else parse_probe(text)

    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    assert dive(sys.getrecursionlimit() - depth - 30).items


def test_importing_loads_nothing_heavy() -> None:
    # Less what Python itself loads to find this checkout.
    code = "import sys; old = set(sys.modules); import usdt.engine.language"
    code += "; print(*set(sys.modules) - old)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "usdt.engine.language" in loaded
    assert not loaded & {"difflib", "unicodedata", "fnmatch", "kprobe", "ctypes", "click"}
