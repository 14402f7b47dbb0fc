"""Types taken out of their BTF, taken along in recordings, and compiled."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from typedthings import IDS, SIZE, thing, things

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding, Kind
from usdt.btf.minimize import minimize
from usdt.btf.reader import Btf
from usdt.btf.values.compact import CompactFormatter
from usdt.btf.values.json_codegen import JsonCodegen
from usdt.btf.values.options import Options
from usdt.btf.values.read_plan import ReadPlans
from usdt.btf.values.renderer import Renderer
from usdt.btf.values.type_snapshot import TypeSnapshot, snapshot_of
from usdt.btf.writer import BtfWriter
from usdt.engine.compiler.record.layout import BadLayout


@pytest.mark.parametrize("order", ["little", "big"])
def test_a_subset_renders_as_the_whole_does(order: str) -> None:
    btf = things(order)
    types, number = minimize(btf, IDS["thing"])
    part = Btf(types)
    assert part.order == order
    assert part.size_of(number) == SIZE
    source = random.Random(5)
    for data in (thing(), bytes(SIZE), source.randbytes(SIZE), source.randbytes(SIZE)):
        for options in (Options(), Options(compact=True, emit_zeroes=True), Options(symbolic=True)):
            whole = Renderer(btf, options).render(IDS["thing"], data)
            assert Renderer(part, options).render(number, data) == whole
        assert CompactFormatter(part).line(number, data) == CompactFormatter(btf).line(
            IDS["thing"], data
        )


@pytest.mark.parametrize("order", ["little", "big"])
def test_generated_code_reads_what_the_reader_reads(order: str) -> None:
    btf = things(order)
    objects, texts = (JsonCodegen(btf, text=text).function(IDS["thing"]) for text in (False, True))
    source = random.Random(6)
    for _ in range(50):
        data = source.randbytes(SIZE)
        expected = ReadPlans(btf).read(IDS["thing"], data)
        assert objects(data, 0) == expected
        assert texts(data, 0) == json.dumps(expected)
        assert texts(b"before" + data, 6) == texts(data, 0)


def test_names_of_strangers_do_no_harm() -> None:
    made = BtfWriter()
    integer = made.integer("int", 4, Encoding.SIGNED)
    enum = made.enum("e", 4, [("{__import__('os')}", 1), ("'''\\\n\"", 2)])
    names = ("{boom}", "'''", "\\", '"quoted"', "new\nline", "ünïcode", "{{", "%s")
    members = [(name, integer, 32 * at, 0) for at, name in enumerate(names)]
    number = made.composite(
        Kind.STRUCT, "s", 4 * len(names) + 4, [*members, ("e", enum, 32 * len(names), 0)]
    )
    btf = Btf(made.data())
    for last in (1, 2):
        data = b"".join(n.to_bytes(4, "little") for n in (*range(len(names)), last))
        expected: dict[str, Any] = dict(zip(names, range(len(names)), strict=True))
        expected["e"] = "{__import__('os')}" if last == 1 else "'''\\\n\""
        assert JsonCodegen(btf, text=False).function(number)(data, 0) == expected
        assert json.loads(JsonCodegen(btf, text=True).function(number)(data, 0)) == expected


def test_pointers_of_four_bytes() -> None:
    made = BtfWriter()
    made.integer("long int", 4, Encoding.SIGNED)
    char = made.integer("char", 1)
    number = made.composite(
        Kind.STRUCT, "s", 8, [("a", made.pointer(char), 0, 0), ("b", made.pointer(0), 32, 0)]
    )
    types, own = minimize(Btf(made.data()), number)
    assert Btf(types).pointer_size == 4
    assert ReadPlans(Btf(types)).read(own, bytes(range(8))) == {"a": 0x3020100, "b": 0x7060504}


def test_what_has_no_values_has_no_shape() -> None:
    btf = things()
    assert snapshot_of(btf, 0) is None
    assert snapshot_of(btf, btf.type(IDS["function"]).type_id) is None  # type: ignore[union-attr]
    made = BtfWriter()
    made.integer("int", 4)
    endless = made.composite(Kind.STRUCT, "s", 8, [("again", 2, 0, 0)])
    with pytest.raises(BtfError, match="nested too deeply, or in itself"):
        snapshot_of(Btf(made.data()), endless)


def _shape() -> dict[str, Any]:
    shape = snapshot_of(things(), IDS["thing"])
    assert shape is not None
    return shape.to_json()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"types": None}, id="no types"),
        pytest.param({"types": "%%%"}, id="no base64"),
        pytest.param({"types": base64.b64encode(b"x").decode()}, id="not compressed"),
        pytest.param({"types": base64.b64encode(zlib.compress(b"x" * 99)).decode()}, id="no BTF"),
        pytest.param(
            {"types": base64.b64encode(zlib.compress(bytes(1 << 24), 1)).decode()}, id="a bomb"
        ),
        pytest.param({"type": 10_000}, id="no such type"),
        pytest.param({"type": "1"}, id="a type that is no number"),
        pytest.param({"type": True}, id="a type that is a truth"),
        pytest.param({"size": SIZE + 1}, id="another size"),
        pytest.param({"size": 0}, id="no size"),
    ],
)
def test_shapes_of_strangers_are_checked(change: dict[str, Any]) -> None:
    assert TypeSnapshot.from_json(_shape(), BadLayout).size == SIZE
    with pytest.raises(BadLayout, match="shape"):
        TypeSnapshot.from_json(_shape() | change, BadLayout)


def test_a_shape_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadLayout, match="shape"):
        TypeSnapshot.from_json([1], BadLayout)
