"""Format files of events: fields, values of records, the kernel's own way to print them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.tracefs.format import (
    FormatError,
    FormatField,
    Printer,
    named_fields,
    parse_format,
)
from usdt.tracefs.format.expression import parse_arguments

_COMMON = """\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
"""


def made(*fields: str, shown: str = '""') -> str:
    """A format file with these fields of its own."""
    lines = "".join(f"\t{field}\n" for field in fields)
    return f"name: made\nID: 1234\nformat:\n{_COMMON}\n{lines}\nprint fmt: {shown}\n"


def field(text: str, offset: int, size: int, signed: int = 0) -> str:
    """One line of it."""
    return f"field:{text};\toffset:{offset};\tsize:{size};\tsigned:{signed};"


@pytest.mark.parametrize(
    ("line", "data", "value"),
    [
        pytest.param(field("int n", 8, 4, 1), struct.pack("=i", -5), -5, id="a signed integer"),
        pytest.param(field("u64 n", 8, 8), struct.pack("=Q", 2**64 - 1), 2**64 - 1, id="a u64"),
        pytest.param(field("pid_t pid", 8, 8), struct.pack("=q", -1), -1, id="an int in 8 bytes"),
        pytest.param(
            field("umode_t mode", 8, 8), struct.pack("=Q", 0o100644), 0o100644, id="a mode in 8"
        ),
        pytest.param(field("void * p", 8, 8), struct.pack("=Q", 4096), 4096, id="a pointer"),
        pytest.param(field("char comm[16]", 8, 16), b"bash\0rest".ljust(16), "bash", id="a name"),
        pytest.param(field("char comm[4]", 8, 4), b"\xff\xfea\0", "\udcff\udcfea", id="not UTF-8"),
        pytest.param(field("__u8 a[4]", 8, 4), bytes((1, 2, 3, 255)), [1, 2, 3, 255], id="bytes"),
        pytest.param(
            field("u16 a[]", 8, 6), struct.pack("=HHH", 1, 2, 3), [1, 2, 3], id="no length"
        ),
        pytest.param(
            field("__data_loc char[] s", 8, 4),
            struct.pack("=I", 4 << 16 | 12) + b"abc\0",
            "abc",
            id="a string elsewhere",
        ),
        pytest.param(
            field("__rel_loc char[] s", 8, 4),
            struct.pack("=I", 4 << 16 | 0) + b"abc\0",
            "abc",
            id="a string behind",
        ),
        pytest.param(
            field("__data_loc u32[] a", 8, 4),
            struct.pack("=III", 8 << 16 | 12, 7, 8),
            [7, 8],
            id="an array elsewhere",
        ),
        pytest.param(
            field("__data_loc char[][2] a", 8, 8),
            struct.pack("=II", 2 << 16 | 16, 0) + b"x\0",
            ["x", None],
            id="strings of which one could not be read",
        ),
        pytest.param(
            field("__data_loc char[] s", 8, 4),
            struct.pack("=I", 400 << 16 | 12) + b"abc\0",
            None,
            id="a string that is not there",
        ),
        pytest.param(field("u64 n", 8, 8), b"1234", None, id="a record cut short"),
        pytest.param(field("struct x y", 8, 12), b"x" * 12, b"x" * 12, id="a structure"),
    ],
)
def test_fields(line: str, data: bytes, value: object) -> None:
    form = parse_format(made(line))
    (own,) = form.own
    assert form.decode(bytes(8) + data)[own.name] == value
    assert form.number == 1234


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (field("off_t offset", 8, struct.calcsize("P")), struct.pack("=q", -2)),
        (field("long pid", 8, struct.calcsize("P")), struct.pack("=q", -2)),
        (field("loff_t pos", 8, 8), struct.pack("=q", -2)),
        (field("int dfd", 8, 4), struct.pack("=i", -2)),  # as 32-bit kernels have it
    ],
)
def test_arguments_of_calls_are_signed_as_their_type_is(line: str, data: bytes) -> None:
    form = parse_format(made(line).replace("name: made", "name: sys_enter_made"))
    (own,) = form.own
    assert form.decode(bytes(8) + data)[own.name] == -2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "no name and ID", id="nothing"),
        pytest.param("name: x\n", "no name and ID", id="no number"),
        pytest.param(made("field:int x"), "malformed field: 'field:int x'", id="no offset"),
        pytest.param(made(field("int", 8, 4)), "", id="a type as a name"),
        pytest.param(made(field("9", 8, 4)), "malformed field: '9'", id="no name"),
    ],
)
def test_what_is_no_format(text: str, says: str) -> None:
    if not says:
        assert parse_format(text).own[0].name == "int"
        return
    with pytest.raises(FormatError, match=says):
        parse_format(text)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        pytest.param(
            '"a=%d b=%#x c=%5s|", REC->a, REC->b, "x"',
            "a=-3 b=0xff c=    x|",
            id="printf",
        ),
        pytest.param(
            '"%08lx %+d %-4d|%u", REC->b, 5, 7, REC->a',
            "000000ff +5 7   |4294967293",
            id="flags",
        ),
        pytest.param('"%s", REC->a < 0 ? "neg" : "pos"', "neg", id="a condition"),
        pytest.param('"%d", (int)(((u32)REC->a) >> 28) & 7', "7", id="casts and shifts"),
        pytest.param(
            '"%s", __print_flags(REC->b, "|", {1, "A"}, {2, "B"}, {0xf0, "M"})',
            "A|B|M|0xc",
            id="flags with a rest",
        ),
        pytest.param('"%s", __print_flags(0, "|", {0, "NONE"}, {2, "B"})', "NONE", id="no flags"),
        pytest.param(
            '"%s %s", __print_symbolic(REC->b, {255, "MAX" "IMUM"}, {-1, ((void *)0)}), '
            '__print_symbolic(3, {1, "x"})',
            "MAXIMUM 0x3",
            id="symbols",
        ),
        pytest.param('"%p %pS", REC->b, REC->b', "00000000000000ff <255>", id="pointers"),
        pytest.param('"%s %d%%", REC->nothing, 5', "? 5%", id="a field that is not there"),
        pytest.param('"%d", ({ int x = 5; x; })', "?", id="what is not understood"),
        pytest.param('"%.*s", 2, "abc"', "ab", id="a precision from an argument"),
        pytest.param('"a" "b%d", 1', "ab1", id="a format in two pieces"),
        pytest.param('"%d", 1 / 0', "?", id="a division by zero"),
        pytest.param('"%d", -7 / 2', "-3", id="division as C has it"),
    ],
)  # fmt: skip
def test_printing(shown: str, text: str) -> None:
    form = parse_format(made(field("int a", 8, 4, 1), field("int b", 12, 4, 1), shown=shown))
    values = form.decode(bytes(8) + struct.pack("=ii", -3, 255))
    assert Printer(form, lambda address: f"<{address}>").text(values) == text


def test_names_of_fields() -> None:
    shown = (
        '"%s %s %s", __print_symbolic((unsigned int)REC->a, {1, "ONE"}), '
        '__print_flags(REC->b & 7, "|", {1, "x"}), __print_flags(REC->c, "+", {1, "x"}, {4, "y"})'
    )
    named = named_fields(parse_format(made(shown=shown)))
    assert set(named) == {"a", "c"}
    assert (named["a"].show(1), named["a"].show(2)) == ("ONE", "0x2")
    assert named["c"].show(5 | 16) == "x+y+0x10"


@given(st.text("REC->ab(){}[]?:+-*/%&|<>!\"'\\,01 x_", max_size=80))
def test_any_print_fmt_ends(text: str) -> None:
    for call in parse_arguments(text):
        call.evaluate({"a": 1, "b": [1, 2]})


@given(st.binary(max_size=64))
def test_any_record_ends(data: bytes) -> None:
    lines = (
        field("__data_loc char[] s", 8, 4),
        field("__rel_loc u16[] r", 12, 4),
        field("__data_loc char[][3] a", 16, 12),
        field("char c[5]", 28, 5),
    )
    values = parse_format(made(*lines)).decode(data)
    assert set(values) >= {"s", "r", "a", "c"}


def test_nesting_is_bounded() -> None:
    (call,) = parse_arguments("(" * 5000 + "1" + ")" * 5000)
    assert call.evaluate({}) is None


def test_declarations() -> None:
    form = parse_format(made(field("const char * name", 8, 8), field("char comm[16]", 16, 16)))
    assert [own.declaration for own in form.own] == ["const char *name", "char comm[16]"]
    assert isinstance(form.own[0], FormatField)
    assert sys.byteorder in ("little", "big")
    assert not Path("made").exists()


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("081", id="an octal number with an 8"),
        pytest.param("1" * 5000, id="more digits than Python converts"),
        pytest.param('__print_symbolic(REC, {1, "a"})', id="names of a record"),
        pytest.param('__print_flags(REC, "|", {})', id="flags of a record, without names"),
        pytest.param("sizeof(int", id="a size that does not end"),
        pytest.param("sizeof(", id="a size of nothing"),
    ],
)
def test_a_damaged_argument_is_unknown_and_ends(argument: str) -> None:
    form = parse_format(made(field("int n", 8, 4), shown=f'"n=%s", {argument}'))
    assert named_fields(form) == {}
    assert Printer(form).text(form.decode(bytes(12))) == "n=?"


@pytest.mark.parametrize(
    "directive", ["%99999999999d", "%" + "1" * 5000 + "d", "%." + "1" * 5000 + "d"]
)
def test_a_damaged_directive_prints(directive: str) -> None:
    form = parse_format(made(field("int n", 8, 4), shown=f'"{directive}", REC->n'))
    assert Printer(form).text({"n": 1})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("field:\0", id="no field"),
        pytest.param("field:\x1b;\toffset:0;\tsize:4;", id="no declaration"),
        pytest.param(field("int n", 10**11, 4), id="an offset without end"),
    ],
)
def test_errors_are_printable(line: str) -> None:
    text = made(line).replace("name: made", "name: ma\0de")
    with pytest.raises(FormatError, match="malformed field") as caught:
        parse_format(text)
    assert str(caught.value).isprintable()
