"""Typed data as text: libbpf's layout, its mistakes apart, and two implementations that agree."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding, Kind
from usdt.btf.reader import Btf
from usdt.btf.values import Options, Rendered, Renderer, render, render_libbpf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.read_plan import ReadPlans
from usdt.btf.writer import BtfWriter

if TYPE_CHECKING:
    from usdt.btf.values.options import Quirk

COMPACT = Options(compact=True)
NONE: frozenset[Quirk] = frozenset()


class Maker(BtfWriter):
    """The usual integers, and structures laid out by their members' sizes."""

    def __init__(self, order: str = "little") -> None:
        super().__init__(order)
        self.int = self.integer("int", 4, Encoding.SIGNED)
        self.char = self.integer("char", 1, Encoding.SIGNED)
        self.u8 = self.integer("unsigned char", 1)
        self.u64 = self.integer("long unsigned int", 8)
        self.bool = self.integer("_Bool", 1, Encoding.BOOL)

    def struct(self, name: str, *members: tuple[str, int, int]) -> int:
        """A packed structure; members are (name, type, bytes)."""
        rows, at = [], 0
        for label, target, size in members:
            rows.append((label, target, 8 * at, 0))
            at += size
        return self.composite(Kind.STRUCT, name, at, rows)


def shown(out: BtfWriter, number: int, data: bytes, *, libbpf: bool = False, **options: Any) -> str:
    """A value as text, compact unless told otherwise."""
    chosen = Options(**{"compact": True, **options})
    btf = Btf(out.data())
    if libbpf:
        return render_libbpf(btf, number, data, chosen).text
    whole = render(btf, number, data, chosen)
    assert render_libbpf(btf, number, data, chosen, quirks=NONE) == whole
    return whole.text


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


# ---------------------------------------------------------------- the layout


def test_members_on_lines_of_their_own() -> None:
    out = Maker()
    inner = out.struct("inner", ("a", out.int, 4), ("b", out.int, 4))
    number = out.struct("s", ("x", out.int, 4), ("in", inner, 8), ("v", out.array(out.int, 2), 8))
    text = shown(out, number, ints(-1, 0, 5, 0, 7), compact=False, indent_str="  ", indent_level=1)
    assert text == (
        "  (struct s){\n"
        "    .x = (int)-1,\n"
        "    .in = (struct inner){\n"
        "      .b = (int)5,\n"
        "    },\n"
        "    .v = (int[2])[\n"
        "      0,\n"
        "      7,\n"
        "    ],\n"
        "  }"
    )


def test_the_options() -> None:
    out = Maker()
    number = out.struct("s", ("x", out.int, 4), ("p", out.pointer(out.char), 8))
    data = ints(0, 0, 0)
    assert shown(out, number, data) == "(struct s){}"
    assert shown(out, number, data, emit_zeroes=True) == "(struct s){.x = (int)0,.p = (char *)0x0,}"
    assert shown(out, number, ints(3, 1, 0), skip_names=True) == "{3,0x1,}"
    assert shown(out, number, ints(3, 0, 0), compact=False) == "(struct s){\n\t.x = (int)3,\n}"


@pytest.mark.parametrize(
    ("name", "size", "encoding", "data", "text"),
    [
        ("s8", 1, 1, b"\xff", "-1"),
        ("u8", 1, 0, b"\xff", "255"),
        ("s16", 2, 1, b"\x00\x80", "-32768"),
        ("u32", 4, 0, b"\xff" * 4, "4294967295"),
        ("s64", 8, 1, b"\xff" * 8, "-1"),
        ("u64", 8, 0, b"\xff" * 8, "18446744073709551615"),
        ("bool", 1, 4, b"\x01", "1"),
        ("i128", 16, 1, bytes(range(16)), "0xf0e0d0c0b0a09080706050403020100"),
        ("i128", 16, 0, b"\x0a" + bytes(15), "0xa"),
    ],
)
def test_integers(name: str, size: int, encoding: int, data: bytes, text: str) -> None:
    out = BtfWriter()
    number = out.integer(name, size, encoding)
    assert shown(out, number, data) == f"({name}){text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.500000"),
        (-0.0, "-0.000000"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (-math.nan, "-nan"),
        (1e20, "100000000000000000000.000000"),
    ],
)
def test_floats_as_printf_prints_them(value: float, text: str) -> None:
    out = BtfWriter()
    number = out.record(Kind.FLOAT, "double", 8)
    structure = out.composite(Kind.STRUCT, "s", 8, [("d", number, 0, 0)])
    data = struct.pack("<d", value)
    assert shown(out, number, data) == f"(double){text}"
    assert shown(out, structure, data) == f"(struct s){{.d = (double){text},}}"


def test_enumerations() -> None:
    out = Maker()
    signed = out.enum("e", 4, [("MINUS", -2), ("ZERO", 0), ("AGAIN", 0)], signed=True)
    plain = out.enum("f", 4, [("OLD", -2)])
    wide = out.enum64("g", 8, [("BIG", 1 << 40)])
    negative = out.enum64("h", 8, [("BIG", -1)], signed=True)
    assert shown(out, signed, ints(-2)) == "(enum e)MINUS"
    assert shown(out, signed, ints(0)) == "(enum e)ZERO"
    assert shown(out, signed, ints(-3)) == "(enum e)-3"
    assert shown(out, plain, ints(-2)) == "(enum f)4294967294"
    assert shown(out, wide, struct.pack("<Q", 1 << 40)) == "(enum g)BIG"
    assert shown(out, wide, struct.pack("<Q", 5)) == "(enum g)5ULL"
    assert shown(out, negative, struct.pack("<q", -7)) == "(enum h)-7LL"


def test_types_are_named_as_c_names_them() -> None:
    out = Maker()
    function = out.prototype(out.int, [("", out.int), ("s", out.pointer(out.char)), ("", 0)])
    members = [
        ("f", out.pointer(function)),
        ("v", out.pointer(out.prototype(0, []))),
        ("pp", out.pointer(out.pointer(out.record(Kind.CONST, "", out.char)))),
        ("pa", out.pointer(out.array(out.int, 4))),
    ]
    number = out.struct("s", *((name, target, 8) for name, target in members))
    assert shown(out, number, struct.pack("<4Q", 1, 2, 3, 4)) == (
        "(struct s){.f = (int (*)(int, char *s, ...))0x1,.v = (void (*)(void))0x2,"
        ".pp = (char **)0x3,.pa = (int(*)[4])0x4,}"
    )


def test_anonymous_members() -> None:
    out = Maker()
    union = out.composite(Kind.UNION, "", 4, [("a", out.int, 0, 0), ("b", out.u8, 0, 0)])
    number = out.struct("s", ("", union, 4), ("e", out.enum("", 4, [("ONE", 1)]), 4))
    expected = "(struct s){(union){.a = (int)65,.b = (unsigned char)65,},.e = (enum )ONE,}"
    assert shown(out, number, ints(65, 1)) == expected


def test_arrays() -> None:
    out = Maker()
    matrix = out.array(out.array(out.int, 2), 2)
    assert shown(out, matrix, ints(0, 1, 2, 0)) == "(int[2][2])[[0,1,],[2,0,],]"
    flexible = out.struct("s", ("n", out.int, 4), ("flex", out.array(out.int, 0), 0))
    assert shown(out, flexible, ints(1)) == "(struct s){.n = (int)1,}"
    zeroes = shown(out, flexible, ints(1), emit_zeroes=True)
    assert zeroes == "(struct s){.n = (int)1,.flex = (int[0])[],}"
    inner = out.struct("inner", ("a", out.int, 4), ("b", out.int, 4))
    assert shown(out, out.array(inner, 2), ints(0, 1, 0, 0)) == (
        "(struct inner[2])[{.a = 0,.b = 1,},{.a = 0,.b = 0,},]"
    )


def test_strings() -> None:
    out = Maker()
    number = out.struct("s", ("name", out.array(out.char, 5), 5), ("after", out.int, 4))
    data = b'a"\x01\0z' + ints(1)
    assert shown(out, number, data, emit_strings=True) == (
        '(struct s){.name = (char[5])"a"\\x01",.after = (int)1,}'
    )
    assert shown(out, number, data) == "(struct s){.name = (char[5])['a','\"',1,],.after = (int)1,}"
    whole = shown(out, number, b"abcde" + ints(0), emit_strings=True)
    assert whole == "(struct s){.name = (char[5])['a','b','c','d','e',],}"
    zero = shown(out, number, b"\0bcde" + ints(0), emit_zeroes=True)
    assert zero == "(struct s){.name = (char[5])['\\0',],.after = (int)0,}"


def test_bit_fields() -> None:
    out = Maker()
    enum = out.enum("e", 4, [("NONE", 0), ("TWO", 2)])
    rows = [
        ("a", out.int, 0, 3),
        ("b", out.int, 3, 7),
        ("e", enum, 10, 2),
        ("wide", out.u64, 13, 51),
    ]
    number = out.composite(Kind.STRUCT, "s", 8, rows)
    value = 0b101 | 0x41 << 3 | 2 << 10 | ((1 << 51) - 1) << 13
    assert shown(out, number, struct.pack("<Q", value)) == (
        "(struct s){.a = (int)0x5,.b = (int)0x41,.e = (enum e)TWO,"
        ".wide = (long unsigned int)0x7ffffffffffff,}"
    )
    assert shown(out, number, bytes(8)) == "(struct s){}"


def test_big_endian_data() -> None:
    out = Maker("big")
    number = out.composite(
        Kind.STRUCT, "s", 8, [("a", out.int, 0, 3), ("b", out.int, 3, 13), ("c", out.int, 32, 0)]
    )
    data = struct.pack(">HHi", 0b101 << 13 | 0x123, 0, -2)
    expected = "(struct s){.a = (int)0x5,.b = (int)0x123,.c = (int)-2,}"
    assert shown(out, number, data) == expected


def test_variables_and_sections() -> None:
    out = Maker()
    first = out.record(Kind.VAR, "counter", out.int, [0])
    second = out.record(Kind.VAR, "limit", out.record(Kind.CONST, "", out.int), [1])
    third = out.record(Kind.VAR, "far", out.int, [2])
    section = out.section(".data", 12, [(first, 0, 4), (second, 4, 4), (third, 8, 4)])
    assert shown(out, first, ints(5)) == "static int counter = (int)5"
    assert shown(out, third, ints(0), skip_names=True) == "extern int far = 0"
    assert shown(out, section, ints(1, 2, 3)) == (
        'SEC(".data") static int counter = (int)1;int limit = (int)2;extern int far = (int)3;'
    )


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "(struct s){"),
        (7, "(struct s){.x = (int)1,"),
        (8, "(struct s){.x = (int)1,.in = (struct inner){.a = (int)2,"),
        (12, "(struct s){.x = (int)1,.in = (struct inner){.a = (int)2,.b = (int)3,},"),
    ],
)
def test_data_that_ends_too_early_is_shown_as_far_as_it_goes(length: int, text: str) -> None:
    out = Maker()
    inner = out.struct("inner", ("a", out.int, 4), ("b", out.int, 4))
    number = out.struct("s", ("x", out.int, 4), ("in", inner, 8), ("y", out.int, 4))
    found = render(Btf(out.data()), number, ints(1, 2, 3, 4)[:length], COMPACT)
    if length == 7:
        text += ".in = (struct inner){"
    assert found == Rendered(text, None, "E2BIG")


def test_what_has_no_values_is_an_error() -> None:
    out = Maker()
    btf_numbers = [out.record(Kind.FWD, "later", 0), out.prototype(0, []), 0]
    btf = Btf(out.data())
    for number in btf_numbers:
        assert render(btf, number, bytes(8)) == Rendered("", None, "EINVAL")
        assert render_libbpf(btf, number, bytes(8)) == Rendered("", None, "EINVAL")


def test_text_ends_where_a_member_has_no_text() -> None:
    out = Maker()
    half = out.record(Kind.FLOAT, "_Float16", 2)
    number = out.struct("s", ("x", out.int, 4), ("half", half, 2))
    btf, data = Btf(out.data()), ints(1) + b"ab"
    expected = Rendered("(struct s){.x = (int)1,.half = (_Float16)", None, "EINVAL")
    assert render(btf, number, data, COMPACT) == expected
    assert Renderer(btf, COMPACT).text_of(number)(data) == expected.text


def test_absurd_types_are_refused() -> None:
    out = Maker()
    number = out.int
    for _ in range(4):
        number = out.array(number, 1000)
    section = out.section(".data", 4, [(out.record(Kind.VAR, "v", number, [1]), 0, 4)])
    btf = Btf(out.data())
    for absurd in (number, section):
        for show in (render, render_libbpf):
            with pytest.raises(BtfError, match="are not shown: 1000000 values in 4000000 bytes"):
                show(btf, absurd, b"")


def test_names_cannot_escape_into_the_generated_code() -> None:
    out = Maker()
    name = '"); raise SystemExit #\\{x}\n\udcff'
    number = out.struct(name, (name, out.int, 4), (name, out.array(out.char, 2), 2))
    text = shown(out, number, ints(1) + b"ab")
    assert text == f"(struct {name}){{.{name} = (int)1,.{name} = (char[2])['a','b',],}}"


# ---------------------------------------------------------------- what libbpf gets wrong


def quirk_cases() -> list[Any]:
    """(what is wrong, the type, the data, right, wrong)."""
    out = Maker()
    inner = out.struct("inner", ("a", out.int, 4), ("b", out.int, 4))
    nested = out.struct("s", ("x", out.int, 4), ("in", inner, 8), ("y", out.int, 4))
    chars = out.struct(
        "s", ("c", out.array(out.char, 2), 2), ("arr", out.array(out.int, 4), 16), ("u", out.u8, 1)
    )
    enum = out.enum("e", 4, [("A", 1)], signed=True)
    pair = out.struct("s", ("e", enum, 4), ("x", out.int, 4))
    named = out.struct("s", ("name", out.array(out.char, 8), 8), ("x", out.int, 4))
    plain = out.enum("e", 4, [("A", 2)])
    odd = out.struct("s", ("c", out.char, 1), ("e", plain, 4))
    bits = out.composite(Kind.STRUCT, "s", 4, [("p", plain, 0, 8), ("q", plain, 8, 8)])
    text = {"emit_strings": True, "compact": False}
    return [
        pytest.param((out, nested), ints(1, 0, 5, 2), {},
            "(struct s){.x = (int)1,.in = (struct inner){.b = (int)5,},.y = (int)2,}",
            "(struct s){.x = (int)1,.y = (int)2,}", id="a first member that is 0"),
        pytest.param((out, chars), b"a\0" + ints(0, 1, 0, 2) + b"A", {},
            "(struct s){.c = (char[2])['a',],.arr = (int[4])[0,1,0,2,],.u = (unsigned char)65,}",
            "(struct s){.c = (char[2])['a',],.arr = (int[4])[1,2,],.u = (unsigned char)'A',}",
            id="characters for ever"),
        pytest.param((out, out.array(out.char, 3)), b"A\0B", {},
            "(char[3])['A',]", "(char[3])['A','B',]", id="a NUL that does not end"),
        pytest.param((out, pair), ints(9, 7), {},
            "(struct s){.e = (enum e)9,.x = (int)7,}", "(struct s){.e = (enum e)9.x = (int)7,}",
            id="an unknown enumerator without a comma"),
        pytest.param((out, named), b"abc".ljust(8, b"\0") + ints(1), text,
            '(struct s){\n\t.name = (char[8])"abc",\n\t.x = (int)1,\n}',
            '(struct s){\n\t.name = (char[8])\t"abc"\t.x = (int)1,\n}',
            id="a string in a structure"),
        pytest.param((out, odd), b"a" + ints(2), {},
            "(struct s){.c = (char)97,.e = (enum e)A,}", "(struct s){.c = (char)97,}",
            id="a misaligned enumeration"),
        pytest.param((out, bits), ints(0x0200), {},
            "(struct s){.q = (enum e)A,}", "(struct s){.p = (enum e)0,}",
            id="a zero bit field of an enumeration"),
    ]  # fmt: skip


@pytest.mark.parametrize(("typed", "data", "options", "right", "wrong"), quirk_cases())
def test_libbpfs_mistakes_are_made_only_on_request(
    typed: tuple[BtfWriter, int], data: bytes, options: dict[str, Any], right: str, wrong: str
) -> None:
    assert shown(*typed, data, **options) == right
    assert shown(*typed, data, libbpf=True, **options) == wrong


def test_the_second_type_of_a_name_has_a_suffix_in_libbpf() -> None:
    out = Maker()
    first = out.struct("twin", ("a", out.int, 4))
    second = out.struct("twin", ("b", out.int, 4))
    number = out.struct("s", ("x", first, 4), ("y", second, 4))
    text = shown(out, number, ints(1, 2), libbpf=True)
    assert ".y = (struct twin___2){" in text
    assert ".y = (struct twin){" in shown(out, number, ints(1, 2))


# ---------------------------------------------------------------- two implementations


@st.composite
def types_with_data(draw: st.DrawFn) -> tuple[bytes, int, bytes]:
    """BTF, a type in it, and data for it: whole, too short or too long."""
    out = Maker(draw(st.sampled_from(["little", "big"])))
    sized = [(out.int, 4), (out.char, 1), (out.u8, 1), (out.u64, 8), (out.bool, 1)]
    sized.append((out.integer("__int128", 16, Encoding.SIGNED), 16))
    sized += [(out.record(Kind.FLOAT, "double", 8), 8), (out.record(Kind.FLOAT, "float", 4), 4)]
    for size in (1, 2, 4, 8):
        values = [("ZERO", 0), ("A", 65), ("LAST", -1)]
        signed = draw(st.booleans())
        sized.append((out.enum(f"e{size}", size, values, signed=signed), size))
    sized.append((out.enum64("e64", 8, [("Z", 0), ("BIG", 1 << 35)]), 8))
    sized.append((out.pointer(out.char), 8))
    fields = [number for number, size in sized if size <= 8 and size != 16][:5]
    fields += [number for number, _ in sized[8:13]]
    for index in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 3)) == 0:
            target, size = draw(st.sampled_from(sized))
            count = draw(st.integers(0, 4))
            if size:
                sized.append((out.array(target, count), size * count))
            continue
        sized.append(draw_composite(draw, out, f"s{index}", sized, fields))
    target, size = sized[-1]
    if draw(st.booleans()):
        target = out.record(Kind.TYPEDEF, "name_t", out.record(Kind.VOLATILE, "", target))
    length = draw(st.sampled_from([size, size, size, size + 3]) | st.integers(0, size))
    byte = st.sampled_from([0, 0, 0, 1, 65, 128, 255]) | st.integers(0, 255)
    data = bytes(draw(st.lists(byte, min_size=length, max_size=length)))
    return out.data(), target, data


def draw_composite(
    draw: st.DrawFn, out: Maker, name: str, sized: list[tuple[int, int]], fields: list[int]
) -> tuple[int, int]:
    """A structure or union with packed members, bit fields and gaps among them."""
    kind = draw(st.sampled_from([Kind.STRUCT, Kind.STRUCT, Kind.UNION]))
    rows, at, whole = [], 0, 0
    for index in range(draw(st.integers(0, 5))):
        start = 0 if kind == Kind.UNION else at
        label = "" if draw(st.integers(0, 9)) == 0 else f"m{index}"
        if draw(st.integers(0, 2)) == 0:
            target = draw(st.sampled_from(fields))
            bits = draw(st.integers(1, 33))
            rows.append((label, target, start, bits))
            at = start + bits
        else:
            target, size = draw(st.sampled_from(sized))
            start = (start + 7) // 8 * 8 + 8 * draw(st.integers(0, 1))
            start = 0 if kind == Kind.UNION else start
            rows.append((label, target, start, 0))
            at = start + 8 * size
        whole = max(whole, at)
    size = (whole + 7) // 8 + draw(st.integers(0, 2))
    return out.composite(kind, draw(st.sampled_from([name, ""])), size, rows), size


options = st.builds(
    Options,
    compact=st.booleans(),
    skip_names=st.booleans(),
    emit_zeroes=st.booleans(),
    emit_strings=st.booleans(),
    indent_str=st.sampled_from(["\t", " ", ""]),
    indent_level=st.integers(0, 2),
)


@settings(max_examples=400, deadline=None)
@given(types_with_data(), options)
def test_compiled_and_interpreted_rendering_agree(
    case: tuple[bytes, int, bytes], chosen: Options
) -> None:
    raw, number, data = case
    btf = Btf(raw)
    expected = render_libbpf(btf, number, data, chosen, quirks=NONE)
    assert render(btf, number, data, chosen) == expected
    text = Renderer(btf, chosen).text_of(number)
    assert text(data) == expected.text


@settings(max_examples=150, deadline=None)
@given(types_with_data())
def test_json_and_lines_of_any_value(case: tuple[bytes, int, bytes]) -> None:
    raw, number, data = case
    btf = Btf(raw)
    json.dumps(ReadPlans(btf).read(number, data), allow_nan=False)
    line = CompactFormatter(btf).line(number, data)
    assert "\n" not in line
    assert line == CompactFormatter(btf, once=True).line(number, data)


# ---------------------------------------------------------------- JSON and lines


def example() -> tuple[Btf, int, bytes]:
    out = Maker()
    names = [("A", 1), ("B", 2), ("C", 4), ("D", 8)]
    flags = out.enum("flags", 4, names)
    call = out.pointer(out.prototype(0, []))
    union = out.composite(Kind.UNION, "", 4, [("id", out.int, 0, 0)])
    rows = [
        ("len", out.int, 0, 0), ("dev", out.array(out.char, 4), 32, 0), ("flags", flags, 64, 0),
        ("fn", call, 128, 0), ("text", out.pointer(out.char), 192, 0), ("", union, 256, 0),
        ("low", out.int, 288, 3), ("ok", out.bool, 296, 0), ("mac", out.array(out.u8, 2), 304, 0),
        ("zero", out.int, 320, 0),
    ]  # fmt: skip
    number = out.composite(Kind.STRUCT, "s", 48, rows)
    data = struct.pack("<i4sixxxxQQiBBBBi", -84, b"lo\0x", 5, 4096, 8192, 7, 7, 1, 2, 0, 0)
    return Btf(out.data()), number, data.ljust(48, b"\0")


def test_values_for_json() -> None:
    btf, number, data = example()
    assert ReadPlans(btf).read(number, data) == {
        "len": -84, "dev": "lo", "flags": 5, "fn": 4096, "text": 8192, "id": 7, "low": -1,
        "ok": True, "mac": [2, 0], "zero": 0,
    }  # fmt: skip
    short: dict[str, Any] = ReadPlans(btf).read(number, data[:6])
    assert (short["len"], short["dev"], short["flags"]) == (-84, "lo", None)


def test_short_lines() -> None:
    btf, number, data = example()
    assert CompactFormatter(btf).line(number, data) == (
        '{len=-84, dev="lo", flags=A|C, fn=0x1000, text=0x2000, id=7, low=-1, ok=true, mac=[2, 0]}'
    )
    known = CompactFormatter(btf, symbol={4096: "tcp_v4_rcv"}.get, string={8192: "hi\n"}.get)
    assert 'fn=tcp_v4_rcv, text="hi\\n"' in known.line(number, data)
    assert CompactFormatter(btf).line(number, bytes(48)) == "{}"
