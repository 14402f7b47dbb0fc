"""Bytes that are kept of values: the same as those that are made, and few of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning import EVERY_TYPE, plan
from recordings import record
from typedthings import SIZE, thing, typed_plan

from usdt.base.frozen import replace
from usdt.engine.compiler.record.columns import IntColumn
from usdt.engine.compiler.value_names import DevT, Enumerators, Errno, ErrnoOrAddress, Flags
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.formatters.value_memory import ValueMemory
from usdt.engine.output.output_file import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.output.formatters.formatter import Formatter

FORMS: dict[str, Callable[[], Formatter]] = {
    "JSON": JsonFormatter,
    "text": lambda: TextFormatter(offset=0),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
NAMES = {
    "flags": Flags(((1, "ONE"), (2, "T%dWO"), (12, "TWELVE")), mask=0x30, choices=((0, "NO"),)),
    "enumerators": Enumerators(((0, "NONE"), (5, "FIVE"))),
    "errors": Errno(),
    "errors or addresses": ErrnoOrAddress(),
    "devices": DevT(),
}


class Counted:
    """A memory of decimal digits, which counts those that it has made."""

    def __init__(self, size: int = 8) -> None:
        self.made = 0
        self.memory = ValueMemory(self.one, self.all, size)

    def one(self, value: int, other: int = 0) -> bytes:
        """The digits of one value, or of the sum of two."""
        self.made += 1
        return b"%d" % (value + other)

    def all(self, *columns: Sequence[int]) -> list[bytes]:
        """Those of columns."""
        return [self.one(*row) for row in zip(*columns, strict=True)]

    def of(self, *columns: Sequence[int]) -> list[bytes]:
        """What the memory returns."""
        return list(self.memory.of(*columns))


def test_each_value_is_made_once() -> None:
    counted = Counted()
    for _ in range(100):
        assert counted.of((7, 8, 7), (1, 1, 1)) == [b"8", b"9", b"8"]
    assert counted.made == 2


@pytest.mark.parametrize(("size", "most"), [(8, 4096), (1 << 16, 16), (1 << 30, 1)])
def test_the_memory_is_bounded(size: int, most: int) -> None:
    counted = Counted(size)
    for start in range(0, 20_000, 50):
        values = [*range(start, start + 50)]
        assert counted.of(values) == [b"%d" % value for value in values]
        assert len(counted.memory) <= most


def test_nothing_is_kept_for_a_while_where_values_do_not_come_again() -> None:
    counted = Counted(1 << 16)  # keeps 16
    counted.of(range(1000, 1017))
    kept = len(counted.memory)
    for _ in range(16):
        counted.of(range(64))
    assert len(counted.memory) == kept
    made = counted.made
    for _ in range(10):
        counted.of((3, 4) * 30)
    assert counted.made == made + 2, "then they are kept again"


def both(form: Callable[[], Formatter], layout: RecordLayout, data: bytes) -> tuple[str, bytes]:
    """The lines record by record, and those of blocks."""
    found = []
    for encoded in (False, True):
        decoder = Decoder(form(), encoded=encoded)
        decoder.add_layout(1, "p:q", layout)
        (batch,) = decoder.batches(data)
        assert isinstance(batch, Lines) == encoded
        found.append(batch)
    return "".join(found[0]), b"".join(found[1])


@forms
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("item", ["arg7", "arg8"])
@settings(max_examples=25)
@given(values=st.lists(st.integers(-40, 70) | st.integers(-(1 << 31), 1 << 31), min_size=1))
def test_numbers_with_names(
    form: Callable[[], Formatter], names: ValueNames, item: str, values: list[int]
) -> None:
    layout = plan(f"{item}, arg6", EVERY_TYPE).layout
    assert isinstance(layout.fields[0].column, IntColumn)
    named = replace(layout.fields[0], column=replace(layout.fields[0].column, names=names))
    layout = replace(layout, fields=(named, *layout.fields[1:]))
    bitmap = b"" if layout.bitmap_offset is None else bytes(8)
    mask = (1 << 64) - 1 if item == "arg7" else -1
    code = "=QQ" if item == "arg7" else "=qQ"
    hits = [record(bitmap + struct.pack(code, value & mask, 5)) for value in values * 30]
    one_by_one, at_once = both(form, layout, b"".join(hits))
    assert at_once.decode() == one_by_one


@forms
def test_zeros_of_both_signs_and_what_is_no_number(form: Callable[[], Formatter]) -> None:
    values = (0.0, -0.0, float("nan"), 1.0, float("-inf")) * 20
    data = b"".join(record(struct.pack("=Qd", 0, value)) for value in values)
    one_by_one, at_once = both(form, plan("arg9", EVERY_TYPE).layout, data)
    assert at_once.decode() == one_by_one
    assert at_once.count(b"-0.0") == 20


@settings(max_examples=25)
@given(
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    prefixes=st.lists(st.sampled_from([SIZE, 16, 0, -14, 1 << 32 | SIZE]), min_size=1, max_size=9),
)
def test_structures_in_json(numbers: list[int], prefixes: list[int]) -> None:
    layout = typed_plan("*t, n").layout
    (column, _) = (field.column for field in layout.fields)
    hits = []
    for at in range(90):
        number = numbers[at % len(numbers)]
        body = struct.pack("=Q", number << 12) + thing(follows=number)
        body = struct.pack("=q", prefixes[at % len(prefixes)]) + body.ljust(column.size, b"\0")
        bitmap = b"" if layout.bitmap_offset is None else bytes(8)
        hits.append(record(bitmap + body + bytes(-len(body) % 8) + struct.pack("=q", at)))
    one_by_one, at_once = both(JsonFormatter, layout, b"".join(hits))
    assert at_once.decode() == one_by_one
