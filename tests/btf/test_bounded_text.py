"""Types that describe a few bytes as millions of members: refused, or shown in linear time."""

from __future__ import annotations

import functools

import pytest

from usdt.arch.locations import Unreadable
from usdt.base.errors import BtfError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.values import Options, Renderer, render, render_libbpf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.json_codegen import JsonCodegen
from usdt.btf.values.read_plan import ReadPlans, max_text
from usdt.btf.values.type_snapshot import TypeSnapshot
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.record.columns import StructColumn
from usdt.engine.compiler.record.layout import BadLayout
from usdt.engine.output.formatters.structures import StructJsonFormatter, StructValueFormatter


def _nested(levels: int) -> tuple[bytes, int]:
    # Anonymous unions that each contain the next one twice: 2^levels members of four bytes.
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    for _ in range(levels):
        number = made.composite(Kind.UNION, "", 4, [("a", number, 0, 0), ("b", number, 0, 0)])
    return made.data(), number


def _long_names() -> tuple[bytes, int]:
    made = BtfWriter()
    char = made.integer("char", 1, 1)
    element = made.composite(Kind.STRUCT, "element", 1, [("n" * 500_000, char, 0, 0)])
    return made.data(), element


def _casts() -> tuple[bytes, int]:
    made = BtfWriter()
    number = made.record(Kind.TYPEDEF, "t" * 400_000, made.integer("int", 4, 1))
    wide = made.composite(Kind.STRUCT, "s", 4000, [(f"m{k}", number, 32 * k, 0) for k in range(99)])
    return made.data(), wide


def _huge() -> tuple[bytes, int]:
    made = BtfWriter()
    number = made.integer("char", 1, 2)
    for _ in range(2):
        number = made.array(number, 1 << 30)
    return made.data(), number


@pytest.mark.parametrize(
    "types",
    [
        pytest.param(_nested(14), id="2^14 members of four bytes"),
        pytest.param(_nested(30), id="2^30 members of four bytes"),
        pytest.param(_long_names(), id="a name of half a megabyte for a byte"),
        pytest.param(_casts(), id="the name of a type, repeated"),
        pytest.param(_huge(), id="an array of 2^60 bytes"),
    ],
)
def test_more_text_than_any_real_type_has_is_refused(types: tuple[bytes, int]) -> None:
    raw, number = types
    btf = Btf(raw, name="hostile")
    data = b"\1" * 4000
    for show in (
        lambda: render(btf, number, data),
        lambda: render_libbpf(btf, number, data),
        lambda: ReadPlans(btf).read(number, data),
        lambda: CompactFormatter(btf).line(number, data),
        lambda: JsonCodegen(btf, text=True).function(number),
        lambda: Renderer(btf).text_of(number),
    ):
        with pytest.raises(BtfError, match=r"hostile: values of BTF type \d+ are not shown: \d+ v"):
            show()
    shape = TypeSnapshot(raw, number, min(btf.size_of(number), 1 << 30)).to_json()
    with pytest.raises(BadLayout, match=r"damaged types: .* are not shown"):
        TypeSnapshot.from_json(shape, BadLayout)


def test_a_structure_of_thousands_of_members_is_shown_as_a_small_one() -> None:
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    pair = made.composite(Kind.STRUCT, "pair", 8, [("x", number, 0, 0), ("y", number, 32, 0)])
    count = 3000
    members = [(f"m{k}", pair, 64 * (k // 2), 0) for k in range(count)]  # pairs overlap
    wide = made.composite(Kind.STRUCT, "s", 4 * count, members)
    btf, data = Btf(made.data()), bytes(range(1, 251)) * (4 * count // 250)
    for options in (Options(), Options(compact=True, emit_zeroes=True)):
        expected = render_libbpf(btf, wide, data, options)
        assert render(btf, wide, data, options) == expected
        assert Renderer(btf, options).text_of(wide)(data) == expected.text
    assert JsonCodegen(btf, text=False).function(wide)(data, 0) == ReadPlans(btf).read(wide, data)


@functools.cache
def _cut_column() -> StructColumn:
    # A structure of a gigabyte, which allows much text, with 50,000 members in its first bytes.
    made = BtfWriter()
    number = made.integer("int", 4, 1)
    members = [(f"member{k}", number, 0, 0) for k in range(50_000)]
    far = [("far", made.array(number, 1 << 12), 0x1FFF_FFFF & -8, 0)]
    made.composite(Kind.STRUCT, "s", 1 << 26, members + far)
    return StructColumn(TypeSnapshot(made.data(), 3, 1 << 26), 4096)


def test_cut_data_are_left_out_where_their_types_say_too_much() -> None:
    column = _cut_column()
    value = bytes(8) + b"\1\2\3\4"
    shown = StructValueFormatter("s", column, "<")(4, value)
    assert isinstance(shown, Unreadable)
    assert str(shown.reason).startswith("left out: 67108864 bytes as ")
    text = StructJsonFormatter("s", column, "<")(4, value)
    assert text.startswith('{"error": "left out: 67108864 bytes as ')


def test_the_lines_of_cut_data_end() -> None:
    column = _cut_column()
    btf = Btf(column.shape.types)
    done = Renderer(btf).render(column.shape.type_id, b"\1\2\3\4")
    assert done.error == "E2BIG"
    assert done.text.startswith("(struct s){")
    assert len(done.text) < 4 * max_text(4)
