"""Notes of a section: every rule of the format, in both classes, byte orders and paddings."""

from __future__ import annotations

import struct

import pytest
from elfwriter import BASE, CODE, FORMATS, LE64, Format, note, raw_note
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.probes import notes as notes_module
from usdt.probes.notes import MAX_WARNINGS, Note, Notes, parse_notes

FORMAT_IDS = [f"{fmt.bits}-bit {fmt.byteorder}-endian" for fmt in FORMATS]


def parse(data: bytes | memoryview, fmt: Format = LE64, align: int = 4) -> Notes:
    return parse_notes(data, bits=fmt.bits, byteorder=fmt.byteorder, align=align)


def names(found: Notes) -> list[str]:
    return [one.name for one in found.notes]


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_a_note_is_decoded_whatever_the_class_and_byte_order(fmt: Format) -> None:
    data = note(b"gc__start", b"-4@%eax", provider=b"python", location=0x1234, semaphore=6, fmt=fmt)
    assert parse(data, fmt) == Notes([Note(0x1234, BASE, 6, "python", "gc__start", "-4@%eax")], [])


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
@pytest.mark.parametrize("length", range(9))
def test_notes_of_every_length_are_padded_to_four(fmt: Format, length: int) -> None:
    data = b"".join(note(b"n" * count, fmt=fmt) for count in (length + 1, 3, length + 2))
    found = parse(data, fmt)
    assert names(found) == ["n" * (length + 1), "nnn", "n" * (length + 2)]
    assert not found.warnings


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("length", range(9))
def test_a_section_padded_to_eight_is_read_so_if_it_claims_it(
    fmt: Format, count: int, length: int
) -> None:
    wanted = [f"name{index}" + "x" * (length * index % 9) for index in range(count)]
    data = b"".join(note(name.encode(), b"8@%rax", fmt=fmt, padding=8) for name in wanted)
    found = parse(data, fmt, align=8)
    assert names(found) == wanted
    assert {one.location for one in found.notes} == {CODE + 0x10}
    assert not found.warnings


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("length", range(9))
def test_a_section_that_claims_eight_but_is_padded_to_four_loses_nothing(
    fmt: Format, count: int, length: int
) -> None:
    wanted = [f"name{index}" + "x" * (length * index % 9) for index in range(count)]
    found = parse(b"".join(note(name.encode(), fmt=fmt) for name in wanted), fmt, align=8)
    assert names(found) == wanted
    assert not found.warnings


@pytest.mark.parametrize("align", [0, 1, 2, 16, 1 << 63])
def test_other_alignments_mean_four(align: int) -> None:
    assert names(parse(note(b"a") + note(b"bc"), align=align)) == ["a", "bc"]


def test_of_two_damaged_readings_the_one_with_more_names_is_taken() -> None:
    whole = b"".join(note(b"name%d" % index, padding=8) for index in range(3))
    found = parse(whole[:-10], align=8)
    assert names(found) == ["name0", "name1"]
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(raw_note(b"GNU\0", 3, b"x" * 20), id="another owner"),
        pytest.param(raw_note(b"stapsdt\0", 4, note()[20:]), id="another type"),
        pytest.param(raw_note(b"stapsdt", 3, b"x" * 40), id="the owner's name without its NUL"),
        pytest.param(raw_note(b"stap", 3, b"x" * 40), id="the beginning of the owner's name"),
        pytest.param(raw_note(b"stapsdtX", 3, note()[20:]), id="an owner of the same length"),
        pytest.param(raw_note(b"stapsdt\0\0", 3, note()[20:]), id="an owner with a NUL more"),
        pytest.param(raw_note(b"", 3, b""), id="no owner, no descriptor"),
        pytest.param(raw_note(b"", 3, note()[20:]), id="no owner"),
        pytest.param(raw_note(b"X" * 5000, 0, b"y" * 5001), id="a large one"),
    ],
)
def test_a_foreign_note_is_skipped_in_silence(foreign: bytes) -> None:
    found = parse(note(b"before") + foreign + note(b"after") + foreign)
    assert (names(found), found.warnings) == (["before", "after"], [])


@pytest.mark.parametrize(
    ("strings", "wanted"),
    [
        pytest.param(b"p\0n\0a\0", ("p", "n", "a"), id="three strings"),
        pytest.param(b"p\0n\0\0", ("p", "n", ""), id="no arguments"),
        pytest.param(b"p\0n\0:\0", ("p", "n", ""), id="a colon means no arguments"),
        pytest.param(b"p\0n\0:4@%eax\0", ("p", "n", ""), id="whatever follows the colon"),
        pytest.param(b"p\0n\0 4@a:b \0", ("p", "n", " 4@a:b "), id="a colon inside is kept"),
        pytest.param(b"\0n\0a\0", ("", "n", "a"), id="an empty provider is allowed"),
        pytest.param(b"p\0\0a\0", ("p", "", "a"), id="an empty name is listed"),
        pytest.param(b"\0\0\0", ("", "", ""), id="three empty strings"),
        pytest.param(b"p\0n\0a\0junk", ("p", "n", "a"), id="trailing bytes are ignored"),
        pytest.param(b"p\0n\0a\0\0\0\0\0", ("p", "n", "a"), id="trailing NULs are ignored"),
        pytest.param("é\0→\0ß\0".encode(), ("é", "→", "ß"), id="UTF-8"),
        pytest.param(
            b"\xff\0\xe2\x82\0\x80\0", ("\udcff", "\udce2\udc82", "\udc80"), id="not UTF-8"
        ),
        pytest.param(b"p\0a\nb\0\x1b[2J\0", ("p", "a\nb", "\x1b[2J"), id="control characters"),
    ],
)
def test_strings(strings: bytes, wanted: tuple[str, str, str]) -> None:
    found = parse(note(strings=strings) + note(b"next"))
    assert found.warnings == []
    first = found.notes[0]
    assert (first.provider, first.name, first.args) == wanted
    assert found.notes[1].name == "next"


@pytest.mark.parametrize(
    ("damaged", "complaint"),
    [
        pytest.param(note(strings=b"p\0n\0a"), "arguments string is not terminated", id="two NULs"),
        pytest.param(note(strings=b"p\0n"), "its name string is not terminated", id="one NUL"),
        pytest.param(note(strings=b"pna"), "its provider string is not terminated", id="no NUL"),
        pytest.param(note(strings=b""), "its provider string is not terminated", id="no strings"),
        pytest.param(
            note(strings=b"p\0nn"),
            "its name string is not terminated",
            id="padding is no part of a string",
        ),
        pytest.param(
            raw_note(b"stapsdt\0", 3, b"x" * 23),
            "descriptor of 23 bytes",
            id="too short for addresses",
        ),
        pytest.param(raw_note(b"stapsdt\0", 3, b""), "descriptor of 0 bytes", id="empty"),
    ],
)
def test_a_damaged_note_is_skipped_with_a_warning_that_says_where(
    damaged: bytes, complaint: str
) -> None:
    before = note(b"before")
    found = parse(before + damaged + note(b"after"))
    assert names(found) == ["before", "after"]
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith(f"offset {len(before):#x}: damaged note skipped: ")
    assert complaint in found.warnings[0]


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_every_truncation_keeps_the_notes_before_it_and_warns_once(fmt: Format) -> None:
    one, two = note(b"first", b"4@r0", fmt=fmt), note(b"second", b"4@r0", fmt=fmt)
    end = len(two.rstrip(b"\0")) + 1  # the padding of the last note may be missing
    for cut in range(1, len(two)):
        found = parse((one + two)[: len(one) + cut], fmt)
        if cut >= end:
            assert (names(found), found.warnings) == (["first", "second"], []), cut
        else:
            assert names(found) == ["first"], cut
            assert len(found.warnings) == 1
            assert found.warnings[0].startswith(f"offset {len(one):#x}: truncated: "), cut


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        pytest.param(
            b"\0" * 11,
            "offset 0x0: truncated: a note's header needs 12 bytes, the section has 11 left",
            id="header",
        ),
        pytest.param(
            struct.pack("<III", 0xFFFFFFFF, 8, 3) + b"stapsdt\0",
            "offset 0x0: truncated: a note's owner needs 4294967295 bytes, the section has 8 left",
            id="owner",
        ),
        pytest.param(
            struct.pack("<III", 8, 0xFFFFFFFF, 3) + b"stapsdt\0" + b"x" * 100,
            "offset 0x0: truncated: a note's descriptor needs 4294967295 bytes,"
            " the section has 100 left",
            id="descriptor",
        ),
    ],
)
def test_a_truncated_note_says_what_is_missing(data: bytes, warning: str) -> None:
    assert parse(data) == Notes([], [warning])


def test_an_empty_section_has_neither_notes_nor_warnings() -> None:
    assert parse(b"") == Notes([], [])


def test_the_wrong_byte_order_is_damage_not_an_error() -> None:
    found = parse(note(), Format(64, "big"))
    assert found.notes == []
    assert "truncated" in found.warnings[0]


def test_a_view_is_as_good_as_bytes_and_is_not_kept() -> None:
    data = bytearray(note(b"a", b"8@%rax") * 3)
    view = memoryview(data)
    assert parse(view) == parse(bytes(data))
    view.release()
    data.clear()  # BufferError if somebody still held the bytes


def test_a_section_too_large_to_copy_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    data = note(b"a", b"8@%rax") + raw_note(b"GNU\0", 3, b"x") + note(b"b")[:-1]
    copied = parse(memoryview(data))
    monkeypatch.setattr(notes_module, "COPY_LIMIT", 0)
    assert parse(memoryview(data)) == copied


def test_many_damaged_notes_are_counted_not_listed() -> None:
    found = parse(note(strings=b"pna") * (MAX_WARNINGS + 5) + note(b"good"))
    assert names(found) == ["good"]
    assert len(found.warnings) == MAX_WARNINGS + 1
    assert found.warnings[-1] == "5 more damaged notes"
    found = parse(note(strings=b"pna") * (MAX_WARNINGS + 1))
    assert found.warnings[-1] == "1 more damaged note"


def test_reading_stops_at_a_limit_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "MAX_NOTES", 10)
    assert names(parse(note() * 10)) == ["name"] * 10
    assert parse(note() * 10).warnings == []
    found = parse(note() * 11)
    assert len(found.notes) == 10
    assert found.warnings == [f"offset {10 * len(note()):#x}: reading stopped after 10 notes"]


def test_bits_that_no_elf_class_has_are_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="bits must be 32 or 64, not 16"):
        parse_notes(b"", bits=16, byteorder="little")


class CountedBytes(bytes):
    """Bytes that count how many of them are copied out."""

    copied = 0

    def __getitem__(self, key: object) -> object:  # type: ignore[override]
        taken = super().__getitem__(key)  # type: ignore[index]
        CountedBytes.copied += len(taken) if isinstance(taken, bytes) else 1
        return taken


def test_100_000_notes_are_read_and_no_byte_is_copied_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # bcc's list is quadratic here: a minute for four times as many.
    monkeypatch.setattr(notes_module, "COPY_LIMIT", 0)
    monkeypatch.setattr(CountedBytes, "copied", 0)
    data = CountedBytes(b"".join(note(b"name%d" % (i % 999), b"8@%rax") for i in range(100_000)))
    found = parse(data)
    assert len(found.notes) == 100_000
    assert not found.warnings
    assert 0 < CountedBytes.copied < len(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(FORMATS), st.sampled_from([0, 4, 8]))
def test_random_bytes_never_raise(data: bytes, fmt: Format, align: int) -> None:
    found = parse(data, fmt, align)
    assert len(found.notes) <= len(data) // 32
    assert all(line.startswith("offset 0x") for line in found.warnings[:MAX_WARNINGS])


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(FORMATS), st.sampled_from([4, 8]))
def test_flipped_bytes_in_good_notes_never_raise(
    data: st.DataObject, fmt: Format, padding: int
) -> None:
    good = bytearray(
        b"".join(note(b"n%d" % i, b"8@%rax", fmt=fmt, padding=padding) for i in range(6))
    )
    for _ in range(data.draw(st.integers(1, 8))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    found = parse(bytes(good), fmt, padding)
    assert len(found.notes) <= 6 + 1


word = st.integers(0, 2**32 - 1)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    written=st.lists(
        st.tuples(st.integers(0, 2**32 - 1), text, text.filter(bool), text), max_size=8
    ),
    fmt=st.sampled_from(FORMATS),
    padding=st.sampled_from([4, 8]),
    foreign=st.booleans(),
)
def test_what_is_written_is_read_back(
    written: list[tuple[int, str, str, str]], fmt: Format, padding: int, *, foreign: bool
) -> None:
    data = b"".join(
        note(
            name.encode(), args.encode(), provider=provider.encode(), location=location, fmt=fmt,
            padding=padding,
        ) + (raw_note(b"other\0", 7, b"xyz", fmt, padding) if foreign else b"")
        for location, provider, name, args in written
    )  # fmt: skip
    found = parse(data, fmt, padding)
    assert [(one.location, one.provider, one.name, one.args) for one in found.notes] == [
        (location, provider, name, "" if args.startswith(":") else args)
        for location, provider, name, args in written
    ]
    assert not found.warnings
