"""Names and types: C's conversions for every pair of types, and what is refused where."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from planning import EVERY_TYPE, INTEGERS, argument, memory, register

from usdt.arch.locations import Address, Constant, Unreadable, ValueClass, ValueType
from usdt.base.errors import LanguageError
from usdt.base.frozen import replace
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.ir import (
    S32,
    S64,
    U32,
    U64,
    ArgumentValue,
    Arithmetic,
    Builtin,
    Compare,
    Convert,
    Deref,
    Node,
    Not,
    NoValue,
    Number,
    PointerExpr,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    Unavailable,
)
from usdt.engine.compiler.resolve.expressions import resolve
from usdt.engine.compiler.scope import INTEGER_BUILTINS, Scope
from usdt.engine.language import parse_expression

if TYPE_CHECKING:
    from usdt.engine.language.tree import Cast, Member

_ARGUMENTS = {item.name: item for item in EVERY_TYPE}
# C17 6.3.1.8 on a machine with 64-bit long: of two types the later one here.
_RANKS = (S32, U32, S64, U64)
_PROMOTED = {name: kind if kind.size >= 4 else S32 for name, kind in INTEGERS.items()}


def node(text: str, declared: int = len(EVERY_TYPE)) -> Node:
    """The resolved expression, over the arguments of planning.EVERY_TYPE."""
    scope = Scope(text, "p:q", _ARGUMENTS, declared)
    return resolve(parse_expression(text).expression, scope)


def fetched(index: int) -> ArgumentValue:
    """An argument as it comes."""
    return ArgumentValue(EVERY_TYPE[index].fetch, EVERY_TYPE[index].type)


_PAIRS = [*itertools.product(enumerate(INTEGERS), repeat=2)]
_PAIR_IDS = [f"{left[1]} and {right[1]}" for left, right in _PAIRS]


@pytest.mark.parametrize(("left", "right"), _PAIRS, ids=_PAIR_IDS)
def test_usual_arithmetic_conversions(left: tuple[int, str], right: tuple[int, str]) -> None:
    common = max(_PROMOTED[left[1]], _PROMOTED[right[1]], key=_RANKS.index)
    for op in ("+", "-", "*", "/", "%", "&", "|", "^"):
        found = node(f"arg{left[0]} {op} arg{right[0]}")
        assert isinstance(found, Arithmetic)
        assert (found.op, found.type, found.left.type) == (op, common, common)
        assert found.right is not None
        assert found.right.type == common
    for op in ("==", "!=", "<", "<=", ">", ">="):
        found = node(f"arg{left[0]} {op} arg{right[0]}")
        assert isinstance(found, Compare)
        assert (found.operands, found.type) == (common, S32)
        assert (found.left.type, found.right.type) == (common, common)
    for op in ("<<", ">>"):
        found = node(f"arg{left[0]} {op} arg{right[0]}")
        assert isinstance(found, Arithmetic)
        assert found.type == _PROMOTED[left[1]], "a shift has the type of its left side alone"


@pytest.mark.parametrize(("index", "name"), [*enumerate(INTEGERS)], ids=[*INTEGERS])
def test_integer_promotion(index: int, name: str) -> None:
    for op in ("-", "~"):
        found = node(f"{op}arg{index}")
        assert isinstance(found, Arithmetic)
        assert found.type == found.left.type == _PROMOTED[name]
    assert node(f"+arg{index}").type == _PROMOTED[name]
    assert node(f"arg{index}") == fetched(index), "alone, it keeps its type"
    assert node(f"!arg{index}") == Not(fetched(index))
    assert node(f"arg{index} && 1 || arg{index}").type == S32


_CASTS = {
    "s8": "char",
    "u8": "unsigned char",
    "s16": "short",
    "u16": "unsigned short",
    "s32": "int",
    "u32": "unsigned int",
    "s64": "long",
    "u64": "unsigned long",
}


@pytest.mark.parametrize(("source", "target"), [*itertools.product(INTEGERS, repeat=2)])
def test_casts(source: str, target: str) -> None:
    index = [*INTEGERS].index(source)
    expected: Node = fetched(index)
    if source != target:
        expected = Convert(expected, INTEGERS[target])
    assert node(f"({_CASTS[target]})arg{index}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1 + 2 * 3", Number(7, S32), id="constants are ints"),
        pytest.param("1u - 2", Number((1 << 32) - 1, U32), id="unsigned ones make it unsigned"),
        pytest.param("2147483647 + 1", Number(-(1 << 31), S32), id="and overflow like ints"),
        pytest.param("2147483648 + 1", Number((1 << 31) + 1, S64), id="what is larger is a long"),
        pytest.param("0xffffffff + 1", Number(0, U32), id="in hexadecimal it may be unsigned"),
        pytest.param("-1 < 1u", Number(0, S32), id="-1 is not less than 1u"),
        pytest.param("-1l < 1u", Number(1, S32), id="but as a long it is"),
        pytest.param("(char)200", Number(-56, INTEGERS["s8"]), id="a cast cuts"),
        pytest.param("(bool)256", Number(1, S32), id="except to bool, which is 1 for all but 0"),
        pytest.param("!!5", Number(1, S32), id="not not"),
        pytest.param("'a' + 1", Number(98, S32), id="characters are ints"),
        pytest.param("arg4 / 0", Unavailable("division by zero", S32), id="a division by zero"),
        pytest.param("pid", Builtin("pid", U32), id="a built-in"),
        pytest.param("(void *)arg7", fetched(7), id="a pointer to anything is its address"),
        pytest.param("*(void **)arg7", Deref(fetched(7), U64), id="one to that is followed"),
        pytest.param("*(char *)arg7", Deref(fetched(7), INTEGERS["s8"]), id="a pointer followed"),
        pytest.param(
            "*(char **)arg7",
            PointerExpr(Deref(fetched(7), U64), INTEGERS["s8"]),
            id="a pointer to a pointer",
        ),
        pytest.param(
            "**(char **)arg7", Deref(Deref(fetched(7), U64), INTEGERS["s8"]), id="both followed"
        ),
        pytest.param(
            "(*(int **)64)[2]",
            Deref(Arithmetic("+", Deref(Number(64, U64), U64), Number(8, U64), U64), S32),
            id="an element of what it leads to",
        ),
        pytest.param(
            "*((long **)64)[1]", Deref(Deref(Number(72, U64), U64), S64), id="pointers as elements"
        ),
        pytest.param(
            "***(unsigned char ***)64",
            Deref(Deref(Deref(Number(64, U64), U64), U64), INTEGERS["u8"]),
            id="three pointers",
        ),
        pytest.param("(int *)arg6", PointerExpr(Convert(fetched(6), U64), S32), id="a pointer"),
        pytest.param("*(int *)64", Deref(Number(64, U64), S32), id="at a constant address"),
        pytest.param("((int *)64)[3]", Deref(Number(76, U64), S32), id="elements"),
        pytest.param("((int *)64)[-1]", Deref(Number(60, U64), S32), id="before the first"),
        pytest.param("*((short *)64 + 3)", Deref(Number(70, U64), INTEGERS["s16"]), id="moved"),
        pytest.param("*(3 + (short *)64)", Deref(Number(70, U64), INTEGERS["s16"]), id="3 + it"),
        pytest.param("*((long *)64 - 1)", Deref(Number(56, U64), S64), id="moved back"),
        pytest.param("(int *)64 - (int *)40", Number(6, S64), id="pointers apart"),
        pytest.param("(int *)40 - (int *)64", Number(-6, S64), id="the other way round"),
        pytest.param(
            "(int *)64 == 64",
            Compare("==", PointerExpr(Number(64, U64), S32), Number(64, U64), U64),
            id="compared as an address",
        ),
        pytest.param("*(int *)arg12", Unavailable("thread-local", S32), id="an unreadable pointer"),
        pytest.param(
            "((int *)8)[arg12]", Unavailable("thread-local", S32), id="an unreadable index"
        ),
        pytest.param("arg12 + 1", Unavailable("thread-local", U64), id="an unreadable operand"),
    ],
)
def test_expressions(text: str, expected: Node) -> None:
    assert node(text) == expected


def test_an_argument_that_only_other_sites_have() -> None:
    assert node("arg13", declared=20) == Unavailable("this call site has no arg13")
    assert node("arg13 == 1 || arg4", declared=20) == Unavailable(
        "this call site has no arg13", S32
    )


def _text(text: bytes, *, prefix: bool = False, equal: bool = True) -> StringEqualsConst:
    return StringEqualsConst(fetched(7), text, prefix, equal)


def _matches(*parts: bytes, limit: int = 0, equal: bool = True) -> StringMatches:
    return StringMatches(fetched(7), None, parts, limit or 255, cut=limit > 0, equal=equal)


def _comm(text: bytes) -> StringEqualsConst:
    return StringEqualsConst(None, text, prefix=False, equal=True)


_COMPARED = {
    "equal": ('str(arg7) == "GET"', _text(b"GET")),
    "not equal": ('str(arg7) != "GET"', _text(b"GET", equal=False)),
    "the constant first": ('"GET" == str(arg7)', _text(b"GET")),
    "beginning with": ('str(arg7) == "GET *"', _text(b"GET ", prefix=True)),
    "any that can be read": ('str(arg7) == "*"', _text(b"", prefix=True)),
    "empty": ('str(arg7) == ""', _text(b"")),
    "cut where it is shown cut": ('str(arg7, 3) == "GET"', _text(b"GET", prefix=True)),
    "longer than what is shown": ('str(arg7, 2) != "GET"', Number(1, S32)),
    "a pattern": ('str(arg7) == "a*b"', _matches(b"a", b"b")),
    "a pattern at both ends": ('str(arg7) != "*a*"', _matches(b"", b"a", b"", equal=False)),
    "stars in a row are one": ('str(arg7) == "**a***b**"', _matches(b"", b"a", b"b", b"")),
    "an escaped star is a star": (r'str(arg7) == "a\**b"', _matches(b"a*", b"b")),
    "a part": ('contains(str(arg7), "a*b")', _matches(b"", b"a*b", b"")),
    "a pattern of what is shown": ('str(arg7, 3) == "a*b"', _matches(b"a", b"b", limit=3)),
    "a pattern of a name": (
        'comm == "*x"',
        StringMatches(None, None, (b"", b"x"), 16, cut=True, equal=True),
    ),
    "the command's name": ('comm == "nginx"', _comm(b"nginx")),
    "15 bytes": ('comm == "fifteen-bytes-x"', _comm(b"fifteen-bytes-x")),
    "no name has 16 bytes": ('comm == "sixteen-bytes-xx"', Number(0, S32)),
    "nor begins with 16": ('comm != "sixteen-bytes-xx*"', Number(1, S32)),
    "a string that cannot be read": ('str(arg12) == "x"', Unavailable("thread-local", S32)),
}


@pytest.mark.parametrize(("text", "expected"), _COMPARED.values(), ids=_COMPARED)
def test_strings_compared(text: str, expected: Node) -> None:
    assert node(text) == expected


def test_every_builtin_has_a_type() -> None:
    for name, kind in INTEGER_BUILTINS.items():
        assert node(name) == Builtin(name, kind)
        assert node(f"{name} + 0").type == kind


def test_func_is_known_when_the_program_is_written() -> None:
    for text, truth in (
        ('func == "p:q"', 1),
        ('func != "p:q"', 0),
        ('func == "p:*"', 1),
        ('func == "*:*q"', 1),
        ('func == "*r*"', 0),
        ('contains(func, "p:")', 1),
        ('"x*" == func', 0),
        ('func == "p:\\x2a"', 0),
    ):
        scope = Scope(text, "p:q", {}, 0, function="p:q")
        assert resolve(parse_expression(text).expression, scope) == Number(truth, S32), text


def test_a_star_by_its_number_is_a_star() -> None:
    assert node(r'str(arg7) == "a\x2a"') == _text(b"a*")
    assert node(r'str(arg7) == "a\x2a*"') == _text(b"a*", prefix=True)
    assert node(r'str(arg7) == "\*a"') == _text(b"*a")


def test_bytes_are_compared_with_their_number() -> None:
    wanted = b"\1\0*"
    expected = StringEqualsConst(fetched(7), wanted, prefix=True, equal=True, counted=True)
    assert node(r'buf(arg7, 3) == "\x01\0\*"') == expected
    assert node(r'buf(arg7, 3) != "\x01\0\*"') == Not(expected)
    matches = StringMatches(fetched(7), Number(3, S32), (b"", b"\0", b""), 3, cut=True, equal=True)
    assert node(r'buf(arg7, 3) == "*\0*"') == matches
    assert node(r'contains(buf(arg7, 3), "\0")') == matches


def test_strings_are_compared_as_they_are_shown() -> None:
    assert node("str(arg7) == str(arg6)") == StringEquals(fetched(7), fetched(6), 128, equal=True)
    expected = StringEquals(fetched(7), fetched(6), 255, equal=False)
    assert node("str(arg7, 255) != str(arg6, 255)") == expected
    assert node("str(arg7) == str(arg12)") == Unavailable("thread-local", S32)


def test_an_argument_that_is_a_constant_is_folded() -> None:
    known = {"arg0": Argument("arg0", INTEGERS["s16"], Constant(-3))}
    for text, expected in (("arg0 + 1", Number(-2, S32)), ("arg0 > 0", Number(0, S32))):
        assert resolve(parse_expression(text).expression, Scope(text, "p:q", known, 1)) == expected


class _Types:
    # Types of one structure, as a front that reads BTF will have them.
    def cast(self, tree: Cast, operand: Node) -> Node | None:
        return PointerExpr(operand, S32) if tree.type.name == "point" else None

    def member(self, tree: Member, target: Node) -> Node | None:
        offset = {"x": 0, "y": 4}.get(tree.name)
        if offset is None or not isinstance(target, PointerExpr):
            return None
        return Deref(Arithmetic("+", target.address, Number(offset, U64), U64), S32)


def test_fronts_may_know_types() -> None:
    scope = Scope("", "p:q", _ARGUMENTS, 13, types=_Types())
    tree = parse_expression("((struct point *)arg7)->y * 2").expression
    place = Deref(Arithmetic("+", fetched(7), Number(4, U64), U64), S32)
    assert resolve(tree, scope) == Arithmetic("*", place, Number(2, S32), S32)
    for text in ("((struct point *)arg7)->z", "(struct line *)arg7"):
        with pytest.raises(LanguageError):
            resolve(parse_expression(text).expression, scope)


_AT = Address(128, 0x2000, 8)


def of_variables(text: str) -> Node:
    """The resolved expression, at a probe of a program with the variables v and tl."""
    known = [
        Argument("v", ValueType(ValueClass.BYTES, 0), _AT, type_ref=NoValue("no type of v")),
        Argument("tl", U64, Unreadable("thread-local"), type_ref=NoValue("thread-local")),
    ]
    scope = Scope(text, "p:q", {one.name: one for one in known}, 0)
    return resolve(parse_expression(text).expression, scope)


def test_a_variable_without_a_type_has_an_address() -> None:
    place = ArgumentValue(_AT, U64)
    assert of_variables("&v") == PointerExpr(place, ValueType(ValueClass.BYTES, 1))
    assert of_variables("*(int *)&v") == Deref(place, S32)
    assert of_variables("&*(int *)&v") == PointerExpr(place, S32)
    word = PointerExpr(Deref(place, U64), S32)
    assert of_variables("*(int **)&v") == word
    assert of_variables("&*(int **)&v") == PointerExpr(place, U64)
    assert of_variables("&v + 2") == replace(
        of_variables("&v"), address=Arithmetic("+", place, Number(2, U64), U64)
    )


@pytest.mark.parametrize(
    ("text", "part", "reason"),
    [
        pytest.param("v", "v", "no type of v", id="a value of unknown type"),
        pytest.param("1 + v", "v", "no type of v", id="a number of unknown type"),
        pytest.param("tl", "tl", "thread-local", id="one without an address"),
        pytest.param("1 + &tl", "tl", "thread-local", id="its address"),
        pytest.param("*&v", "*", "what it points at is of no known size", id="what is there"),
        pytest.param("&(v + 1)", "v", "no type of v", id="an address of a sum of it"),
        pytest.param("&1", "&", "1 is a value without one", id="an address of a constant"),
        pytest.param("&pid", "&", "pid is a value without one", id="an address of a built-in"),
        pytest.param("& &v", "&", "&v is a value without one", id="an address of an address"),
        pytest.param(
            "out(*(int *)&v)", "v", "out() reads memory when a", id="out() of no function"
        ),
    ],
)
def test_variables_that_have_no_value_or_address(text: str, part: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        of_variables(text)
    assert reason in caught.value.reason
    assert text[caught.value.column :].startswith(part)


_REFUSED = {
    "bytes of another number": ('buf(arg7, 2) == "abc"', '"abc"', "buf() has 2 bytes and the c"),
    "bytes of two buffers": ("buf(arg7, 2) == str(arg6)", "buf", "bytes are compared with a"),
    "a long pattern": ('str(arg7) == "*' + 64 * "a" + '"', '"*', "at most 63 bytes, this one 64"),
    "a pattern of long strings": ('str(arg7, 512) == "*a"', "512", "compared with at most 511 by"),
    "a NUL in a string": (r'str(arg7) == "a\0*b"', '"a', "strings end there; compare buf("),
    "too few arguments": ("arg20", "arg20", "p:q has arg0…arg12; arg20 was asked for"),
    "a misspelling": ("1 + argc", "argc", "unknown name 'argc'; did you mean arg"),
    "nothing alike": ("zzz", "zzz", "unknown name 'zzz'; known here: arg0, "),
    "comm calculated with": (
        "1 + comm",
        "comm",
        'comm is a string: compare it, as in comm == "nginx"',
    ),
    "return": ("return == 0", "return", "p:q is a place in the code: it has no return value"),
    "a stack": ("ustack + 1", "ustack", "ustack stands alone as an item"),
    "func calculated with": ("1 + func", "func", "func is a string: compare it"),
    "a string calculated with": ('1 + "a"', '"a"', "a string can only be compared"),
    "a float calculated with": (
        "arg9 + 1",
        "arg9",
        "floating-point values can be shown, not calculated with or",
    ),
    "a float compared": ("1 < arg10", "arg10", "floating-point values can be shown"),
    "a float negated": ("!arg9", "arg9", "floating-point values can be shown"),
    "a float cast": ("(int)arg9", "arg9", "floating-point values can be shown"),
    "an aggregate compared": (
        "arg11 == 0",
        "arg11",
        "a value of 24 bytes can be shown, not calculated with",
    ),
    "a member": (
        "1 + arg4->x",
        "x",
        "->x needs the type before it, and none is known here: give the member's type and offset",
    ),
    "a member of a member": ("arg4->x.y", "x.y", "->x needs the type before it"),
    "a member by dot": ("arg4.y", "y", ".y needs the type before it"),
    "a member of what is not there": ("argc->x", "argc", "unknown name 'argc'"),
    "a symbol in an expression": ("1 + usym(arg4)", "usym", "usym() stands alone as an item"),
    "a kernel symbol in one": ("!ksym(arg4)", "ksym", "ksym() stands alone as an item"),
    "a buffer in one": ("~buf(arg4, 1)", "buf", "buf() stands alone as an item"),
    "hex in an expression": ("1 + hex(arg4)", "hex(arg4)", "hex() stands alone as an item"),
    "str in an expression": (
        "str(arg7) + 1",
        "str(arg7)",
        "str() stands alone as an item, or on a side of == or !=",
    ),
    "a number followed": ("1 + *arg7", "*arg7", "only a cast pointer can be followed"),
    "a pointer whose target is an address": (
        "***(int **)arg7",
        "***(int",
        "only a cast pointer can be followed",
    ),
    "elements of a number": ("arg7[1]", "arg7[1]", "only a cast pointer has elements"),
    "a float as an index": ("((int *)8)[arg9]", "arg9", "floating-point values"),
    "a structure": ("*(struct sock *)arg7", "(struct", "struct sock is not known here"),
    "a typedef": ("(foo_t)(arg7)", "(foo_t)", "foo_t is not known here: no types come with"),
    "a misspelt type": ("(unt32_t)(arg7)", "(unt32_t)", "unt32_t is not known here; did you mean "),
    "an enumeration": ("(enum kind)arg4", "(enum", "enum kind is not known here"),
    "minus a pointer": ("-(int *)arg7", "-(int", "- does not go with a pointer"),
    "the complement of one": ("~(int *)arg7", "~(int", "~ does not go with a pointer"),
    "twice a pointer": ("(int *)arg7 * 2", "(int", "* does not go with a pointer"),
    "a number less a pointer": ("1 - (int *)arg7", "1 -", "- does not go with a pointer"),
    "a sum of pointers": ("(int *)8 + (int *)8", "(int", "+ does not go with a pointer"),
    "pointers of two types": ("(int *)8 - (char *)8", "(int", "- does not go with a pointer"),
    "a pointer as a count": ("arg0 << (int *)8", "arg0", "<< does not go with a pointer"),
    "strings in order": ('str(arg7) < "a"', "str", "strings can be compared with == and != only"),
    "a number and a string": (
        'arg7 == "a"',
        "arg7",
        "not a string; compare str(arg7)",
    ),
    "a string and a sum": ('"a" == arg7 + 1', "arg7 + 1", "compare str(…)"),
    "a name and a number": ("arg4 == comm", "arg4", "compare str(arg4)"),
    "two constants": ('"a" == "a"', '"a"', "two constants: one side has to be str(…)"),
    "a name and a string": (
        "comm == str(arg7)",
        "comm",
        "comm, func and pcomm are compared with constants",
    ),
    "a string and func": (
        "str(arg7) != func",
        "func",
        "comm, func and pcomm are compared with constants",
    ),
    "strings cut differently": (
        "str(arg7, 3) == str(arg7, 4)",
        "str(arg7, 4)",
        "both sides need the same MAX, not 3 and 4",
    ),
    "strings cut differently by default": (
        "str(arg7) == str(arg7, 127)",
        "str(arg7, 127)",
        "both sides need the same MAX, not 128 and 127",
    ),
    "long strings": (
        "str(arg7, 256) == str(arg7, 256)",
        "str",
        "256 bytes are too many to compare: write str(…, 255)",
    ),
    "a long constant": (
        f'comm == "{"x" * 256}"',
        '"xxx',
        "a string constant has at most 255 bytes, this one 256",
    ),
    "a NUL in a constant": ('comm == "a\\0b"', '"a', "cannot hold a NUL"),
    "a float as an address": ('str(arg9) == "a"', "arg9", "floating-point values"),
}


@pytest.mark.parametrize(("text", "mark", "reason"), _REFUSED.values(), ids=_REFUSED)
def test_refused(text: str, mark: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        node(text)
    assert reason in caught.value.reason
    assert caught.value.text == text
    assert caught.value.text[caught.value.column :].startswith(mark)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(0, "p:q has no arguments; arg1 was asked for", id="none"),
        pytest.param(1, "p:q has arg0; arg1 was asked for", id="one"),
    ],
)
def test_messages_count_the_arguments(arguments: int, reason: str) -> None:
    known = {f"arg{n}": argument(n, "s32") for n in range(arguments)}
    with pytest.raises(LanguageError) as caught:
        resolve(parse_expression("arg1").expression, Scope("arg1", "p:q", known, arguments))
    assert caught.value.reason == reason


def test_a_name_of_an_argument_hides_a_builtin() -> None:
    known = {"pid": argument(0, "s64", memory(8))}
    scope = Scope("pid", "p:q", known, 1)
    expected = ArgumentValue(memory(8), ValueType(S64.kind, 8))
    assert resolve(parse_expression("pid").expression, scope) == expected


def test_logic_keeps_its_sides() -> None:
    assert node("arg4 && arg6") == ShortCircuit("&&", fetched(4), fetched(6))
    assert node("arg4 || arg6") == ShortCircuit("||", fetched(4), fetched(6))
    assert register(8) == EVERY_TYPE[6].fetch
