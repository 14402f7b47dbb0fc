"""The probe language: what each text means, and what is said about one that means nothing."""

from __future__ import annotations

import pytest

from usdt.base.errors import LanguageError
from usdt.engine.language import parse_expression, parse_probe, render
from usdt.engine.language.rendering import render_type
from usdt.engine.language.tree import (
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
)

_EXPECTED = "expected a number, or a duration in ns, us, ms, s or m"
_NO_FLOATS = (
    "floating-point constants are not part of the language; a duration has a unit, as in 2.5ms"
)


def tree(text: str):
    return parse_expression(text).expression


def refusal(function, marked: str, **options) -> tuple[str, str]:
    """What is said about a text, and the text marked with § where the error points."""
    with pytest.raises(LanguageError) as caught:
        function(marked.replace("§", ""), **options)
    error = caught.value
    return error.reason, error.text[: error.column] + "§" + error.text[error.column :]


# --- which probe ----------------------------------------------------------------------------------

PATTERNS = [
    ("python:gc__start", "usdt", None, "python", "gc__start", "provider and name"),
    ("gc__start", "usdt", None, "*", "gc__start", "a name alone means any provider"),
    ("*", "usdt", None, "*", "*", "a star alone means every probe"),
    ("py*:gc__?one", "usdt", None, "py*", "gc__?one", "stars and question marks are kept"),
    ("usdt:python:gc", "usdt", None, "python", "gc", "the kind's word may be written"),
    ("usdt:gc", "usdt", None, "*", "gc", "the kind's word and a name alone"),
    ("usdt:usdt:gc", "usdt", None, "usdt", "gc", "a provider called like a kind"),
    ("usdt:kprobe:hit", "usdt", None, "kprobe", "hit", "a provider called like another kind"),
    ("usdt::python:gc", "usdt", None, "python", "gc", "an empty path is none"),
    ("/bin/py:python:gc", "usdt", "/bin/py", "python", "gc", "a path, provider and name"),
    ("usdt:/bin/py:python:gc", "usdt", "/bin/py", "python", "gc", "all four"),
    ("libc:libc:setjmp", "usdt", "libc", "libc", "setjmp", "a library's name for a path"),
    ("/bin/py:gc", "usdt", "/bin/py", "*", "gc", "a path and a name alone"),
    ("./py:gc", "usdt", "./py", "*", "gc", "a relative path and a name alone"),
    ("/a:b/c:d:e:f", "usdt", "/a:b/c:d", "e", "f", "a path with colons splits from the right"),
    ("/a:b/c:f", "usdt", "/a:b/c", "*", "f", "a path with a colon and a name alone"),
    ("/opt/a (1)/x:p:n", "usdt", "/opt/a (1)/x", "p", "n", "a path with blank and parentheses"),
    ("/o'brien/x:p:n", "usdt", "/o'brien/x", "p", "n", "a path with an apostrophe"),
    ('"/a:b":p:n', "usdt", "/a:b", "p", "n", "a path in quotes"),
    ('"/a*":p:n', "usdt", "/a*", "p", "n", "a star in a quoted path stays what it is"),
    ("  p:n\t", "usdt", None, "p", "n", "blanks around"),
    ("p : n", "usdt", None, "p", "n", "blanks around a name"),
    (r'p:"\"probe1\""', "usdt", None, "p", '"probe1"', "a quoted name with quotes in it"),
    ('p:"a b(c):d"', "usdt", None, "p", "a b(c):d", "a quoted name hides what separates"),
    ('p:"a*"?', "usdt", None, "p", "a[*]?", "a quoted star is escaped, one beside it is not"),
    ('"":n', "usdt", None, "", "n", "a provider that is really empty"),
    ("p:[a-c]*", "usdt", None, "p", "[a-c]*", "a set of characters"),
    ("p:n\udcff", "usdt", None, "p", "n\udcff", "a byte that is not UTF-8"),
    ("uprobe:/bin/x:main", "uprobe", "/bin/x", "", "main", "a function"),
    ("uprobe:libc:malloc+0x10", "uprobe", "libc", "", "malloc+0x10", "a place in a function"),
    ("uprobe:/x:ns::A::f", "uprobe", "/x", "", "ns::A::f", "a C++ function keeps its colons"),
    ("uprobe:/a:b/x:f", "uprobe", "/a:b/x", "", "f", "a uprobe's path with a colon"),
    ('uprobe:/x:"f(int)"', "uprobe", "/x", "", "f(int)", "a C++ function with parameters"),
    ("uprobe:malloc", "uprobe", None, "", "malloc", "a function of any file"),
    ("kprobe:vfs_read", "kprobe", None, "", "vfs_read", "a kernel function"),
    ("kprobe:ext4:ext4_get*", "kprobe", None, "ext4", "ext4_get*", "a module's function"),
    ("fentry:vfs_read", "fentry", None, "", "vfs_read", "a kernel function by trampoline"),
    ("tracepoint:sched:sched_*", "tracepoint", None, "sched", "sched_*", "tracepoints"),
    ("tracepoint:sched_switch", "tracepoint", None, "*", "sched_switch", "any category"),
    ("rawtp:sched_switch", "rawtp", None, "", "sched_switch", "a raw tracepoint"),
    ("syscall:openat", "syscall", None, "", "openat", "a system call"),
]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [pytest.param(*case[:2], case[2:5], id=case[5]) for case in PATTERNS],
)
@pytest.mark.parametrize(
    "items",
    [
        pytest.param("", id="without items"),
        pytest.param("()", id="with no items in parentheses"),
        pytest.param(" (a, 1)", id="with items"),
    ],
)
def test_pattern(text, kind, expected, items) -> None:
    probe = parse_probe(text + items)
    assert (probe.kind, probe.path, probe.provider, probe.name) == (kind, *expected)
    assert probe.text == text + items
    assert len(probe.items) == (2 if "a" in items else 0)
    assert probe.pattern == text.strip().removeprefix(f"{kind}:")


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        pytest.param("p:a-b-c", ("a-b-c", "a__b__c"), id="dashes as DTrace writes them"),
        pytest.param("p:a__b", ("a__b",), id="underscores alone have one form"),
        pytest.param("p:[a-c]-x", ("[a-c]-x", "[a-c]__x"), id="the dash of a set is kept"),
        pytest.param("uprobe:x:a-b", ("a-b",), id="functions have no other form"),
    ],
)
def test_name_forms(text, forms) -> None:
    assert parse_probe(text).name_forms == forms


def test_the_command_chooses_the_kind_of_a_probe_that_names_none() -> None:
    probe = parse_probe("ip_send_skb(skb->len > 100, return)", default="kprobe")
    assert (probe.kind, probe.provider, probe.name) == ("kprobe", "", "ip_send_skb")
    assert [item.is_predicate for item in probe.items] == [True, False]
    assert parse_probe("usdt:p:n", default="kprobe").kind == "usdt"


BAD_PROBES = [
    ("§", "found the end where a name belongs: expected PROVIDER:NAME", "nothing at all"),
    ("  §", "found the end where a name belongs: expected PROVIDER:NAME", "only blanks"),
    ("§(arg0)", "found '(' where a name belongs: expected PROVIDER:NAME", "only items"),
    ("p:§", "found the end where a name belongs: expected PROVIDER:NAME", "no name"),
    ("p:§(a)", "found '(' where a name belongs: expected PROVIDER:NAME", "items but no name"),
    ("§:n", "found ':' where a name belongs: expected PROVIDER:NAME", "no provider"),
    ("/x:§:n", "found ':' where a name belongs: expected PROVIDER:NAME", "a path, no provider"),
    ("§/x", "found a file without a probe: expected PATH:PROVIDER:NAME", "a path alone"),
    ("uprobe:/x:§", "found the end where a name belongs: expected uprobe:TARGET:FUNCTION",
     "no function"),
    ("syscall:a§:b", "found one ':' too many: expected syscall:NAME", "two system calls"),
    ("tracepoint:a:b§:c", "found one ':' too many: expected tracepoint:CATEGORY:EVENT",
     "three parts of a tracepoint"),
    ("p:n§ arg0", ("found a blank in a name: expected '(' before items,"
     " or the name in double quotes"), "items without parentheses"),
    ("p:n§(arg0", "this '(' is not closed: expected ')' at the end", "items not closed"),
    ("p:n§(arg0, (x)", "this '(' is not closed: expected ')' at the end",
     "the outer parenthesis not closed"),
    ("p:n(a) §x", ("found 'x' after the items: expected the end"
     " (a name with parentheses stands in double quotes)"), "text after the items"),
    ("p:n(a)§(b)", ("found '(' after the items: expected the end"
     " (a name with parentheses stands in double quotes)"), "items twice"),
    ("p:n a§)", "found ')', but nothing is open that it would close", "a parenthesis only closed"),
    ("p:§)n", "found ')', but nothing is open that it would close", "a parenthesis in a name"),
    ('p:n(§"a)', "the string that begins here is not closed: expected '\"' at its end",
     "a string not closed"),
    ('p:§"a', "the string that begins here is not closed: expected '\"' at its end",
     "a quoted name not closed"),
    (r'p:"a§\q"', r"found the escape '\q', which C does not have", "a bad escape in a name"),
    (r'p:§"a\0"', "found a NUL, which no name can hold", "an escaped NUL in a name"),
    ("p:n§\0", "found a NUL, which no name can hold", "a NUL in a name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("marked", "reason"), [pytest.param(*case[:2], id=case[2]) for case in BAD_PROBES]
)
def test_a_bad_probe_is_refused_where_it_goes_wrong(marked, reason) -> None:
    assert refusal(parse_probe, marked) == (reason, marked)


# --- items ----------------------------------------------------------------------------------------

PRECEDENCES = [
    ("a || b && c", "(a || (b && c))", "and before or"),
    ("a && b | c", "(a && (b | c))", "bitwise or before and"),
    ("a | b ^ c", "(a | (b ^ c))", "exclusive or before or"),
    ("a ^ b & c", "(a ^ (b & c))", "bitwise and before exclusive or"),
    ("a & b == c", "(a & (b == c))", "equality before bitwise and, C's old trap"),
    ("a != b < c", "(a != (b < c))", "order before equality"),
    ("a >= b << c", "(a >= (b << c))", "shift before order"),
    ("a >> b + c", "(a >> (b + c))", "sum before shift"),
    ("a - b * c", "(a - (b * c))", "product before sum"),
    ("a * -b", "(a * (-b))", "a sign before product"),
    ("a - b - c", "((a - b) - c)", "differences group to the left"),
    ("a / b % c", "((a / b) % c)", "products group to the left"),
    ("a < b < c", "((a < b) < c)", "comparisons group to the left"),
    ("a == b != c", "((a == b) != c)", "equalities group to the left"),
    ("a || b || c", "((a || b) || c)", "ors group to the left"),
    ("(a + b) * c", "((a + b) * c)", "parentheses before all"),
    ("((a))", "a", "parentheses around a name say nothing"),
    ("!a == b", "((!a) == b)", "not before equality"),
    ("!~-+*a", "(!(~(-(+(*a)))))", "prefixes nest from the right"),
    ("- -a", "(-(-a))", "two signs apart"),
    ("a - -b", "(a - (-b))", "a difference with a sign"),
    ("*a->b", "(*a->b)", "an arrow before a star"),
    ("-a[1]", "(-a[1])", "an index before a sign"),
    ("a->b.c[1]->d", "a->b.c[1]->d", "postfixes chain"),
    ("(*a).b", "(*a).b", "parentheses around a star"),
    ("(char)a + b", "(((char)a) + b)", "a cast before a sum"),
    ("(struct X *)a->b", "((struct X *)a->b)", "an arrow before a cast"),
    ("((struct X *)a)->b", "((struct X *)a)->b", "a cast in parentheses before an arrow"),
    ("-(u8)!a", "(-((u8)(!a)))", "casts nest with prefixes"),
    ("*(int *)a + 1", "((*((int *)a)) + 1)", "what a cast points to"),
    ("str(a + 1, 8) == b", "(str((a + 1), 8) == b)", "a call before a comparison"),
    ("a[b + 1][c]", "a[(b + 1)][c]", "an index holds any expression"),
    ("a & b && c | d", "((a & b) && (c | d))", "both kinds of and and or"),
    ("1||2&&3|4^5&6==7<8<<9+10*11", ("(1 || (2 && (3 | (4 ^ (5 & (6 == (7 < (8 << (9 + (10 * 11))"
     "))))))))"), "every level at once, climbing"),
    ("11*10+9<<8<7==6&5^4|3&&2||1", ("((((((((((11 * 10) + 9) << 8) < 7) == 6) & 5) ^ 4) | 3)"
     " && 2) || 1)"), "every level at once, falling"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "full"), [pytest.param(*case[:2], id=case[2]) for case in PRECEDENCES]
)
def test_precedence_is_that_of_c(text, full) -> None:
    parsed = tree(text)
    assert render(parsed, full=True) == full
    assert tree(full) == parsed
    assert tree(render(parsed)) == parsed


def integer(name: str, size: int, *, signed: bool, pointers: int = 0) -> TypeName:
    return TypeName(TypeKind.INTEGER, name, size, signed, pointers)


def tagged(kind: TypeKind, name: str, pointers: int) -> TypeName:
    return TypeName(kind, name, 0, signed=False, pointers=pointers)


def named(name: str, pointers: int) -> TypeName:
    return tagged(TypeKind.TYPEDEF, name, pointers)


A = Name("a", 0, 0)
TREES = [
    ("arg0", Name("arg0", 0, 0), "an argument"),
    ("return", Name("return", 0, 0), "the return value"),
    ("buf", Name("buf", 0, 0), "an argument called like a function"),
    ("a->b", Member(A, "b", True, 0, 0), "a member by pointer"),
    ("a . b", Member(A, "b", False, 0, 0), "a member"),
    ("a[3]", Index(A, Integer(3, False, 4, 0, 0), 0, 0), "an element"),
    ("buf(a, 4)", Call("buf", (A, Integer(4, False, 4, 0, 0)), 0, 0), "a call"),
    ("out(a)", Name("a", 0, 0, at_return=True), "an argument's memory at return"),
    ("out(return)", Name("return", 0, 0), "the return is never at entry"),
    ("out(str(*a, 4))", Call("str", (Unary("*", Name("a", 0, 0, at_return=True), 0, 0),
                                     Integer(4, False, 4, 0, 0)), 0, 0), "a string at return"),
    ("str(*out(a), 4)", Call("str", (Unary("*", Name("a", 0, 0, at_return=True), 0, 0),
                                     Integer(4, False, 4, 0, 0)), 0, 0), "the same, elsewhere"),
    ("(a::b *)a", Cast(named("a::b", 1), A, 0, 0), "a cast to a path"),
    ("(a::b)a", Cast(named("a::b", 0), A, 0, 0), "to its value"),
    ("(class b *)a", Cast(named("b", 1), A, 0, 0), "to a class"),
    ("(struct a::b **)a", Cast(tagged(TypeKind.STRUCT, "a::b", 2), A, 0, 0), "to a structure"),
    ("(v<int,w<u *>> *)a", Cast(named("v<int, w<u*> >", 1), A, 0, 0),
     "to an instance of a template"),
    ("(a < a > (a))", Binary(">", Binary("<", A, A, 0, 0), A, 0, 0), "comparisons, not a template"),
    ("(class)", Name("class", 0, 0), "an argument called class"),
    ("a == true", Binary("==", A, Integer(1, False, 4, 0, 0), 0, 0), "a truth value"),
    ("false", Integer(0, False, 4, 0, 0), "the other"),
    ('""', Text((b"",), 0, 0), "an empty string"),
    ('"GET"', Text((b"GET",), 0, 0), "a string"),
    ('"GET *"', Text((b"GET ", b""), 0, 0), "the beginning of a string"),
    ('"*"', Text((b"", b""), 0, 0), "any string"),
    ('"**"', Text((b"", b""), 0, 0), "stars in a row are one"),
    ('"*a**b*"', Text((b"", b"a", b"b", b""), 0, 0), "a pattern"),
    (r'"\*\\*"', Text((b"*\\", b""), 0, 0), "an escaped star is a star"),
    ('contains(a, "b*")', Binary("==", A, Text((b"", b"b*", b""), 0, 0), 0, 0), "a part of a"),
    (r'"a\x2a"', Text((b"a*",), 0, 0), "a star by its number is a star"),
    (r'"a\052"', Text((b"a*",), 0, 0), "in octal as well"),
    ('"é€\udcff"', Text((b"\xc3\xa9\xe2\x82\xac\xff",), 0, 0), "a string beyond ASCII"),
    (r'"\a\b\e\f\n\r\t\v\\\'\"\?"', Text((b"\a\b\x1b\f\n\r\t\v\\'\"?",), 0, 0), "each escape"),
    (r'"\0\18\1234\x41g\x041\u00e9\U0001F600"',
     Text((b"\0\x018S4Ag\x041\xc3\xa9\xf0\x9f\x98\x80",), 0, 0), "escapes by number"),
    ("!a", Unary("!", A, 0, 0), "a prefix"),
    ("&a", Unary("&", A, 0, 0), "an address"),
    ("a&&&a", Binary("&&", A, Unary("&", A, 0, 0), 0, 0), "the longest operator first"),
    ("b :: c", Name("b::c", 0, 0), "a variable of a namespace"),
    ("::a", Name("::a", 0, 0), "a global variable"),
    ("b<int,c *>::d", Name("b<int, c*>::d", 0, 0), "one of an instance of a template"),
    ("b::c->d", Member(Name("b::c", 0, 0), "d", True, 0, 0), "a member of it"),
    ("a<=a", Binary("<=", A, A, 0, 0), "operators need no blanks"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*case[:2], id=case[2]) for case in TREES]
)
def test_tree(text, expected) -> None:
    assert tree(text) == expected


CONSTANTS = [
    ("0", 0, False, 4, "zero"),
    ("2147483647", 2**31 - 1, False, 4, "the largest int"),
    ("2147483648", 2**31, False, 8, "a decimal beyond int is long"),
    ("4294967295", 2**32 - 1, False, 8, "a decimal is never unsigned int by itself"),
    ("0xffffffff", 2**32 - 1, True, 4, "a hexadecimal may be unsigned int"),
    ("0x100000000", 2**32, False, 8, "a hexadecimal beyond that is long"),
    ("0x8000000000000000", 2**63, True, 8, "a hexadecimal beyond long is unsigned long"),
    ("18446744073709551615", 2**64 - 1, True, 8, "the largest of all"),
    ("017", 15, False, 4, "octal"),
    ("00", 0, False, 4, "octal zero"),
    ("0b101", 5, False, 4, "binary"),
    ("0B1u", 1, True, 4, "binary with a suffix"),
    ("1u", 1, True, 4, "unsigned"),
    ("1L", 1, False, 8, "long"),
    ("1uLL", 1, True, 8, "unsigned long long"),
    ("0xFFul", 255, True, 8, "hexadecimal digits are no suffix"),
    ("0" * 5000 + "1", 1, False, 4, "thousands of leading zeros"),
    ("500ns", 500, False, 8, "a duration in nanoseconds"),
    ("10us", 10_000, False, 8, "a duration in microseconds, not a number with the suffix u"),
    ("2.5ms", 2_500_000, False, 8, "a fraction of a millisecond"),
    ("1s", 10**9, False, 8, "a second"),
    ("2m", 120 * 10**9, False, 8, "two minutes"),
    ("'A'", 65, False, 4, "a character"),
    (r"'\''", 39, False, 4, "an escaped character"),
    (r"'\x7f'", 127, False, 4, "a character by number"),
    ("'\"'", 34, False, 4, "a double quote as a character"),
]


@pytest.mark.parametrize(
    ("text", "value", "unsigned", "size"),
    [pytest.param(*case[:4], id=case[4]) for case in CONSTANTS],
)
def test_constants_have_the_type_c_gives_them(text, value, unsigned, size) -> None:
    constant = tree(text)
    assert constant == Integer(value, unsigned, size, 0, 0)
    assert tree(render(constant)) == constant


CASTS = [
    ("char", integer("char", 1, signed=True), "char"),
    ("signed char", integer("signed char", 1, signed=True), "signed char"),
    ("unsigned char", integer("unsigned char", 1, signed=False), "unsigned char"),
    ("short int", integer("short", 2, signed=True), "short int"),
    ("unsigned short", integer("unsigned short", 2, signed=False), "unsigned short"),
    ("int", integer("int", 4, signed=True), "int"),
    ("signed", integer("int", 4, signed=True), "signed alone"),
    ("unsigned", integer("unsigned int", 4, signed=False), "unsigned alone"),
    ("unsigned int", integer("unsigned int", 4, signed=False), "unsigned int"),
    ("long unsigned int", integer("unsigned long", 8, signed=False), "words in another order"),
    ("long long", integer("long long", 8, signed=True), "long long"),
    ("long unsigned long", integer("unsigned long long", 8, signed=False), "words apart"),
    ("u8", integer("u8", 1, signed=False), "the kernel's u8"),
    ("__s64", integer("__s64", 8, signed=True), "the kernel's __s64"),
    ("uint32_t", integer("uint32_t", 4, signed=False), "stdint's uint32_t"),
    ("int16_t", integer("int16_t", 2, signed=True), "stdint's int16_t"),
    ("size_t", integer("size_t", 8, signed=False), "size_t"),
    ("_Bool", integer("bool", 1, signed=False), "C's own name of bool"),
    ("const char *", integer("char", 1, signed=True, pointers=1), "a pointer to const char"),
    ("char *const *", integer("char", 1, signed=True, pointers=2), "a pointer to a pointer"),
    ("u32 *", integer("u32", 4, signed=False, pointers=1), "a pointer to a kernel integer"),
    ("void *", tagged(TypeKind.VOID, "void", 1), "a pointer to void"),
    (
        "struct sk_buff *",
        tagged(TypeKind.STRUCT, "sk_buff", 1),
        "a structure's pointer",
    ),
    ("const struct a **", tagged(TypeKind.STRUCT, "a", 2), "a pointer to such"),
    ("union u *", tagged(TypeKind.UNION, "u", 1), "a union's pointer"),
    ("enum e", TypeName(TypeKind.ENUM, "e", 4, False, 0), "an enumeration"),
    ("foo_t *", named("foo_t", 1), "an unknown name's pointer"),
    ("const foo_t *", named("foo_t", 1), "an unknown const name"),
    (
        "foo_t",
        named("foo_t", 0),
        "an unknown name before an operand",
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*case[:2], id=case[2]) for case in CASTS]
)
def test_casts(text, expected) -> None:
    assert tree(f"({text})a") == Cast(expected, A, 0, 0)
    assert tree(f"( {text} ) (a)") == Cast(expected, A, 0, 0)
    assert tree(f"({render_type(expected)})a") == Cast(expected, A, 0, 0)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        pytest.param("(a)-1", "(a - 1)", id="a name in parentheses before a minus"),
        pytest.param("(a)*b", "(a * b)", id="a name in parentheses before a star"),
        pytest.param("(a)&b", "(a & b)", id="a name in parentheses before an and"),
        pytest.param("(a)[1]", "a[1]", id="a name in parentheses before an index"),
        pytest.param("(u8)-1", "((u8)(-1))", id="a known type before a minus is a cast"),
        pytest.param("(u8)*b", "((u8)(*b))", id="a known type before a star is a cast"),
        pytest.param("(u8) == 1", "(u8 == 1)", id="a known type before == is a name"),
        pytest.param("(u8)", "u8", id="a known type before the end is a name"),
        pytest.param("(a)~b", "((a)(~b))", id="a name before what is only a prefix is a type"),
        pytest.param("(a)!b", "((a)(!b))", id="a name before a not is a type"),
    ],
)
def test_a_name_in_parentheses_is_a_cast_only_if_it_must_be(text, full) -> None:
    assert render(tree(text), full=True) == full


BAD_ITEMS = [
    ("a §= 1", "'=' would assign: expected '==' to compare", "an assignment"),
    ("a §+= 1", "'+=' would assign: the language only reads", "another assignment"),
    ("a§++", ("'++' would change a variable: the language only reads;"
     " put a blank between two signs"), "an increment"),
    ("§--a", ("'--' would change a variable: the language only reads;"
     " put a blank between two signs"), "a decrement"),
    ("a §? b : c", "'?' begins a conditional, which the language does not have: give two items",
     "a conditional"),
    ("a§; b", "found ';': items are separated by ','", "a semicolon"),
    ("a & §&& b", "found '&&': expected a value after '&'", "too many ampersands"),
    ("a§::", "found '::': expected an operator, ',' or the end", "a path that does not end"),
    ("a §and b", "found 'and': expected an operator, here perhaps '&&'", "Python's and"),
    ("a §b", "found 'b': expected an operator, ',' or the end", "two names"),
    ("a §1", "found '1': expected an operator, ',' or the end", "a name and a number"),
    ("(a §b)", "found 'b': expected an operator or ')'", "two names in parentheses"),
    ("a[b §c]", "found 'c': expected an operator or ']'", "two names in an index"),
    ("str(a §b)", "found 'b': expected an operator, ',' or ')'", "two names in a call"),
    ("a§!b", "found '!': expected an operator, ',' or the end", "a prefix after a name"),
    ("§", "found 0 expressions: expected one", "nothing"),
    ("a, §b", "found 2 expressions: expected one", "two items where one belongs"),
    ("§, a", "found ',': expected a value", "a comma first"),
    ("a, §", "found the end: expected a value after ','", "a comma last"),
    ("a + §", "found the end: expected a value after '+'", "nothing after a plus"),
    ("a && §|| b", "found '||': expected a value after '&&'", "two operators"),
    ("a == §= b", "found '=': expected a value after '=='", "three equal signs apart"),
    ("(§)", "found ')': expected a value after '('", "empty parentheses"),
    ("(a§", "found the end: expected ')' for the '(' at column 1", "a parenthesis not closed"),
    ("a[1§", "found the end: expected ']' for the '[' at column 2", "an index not closed"),
    ("a[1§)", "found ')': expected ']' for the '[' at column 2", "an index wrongly closed"),
    ("(a§]", "found ']': expected ')' for the '(' at column 1", "a parenthesis wrongly closed"),
    ("(a§, b)", "found ',': expected ')' for the '(' at column 1", "a comma in parentheses"),
    ("str(a§]", "found ']': expected ')' for the '(' at column 4", "a call wrongly closed"),
    ("a§)", "found ')', but nothing is open that it would close", "a parenthesis too many"),
    ("a->§1", "found '1': expected a member's name after '->'", "a number for a member"),
    ("a.§", "found the end: expected a member's name after '.'", "no member"),
    ("§str()", "str() takes 1 or 2 arguments, found none", "str without arguments"),
    ("§str(a, b, c)", "str() takes 1 or 2 arguments, found 3", "str with three"),
    ("§buf(a)", "buf() takes 2 arguments, found 1", "buf without a length"),
    ("§hex(a, b)", "hex() takes 1 argument, found 2", "hex with two"),
    ("§out(a, b)", "out() takes 1 argument, found 2", "out with two"),
    ("1 + §out(*(int *)4)", ("out() reads memory that an argument leads to, when the function"
     " returns: expected an argument in it, as in out(*(int *)arg0)"), "out without an argument"),
    ("§strr(a)", "'strr' is no function: did you mean str()?", "a misspelt function"),
    ("§sizeof(a)", ("'sizeof' is no function: "
     "expected buf, contains, hex, kstack, ksym, out, pystack, reg, str, ustack, usym"), "sizeof"),
    ("a->b§(c)", ("found '(': only buf, contains, hex, kstack, ksym, out, pystack, reg, str, "
     "ustack, usym can be called"), "calling a member"),
    ("§int a", "found the type 'int': a cast is written (type)value", "a declaration"),
    ("(int §a)", "expected ')' after the type int, found 'a'", "a declaration in parentheses"),
    ("(struct §*)a", "expected a name after 'struct', found '*'", "a structure without a name"),
    ("(struct x§)a", "nothing can be cast to struct x itself: expected '*' before ')'",
     "a structure by value"),
    ("(void§)a", "nothing can be cast to void itself: expected '*' before ')'", "void by value"),
    ("(§unsigned char long)a", "'unsigned char long' is not a type of C", "words of two types"),
    ("(unsigned §struct x *)a", "'struct' does not go with 'unsigned' in one type",
     "an unsigned structure"),
    ("(const§)a", "expected a type's name after 'const', found ')'", "const of nothing"),
    ("(§double)a", "casts go to integer types and pointers, not to floating point",
     "a floating-point type"),
    ("§18446744073709551616", ("'18446744073709551616' is beyond 64 bits:"
     " expected at most 18446744073709551615"), "beyond 64 bits"),
    ("§" + "9" * 9000, "'" + "9" * 39 + "…' is beyond 64 bits:"
     " expected at most 18446744073709551615", "thousands of digits"),
    ("§1.5", f"found '1.5': {_NO_FLOATS}", "a fraction"),
    ("§1e5", f"found '1e5': {_NO_FLOATS}", "an exponent"),
    ("§08", "found '08': a number that begins with 0 is octal, and 8 no octal digit", "octal 8"),
    ("§10x", f"found '10x': {_EXPECTED}", "a unit that is none"),
    ("§99999999999m", "'99999999999m' is beyond 64 bits of nanoseconds", "a long duration"),
    ("§0x", f"found '0x': {_EXPECTED}", "hexadecimal without digits"),
    ("§12ab", f"found '12ab': {_EXPECTED}", "letters in a number"),
    ("§1lul", f"found '1lul': {_EXPECTED}", "a wrong suffix"),
    ("§'ab'", "found 'ab': strings stand in double quotes", "a string in single quotes"),
    ("§''", "found '': a character constant holds one character", "no character"),
    (r"§'\xff'", r"'\xff' is 255 or -1, as the CPU has it: write the number",
     "a character beyond ASCII"),
    ("§'é'", "'é' is not one byte: expected an ASCII character, or a string",
     "an accented character"),
    ("§'a", "the character constant that begins here is not closed: expected a ' at its end",
     "a character not closed"),
    ('§"a', "the string that begins here is not closed: expected '\"' at its end",
     "a string not closed"),
    (r'"a§\q"', r"found the escape '\q', which C does not have", "an escape C has not"),
    (r'"§\777"', r"the escape '\777' is beyond a byte", "an octal escape beyond a byte"),
    (r'"§\ud800"', r"'\ud800' is not a character", "half a surrogate pair as an escape"),
    (r'"§\U00110000"', r"'\U00110000' is not a character", "beyond Unicode"),
    ('"§\ud800"', r"found '\ud800': a lone surrogate is not a character", "half a pair itself"),
    ("a §@ b", "found '@', which is no part of the language", "a sign C has not"),
    ("a §\x1b", r"found '\x1b', which is no part of the language", "a control character"),
    ("§é", "found 'é', which is no part of the language", "a name beyond ASCII"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("marked", "reason"), [pytest.param(*case[:2], id=case[2]) for case in BAD_ITEMS]
)
def test_a_bad_item_is_refused_where_it_goes_wrong(marked, reason) -> None:
    assert refusal(parse_expression, marked) == (reason, marked)
