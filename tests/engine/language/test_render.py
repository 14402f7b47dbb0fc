"""Items as written, columns of nodes, walking a tree, and errors shown under their text."""

from __future__ import annotations

import pytest

from usdt.base.errors import LanguageError
from usdt.engine.language import BUILTINS, FUNCTIONS, caret, parse_items, parse_probe, render
from usdt.engine.language.tree import Name, names_in, walk


def item(text: str):
    (only,) = parse_probe(f"p:n({text})").items
    return only


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param(" arg0 ", "arg0", id="blanks around"),
        pytest.param("arg0  >\t10", "arg0>10", id="blanks and a tab around an operator"),
        pytest.param("str( arg1 , 8 )", "str(arg1,8)", id="blanks in a call"),
        pytest.param('comm == "a  b"', 'comm=="a  b"', id="blanks in quotes stay"),
        pytest.param("a == ' '", "a==' '", id="a blank as a character stays"),
        pytest.param("( struct  sk_buff * )p", "(struct sk_buff*)p", id="between two words"),
        pytest.param("(unsigned   int) x", "(unsigned int)x", id="between two words of a type"),
        pytest.param("a - -1", "a- -1", id="between two signs"),
        pytest.param("a + -1", "a+-1", id="not between two different signs"),
        pytest.param("a\n->\nb", "a->b", id="newlines around an arrow"),
        pytest.param("1 . b", "1 .b", id="between a number and a dot"),
        pytest.param("a . b", "a.b", id="not between a name and a dot"),
    ],
)
def test_an_items_text_is_as_written_without_needless_blanks(written, text) -> None:
    assert item(written).text == text
    assert item(text).text == text
    assert item(text).expression == item(written).expression


@pytest.mark.parametrize(
    ("text", "is_predicate"),
    [
        *((f"a {op} b", True) for op in ("==", "!=", "<", "<=", ">", ">=", "&&", "||")),
        *((f"a {op} b", False) for op in "+-*/%&|^"),
        ("!a", True),
        ("(a == b)", True),
        ("-a", False),
        ("(int)(a == b)", False),
        ("(a == b) + 1", False),
        ("str(a)", False),
        ("return", False),
    ],
)
def test_comparisons_and_logic_are_predicates(text, is_predicate) -> None:
    assert item(text).is_predicate is is_predicate


def test_items_are_split_at_commas_outside_brackets() -> None:
    items = parse_probe('p:n(a, str(b, 4), c == ",", d[1], ")")').items
    assert [i.text for i in items] == ["a", "str(b,4)", 'c==","', "d[1]", '")"']


def test_items_alone_are_what_options_take() -> None:
    assert [i.text for i in parse_items("comm, arg0 & 3")] == ["comm", "arg0&3"]
    assert parse_items("  ") == ()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        pytest.param(
            "p:n(a, (b + 1) * -c)",
            ["a", "(b + 1) * -c", "b + 1", "b", "1", "-c", "c"],
            id="parentheses belong to what is built on them",
        ),
        pytest.param(
            "x(((struct X *)p)->m[i] != str( q ))",
            ["((struct X *)p)->m[i] != str( q )", "((struct X *)p)->m[i]", "((struct X *)p)->m",
             "(struct X *)p", "p", "i", "str( q )", "q"],
            id="postfixes, casts and calls",
        ),
        pytest.param(r"x('a', "+r'"b\n" == 0x1f)', ["'a'", r'"b\n" == 0x1f', r'"b\n"', "0x1f"],
                     id="constants"),
    ],
)  # fmt: skip
def test_every_node_knows_its_columns_in_the_whole_text(text, spans) -> None:
    nodes = [node for i in parse_probe(text).items for node in walk(i.expression)]
    assert [text[node.start : node.end] for node in nodes] == spans


def test_nodes_are_frozen_and_equal_wherever_they_stand() -> None:
    first, second = (i.expression for i in parse_items("a + 1,  a+1"))
    assert first == second
    assert first.start != second.start
    assert hash(first) == hash(second)
    assert first != parse_items("a + 1u")[0].expression
    with pytest.raises(AttributeError):
        first.op = "-"
    assert not hasattr(first, "__dict__")


def test_names_are_found_from_left_to_right() -> None:
    tree = item("str(arg1) == comm && *(int *)return[arg0] < (struct x *)p->m + arg1").expression
    assert list(names_in(tree)) == ["arg1", "comm", "return", "arg0", "p", "arg1"]


def test_builtins_are_plain_names() -> None:
    names = [i.expression for i in parse_items(", ".join(sorted(BUILTINS)))]
    assert names == [Name(name, 0, 0) for name in sorted(BUILTINS)]


@pytest.mark.parametrize("function", sorted(FUNCTIONS.keys() - {"contains"}))
def test_functions_take_between_their_least_and_most_arguments(function) -> None:
    least, most = FUNCTIONS[function]
    for count in range(5):
        one = {"reg": '"a"', "ustack": "5", "kstack": "127", "pystack": "1"}.get(function, "a")
        words = [one] * count
        call = f"{function}({', '.join(words)})"
        if least <= count <= most:
            assert render(item(call).expression) == call
            continue
        with pytest.raises(LanguageError) as caught:
            item(call)
        assert caught.value.column == len("p:n(")
        assert f"found {count or 'none'}" in caught.value.reason


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("((a)+(b))*c", "(a + b) * c", id="only the parentheses that are needed"),
        pytest.param("a-(b-c)", "a - (b - c)", id="a difference on the right"),
        pytest.param("- - -a", "- - -a", id="signs are kept apart"),
        pytest.param("0x10+'A'", "16 + 65", id="constants in decimal"),
        pytest.param("0xffffffff", "4294967295u", id="a constant keeps its type"),
        pytest.param("(foo_t)(-a)", "(foo_t)(-a)", id="a cast that would become a difference"),
        pytest.param("(long int)-a", "(long)-a", id="types in their shortest spelling"),
        pytest.param('"a*"', '"a*"', id="the beginning of a string"),
        pytest.param(r'"a*\x2a"', r'"a*\*"', id="a star that is one"),
        pytest.param('"é\t"', r'"\303\251\t"', id="strings in ASCII"),
        pytest.param('contains(a, "b*")', r'a == "*b\**"', id="a part as a pattern"),
        pytest.param("(1).b", "(1).b", id="a number before a dot"),
    ],
)
def test_canonical_text(text, canonical) -> None:
    tree = item(text).expression
    assert render(tree) == canonical
    assert item(canonical).expression == tree


@pytest.mark.parametrize(
    ("text", "column", "shown"),
    [
        pytest.param("p:n(a = 1)", 6, "p:n(a = 1)\n      ^", id="under the column"),
        pytest.param("p:n(", 4, "p:n(\n    ^", id="behind the end"),
        pytest.param("", 0, "\n^", id="an empty text"),
        pytest.param("p:\n\x1b[2Jn", 8, "p:\\n\\x1b[2Jn\n" + " " * 12 + "^", id="controls escaped"),
        pytest.param("a\u202eb = 1", 4, "a\\u202eb = 1\n" + " " * 9 + "^", id="no bidi tricks"),
        pytest.param("\udcff = 1", 2, "\\udcff = 1\n       ^", id="bytes that are no text"),
        pytest.param("日本 = 1", 3, "日本 = 1\n     ^", id="wide characters take two columns"),
        pytest.param("e\u0301 = 1", 3, "e\u0301 = 1\n  ^", id="combining marks take none"),
        pytest.param("a" * 200 + "=" + "b" * 200, 200,
                     "…" + "a" * 60 + "=" + "b" * 59 + "…\n" + " " * 61 + "^",
                     id="a long text is cut on both sides"),
        pytest.param("ab", 99, "ab\n  ^", id="a column beyond the text"),
    ],
)  # fmt: skip
def test_caret(text, column, shown) -> None:
    assert caret(LanguageError(text, column, "wrong")) == shown
