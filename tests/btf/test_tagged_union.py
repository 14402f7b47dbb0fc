"""Values that say themselves what they are: each form by its name, with its own data."""

from __future__ import annotations

import struct

import pytest

from usdt.btf.format import Encoding, Kind
from usdt.btf.minimize import minimize
from usdt.btf.reader import Btf
from usdt.btf.tagged_union import DISCRIMINANT, tagged_union_of
from usdt.btf.values import Options, render
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.json_codegen import JsonCodegen
from usdt.btf.values.read_plan import ReadPlans
from usdt.btf.writer import BtfWriter

MARKS = {"little": "<", "big": ">"}


def made(order: str = "little") -> tuple[Btf, int, int]:
    """enum Shape { Empty, Circle(u16, bool), Square { side: i32 }, Other(u16) }, and a holder.

    ``Other`` is what every number that is not named stands for.
    """
    out = BtfWriter(order)
    u16, i32 = out.integer("u16", 2), out.integer("i32", 4, Encoding.SIGNED)
    truth = out.integer("bool", 1, Encoding.BOOL)
    empty = out.composite(Kind.STRUCT, "Empty", 8, [])
    rows = [("__1", truth, 16, 0), ("__0", u16, 32, 0)]  # as they lie
    circle = out.composite(Kind.STRUCT, "Circle", 8, rows)
    square = out.composite(Kind.STRUCT, "Square", 8, [("side", i32, 32, 0)])
    other = out.composite(Kind.STRUCT, "Other", 8, [("__0", u16, 32, 0)])
    names = ("Empty", empty), ("Circle", circle), ("Square", square), ("Other", other)
    forms = out.composite(Kind.UNION, "", 8, [(name, one, 0, 0) for name, one in names])
    kinds = out.enum("", 2, [("Empty", 0), ("Circle", 1), ("Square", 0xFFFF)])
    rows = [(DISCRIMINANT, kinds, 0, 0), ("", forms, 0, 0)]
    shape = out.composite(Kind.STRUCT, "Shape", 8, rows)
    row = out.array(shape, 3)
    rows = [("head", u16, 0, 0), ("shape", shape, 32, 0), ("row", row, 96, 0)]
    holder = out.composite(Kind.STRUCT, "Holder", 36, rows)
    return Btf(out.data()), shape, holder


def shape(order: str, tag: int, data: bytes = b"") -> bytes:
    return struct.pack(MARKS[order] + "H", tag) + data.ljust(6, b"\xee")


@pytest.mark.parametrize("order", ["little", "big"])
def test_each_form_is_shown_with_its_own_data(order: str) -> None:
    btf, number, _ = made(order)
    u16, i32 = MARKS[order] + "B x H", MARKS[order] + "2x i"
    known = [
        (shape(order, 0), "Empty", "Empty", "Empty"),
        (
            shape(order, 1, struct.pack(u16, 1, 500)),
            {"Circle": {"__1": True, "__0": 500}},
            "Circle(500, true)",
            "Circle{.__1 = true,.__0 = 500,}",
        ),
        (
            shape(order, 1, struct.pack(u16, 0, 0)),
            {"Circle": {"__1": False, "__0": 0}},
            "Circle(0, false)",
            "Circle{.__1 = false,.__0 = 0,}",
        ),
        (
            shape(order, 0xFFFF, struct.pack(i32, -3)),
            {"Square": {"side": -3}},
            "Square{side=-3}",
            "Square{.side = -3,}",
        ),
        (
            shape(order, 7, struct.pack(u16, 0, 9)),
            {"Other": {"__0": 9}},
            "Other(9)",
            "Other{.__0 = 9,}",
        ),
    ]
    for data, value, line, tree in known:
        assert ReadPlans(btf).read(number, data) == value
        assert JsonCodegen(btf, text=False).function(number)(data, 0) == value
        assert CompactFormatter(btf).line(number, data) == line
        shown = render(btf, number, data, Options(compact=True, symbolic=True))
        assert shown.text == f"(struct Shape){tree}"


def test_within_a_structure_and_in_a_row() -> None:
    btf, _, holder = made()
    one = shape("little", 1, struct.pack("<B x H", 1, 2))
    data = struct.pack("<H2x", 5) + one + shape("little", 0) * 2 + shape("little", 7, bytes(6))
    circle, other = {"Circle": {"__1": True, "__0": 2}}, {"Other": {"__0": 0}}
    value = {"head": 5, "shape": circle, "row": ["Empty", "Empty", other]}
    blob, number = minimize(btf, holder)  # as a recording has it
    for types, which in ((btf, holder), (Btf(blob), number)):
        assert ReadPlans(types).read(which, data) == value
        assert JsonCodegen(types, text=False).function(which)(data, 0) == value
        line = "{head=5, shape=Circle(2, true), row=[Empty, Empty, Other(0)]}"
        assert CompactFormatter(types).line(which, data) == line
        assert CompactFormatter(types, once=True).line(which, data) == line
        tree = render(types, which, data, Options(indent_str=" ", symbolic=True)).text
        assert " .shape = (struct Shape)Circle{\n  .__1 = true,\n" in tree
        assert "  Empty,\n  Empty,\n  Other{\n   .__0 = 0,\n  },\n ]," in tree
    nothing = bytes(4) + shape("little", 0, bytes(6)) * 4
    assert CompactFormatter(btf).line(holder, nothing) == "{shape=Empty}"


def test_data_that_end_early() -> None:
    btf, number, holder = made()
    whole = struct.pack("<H2x", 5) + shape("little", 1, struct.pack("<B x H", 1, 2)) * 4
    for size in range(len(whole)):
        ReadPlans(btf).read(holder, whole[:size])
        CompactFormatter(btf).line(holder, whole[:size])
        assert render(btf, holder, whole[:size]).error == (
            "E2BIG" if size < 12 else ""
        )  # arrays end
    assert ReadPlans(btf).read(number, b"\1") is None
    assert CompactFormatter(btf).line(number, b"\1") == "?"
    assert ReadPlans(btf).read(number, b"\1\0\1") == {"Circle": {"__1": True, "__0": None}}


def test_what_is_none() -> None:
    out = BtfWriter()
    integer = out.integer("int", 4)
    kinds = out.enum("", 4, [("One", 1)])
    union = out.composite(Kind.UNION, "", 4, [("One", integer, 0, 0)])
    plain = out.composite(Kind.STRUCT, "plain", 4, [("a", kinds, 0, 0), ("", union, 0, 0)])
    behind = out.composite(Kind.STRUCT, "b", 4, [(DISCRIMINANT, kinds, 32, 0), ("", union, 0, 0)])
    number = out.composite(Kind.STRUCT, "n", 4, [(DISCRIMINANT, integer, 0, 0), ("", union, 0, 0)])
    btf = Btf(out.data())
    assert [tagged_union_of(btf, btf.type(one)) for one in (integer, plain, behind, number)] == [
        None
    ] * 4
