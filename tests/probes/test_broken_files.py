"""Broken files: whatever is wrong with one, it has probes and warnings, or is one ElfError."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest
from elfwriter import (
    BASE,
    CODE,
    DATA,
    FORMATS,
    LE64,
    SHDR,
    Format,
    Section,
    Segment,
    elf,
    header_field,
    note,
    patched,
    probe_elf,
    symbols,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.base.errors import ElfError
from usdt.elf.file import ElfFile
from usdt.elf.symbol_table import symbol_addresses
from usdt.probes.probe import FileProbes, read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT_IDS = [f"{fmt.bits}-bit {fmt.byteorder}-endian" for fmt in FORMATS]
NOTES, BASE_SECTION, STRINGS, SYMBOLS, NAMES = 3, 4, 5, 6, 7  # sections of good()


def good(fmt: Format = LE64) -> bytes:
    """A file with three probes of four sites, and a symbol table."""
    notes = b"".join(
        (
            note(b"one", b"8@%rax", location=CODE, semaphore=DATA, fmt=fmt),
            note(b"two", b"-4@%eax 8@sv(%rip)", location=CODE + 1, fmt=fmt),
            note(b"two", b"-4@%edx 8@sv(%rip)", location=CODE + 2, fmt=fmt),
            note(b"three", location=CODE + 3, semaphore=DATA + 2, fmt=fmt),
        )
    )
    return probe_elf(
        notes,
        Section(b".strtab", 3, b"\0sv\0"),
        Section(b".symtab", 2, symbols([(1, 1, 2, DATA + 8)], fmt), link=STRINGS),
        fmt=fmt,
    )


class Outcome(NamedTuple):
    """What came of reading a file."""

    found: FileProbes | None
    error: str

    @property
    def alive(self) -> list[str]:
        if self.found is None:
            return []
        return [p.name for p in self.found.probes for site in p.sites if site.dead is None]

    @property
    def dead(self) -> int:
        assert self.found is not None
        return sum(1 for p in self.found.probes for site in p.sites if site.dead)


def attempt(path: Path, data: bytes) -> Outcome:
    """Read a file in every way there is; anything but an ElfError leaves."""
    path.write_bytes(data)
    outcome = Outcome(None, "")
    try:
        outcome = Outcome(read_probes(path), "")
    except ElfError as err:
        outcome = Outcome(None, str(err))
        check_message(outcome.error, path)
    try:
        with ElfFile(path) as file:
            everything(file)
    except ElfError as err:
        check_message(str(err), path)
    if outcome.found is not None:
        check_sites(outcome.found, len(data))
    return outcome


def everything(file: ElfFile) -> None:
    assert file.machine_name
    assert file.build_id is None
    assert all(segment.filesz >= 0 for segment in file.segments)
    symbol_addresses(file, "sv")
    for section in file.sections:
        assert len(file.contents(section)) in {0, section.size}


def check_message(message: str, path: Path | str) -> None:
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < 300 + len(str(path))


def check_sites(found: FileProbes, size: int) -> None:
    for warning in found.warnings:
        check_message(warning, found.path)
    for probe in found.probes:
        assert probe.sites
        for site in probe.sites:
            assert (site.offset is None) == (site.dead is not None)
            assert site.offset is None or 0 <= site.offset < size
            assert 0 <= site.semaphore_offset < size


def test_the_file_that_is_broken_below_is_good(tmp_path: Path) -> None:
    outcome = attempt(tmp_path / "file", good())
    assert outcome.alive == ["one", "two", "two", "three"]
    assert outcome.found is not None
    assert outcome.found.warnings == ()
    with ElfFile(tmp_path / "file") as file:
        assert symbol_addresses(file, "sv") == (DATA + 8,)
        assert file.sections[NAMES].name == ".shstrtab"


# Truncation


def boundaries(data: bytes, fmt: Format) -> Iterator[int]:
    """Every field of the ELF header, every header, the ends of every section."""
    phoff, shoff = header_field(data, "phoff", fmt), header_field(data, "shoff", fmt)
    yield from range(phoff + 1)
    yield from range(phoff, phoff + 3 * fmt.phdr.size, 4)
    for at in range(shoff, len(data), fmt.shdr.size):
        yield from (at - 1, at, at + 1)
        row = dict(zip(SHDR, fmt.shdr.unpack_from(data, at), strict=True))
        yield from (row["offset"], row["offset"] + row["size"])
    yield from range(0, len(data), max(1, len(data) // 400))


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_a_file_cut_anywhere_is_one_error(fmt: Format, tmp_path: Path) -> None:
    # The section headers are at the end: nothing can be found once they are gone.
    data = good(fmt)
    for cut in sorted(set(boundaries(data, fmt))):
        if cut < len(data):
            assert attempt(tmp_path / "file", data[:cut]).error, cut


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_a_file_cut_behind_headers_that_come_first_keeps_what_is_left(
    fmt: Format, tmp_path: Path
) -> None:
    data = good(fmt)
    shoff = header_field(data, "shoff", fmt)
    table = data[shoff:]
    # Put the section headers, and the names after them, in front of the code, which is at 0x400.
    at = 0x150
    body = bytearray(data[:shoff])
    body[at : at + len(table)] = table
    moved = patched(bytes(body), header={"shoff": at}, fmt=fmt)
    names = fmt.shdr.unpack_from(moved, at + NAMES * fmt.shdr.size)
    strings = moved[names[4] : names[4] + names[5]]
    moved = moved[:0x380] + strings + moved[0x380 + len(strings) :]
    moved = patched(moved, section=(NAMES, {"offset": 0x380}), fmt=fmt)
    path = tmp_path / "file"
    assert attempt(path, moved).alive == ["one", "two", "two", "three"]
    for cut in range(0x400, len(moved), 3):
        outcome = attempt(path, moved[:cut])
        assert outcome.found is not None, cut
        notes = fmt.shdr.unpack_from(moved, at + NOTES * fmt.shdr.size)
        if cut < notes[4] + notes[5]:
            assert len(outcome.found.warnings) == 1, cut
        else:
            assert len(outcome.alive) == 4, cut


# Mutation: what it does to good(), how many sites are alive and dead afterwards, what is said


class Broken(NamedTuple):
    """A damaged file and what should come of it."""

    data: bytes
    alive: int = 0
    dead: int = 0
    warning: str = ""
    error: str = ""


def section(index: int, **fields: int) -> bytes:
    return patched(good(), section=(index, fields))


def segment(index: int, **fields: int) -> bytes:
    return patched(good(), segment=(index, fields))


def header(**fields: int) -> bytes:
    return patched(good(), header=fields)


def with_notes(*notes: bytes) -> bytes:
    return probe_elf(b"".join(notes))


def rewritten_note(**words: int) -> bytes:
    """A good note with namesz, descsz or type changed, before another good one."""
    values = {"namesz": 8, "descsz": len(note()) - 20, "type": 3} | words
    return with_notes(struct.pack("<III", *values.values()) + note()[12:], note(b"after"))


SHOFF = header_field(good(), "shoff")

BROKEN = {
    # ELF header
    "the other class": Broken(good()[:4] + b"\1" + good()[5:]),  # its e_shoff is 0
    "the other byte order": Broken(good()[:5] + b"\2" + good()[6:], error="headers of"),
    "no section headers": Broken(header(shoff=0, shnum=0, shstrndx=0)),
    "no sections and no size of one": Broken(header(shnum=0, shentsize=0)),
    "section headers far outside": Broken(header(shoff=2**63), error="truncated"),
    "section headers at odd places": Broken(header(shoff=SHOFF - 1), error="outside"),
    "section headers over the ELF header": Broken(header(shoff=1)),
    "more sections than the file holds": Broken(header(shnum=0xFEFF), error="truncated"),
    "names in no section": Broken(header(shstrndx=0)),
    "names in a section that is not there": Broken(header(shstrndx=99), error="section 99 of 8"),
    "names in the notes": Broken(header(shstrndx=NOTES)),
    "names in the code": Broken(header(shstrndx=1)),
    "no program headers": Broken(header(phnum=0), dead=4, warning="semaphore"),
    "program headers of another size": Broken(header(phentsize=1), error="program headers of 1 "),
    "program headers far outside": Broken(header(phoff=2**64 - 56), error="truncated"),
    "more program headers than the file holds": Broken(header(phnum=0xFFF0), error="truncated"),
    "an extended number of program headers that is 0": Broken(
        header(phnum=0xFFFF), dead=4, warning="semaphore"
    ),
    "an object file": Broken(header(type=1), dead=4),
    "a core dump": Broken(header(type=4), alive=4),
    "an unknown machine": Broken(header(machine=0xFFFF), alive=4),
    # Sections
    "notes far outside": Broken(section(NOTES, offset=2**62), warning="truncated"),
    "notes at the end of the address space": Broken(
        section(NOTES, offset=2**64 - 1, size=2**64 - 1), warning="truncated"
    ),
    "notes larger than the file": Broken(section(NOTES, size=2**32), warning="truncated"),
    "notes cut in the middle": Broken(section(NOTES, size=100), alive=1, warning="truncated"),
    "empty notes": Broken(section(NOTES, size=0)),
    "notes that begin elsewhere": Broken(section(NOTES, offset=0x401), warning="truncated"),
    "notes of another type": Broken(section(NOTES, type=1), warning="expected SHT_NOTE (7)"),
    "notes without contents": Broken(section(NOTES, type=8), warning="expected SHT_NOTE (7)"),
    "notes said to be compressed": Broken(section(NOTES, flags=1 << 11), warning="compressed"),
    "notes said to be padded to 8": Broken(section(NOTES, addralign=8), alive=4),
    "a wild alignment": Broken(section(NOTES, addralign=2**64 - 1), alive=4),
    "a name without an end": Broken(section(NAMES, size=26)),
    "a name outside the names": Broken(section(NOTES, name=0xFFFFFFFF)),
    "the names outside the file": Broken(section(NAMES, offset=2**64 - 1), error="outside"),
    "the names without contents": Broken(section(NAMES, type=8), error="outside the file"),
    "the base at a wild address": Broken(
        section(BASE_SECTION, address=2**64 - 1), dead=4, warning="semaphore"
    ),
    "code without contents": Broken(section(1, type=8), dead=4),
    "symbols that name themselves": Broken(section(SYMBOLS, link=SYMBOLS), alive=4),
    "symbols whose strings are nowhere": Broken(section(SYMBOLS, link=0xFFFFFFFF), alive=4),
    "symbols of a wild size": Broken(section(SYMBOLS, size=2**63), alive=4),
    "strings of a wild size": Broken(section(STRINGS, size=2**63), alive=4),
    # Segments
    "code that is not executable": Broken(segment(0, flags=4), dead=4),
    "code in a segment that is not loaded": Broken(segment(0, type=6), dead=4),
    "code loaded elsewhere": Broken(segment(0, address=2**64 - 8), dead=4),
    "code that is not in the file": Broken(segment(0, filesz=0), dead=4),
    "code from behind the end of the file": Broken(segment(0, offset=2**63), dead=4),
    "code as large as the address space": Broken(segment(0, address=0, filesz=2**64 - 1), dead=4),
    "data over the code": Broken(segment(1, address=CODE, flags=4), alive=4, warning="semaphore"),
    "data that are not writable": Broken(segment(1, flags=4), alive=4, warning="is not writable"),
    "data that are not in the file": Broken(segment(1, filesz=1), alive=4, warning="semaphore"),
    "everything executable": Broken(segment(1, flags=7), alive=4),
    # Notes
    "an owner of wild size": Broken(rewritten_note(namesz=0xFFFFFFFF), warning="truncated"),
    "an owner of size 0": Broken(rewritten_note(namesz=0), warning="truncated"),
    "a descriptor of wild size": Broken(rewritten_note(descsz=0xFFFFFFFF), warning="truncated"),
    "a descriptor of size 0": Broken(rewritten_note(descsz=0), warning="descriptor of 0 bytes"),
    "a note of another type": Broken(rewritten_note(type=0), alive=1),
    "location 0": Broken(with_notes(note(location=0), note()), alive=1, dead=1),
    "a wild location": Broken(with_notes(note(location=2**64 - 1), note()), alive=1, dead=1),
    "a location in the data": Broken(with_notes(note(location=DATA), note()), alive=1, dead=1),
    "a wild base": Broken(with_notes(note(base=2**63)), dead=1),
    "base 0": Broken(with_notes(note(base=0, semaphore=DATA)), alive=1),
    "a wild semaphore": Broken(with_notes(note(semaphore=2**64 - 1)), alive=1, warning="semaphore"),
    "a semaphore in the code": Broken(with_notes(note(semaphore=CODE)), alive=1, warning="not w"),
    "the same site twice": Broken(with_notes(note(), note()), alive=2),
    "strings without an end": Broken(with_notes(note(strings=b"a")), warning="not terminated"),
    "a name that writes to the terminal": Broken(
        with_notes(note(b"\n\x1b[2J" * 200, semaphore=1)), alive=1, warning=r"\n\x1b[2J"
    ),
    "nothing but NULs": Broken(with_notes(b"\0" * 1200)),
    "nothing but ones": Broken(with_notes(b"\xff" * 1200), warning="truncated"),
    "a name of a mebibyte": Broken(with_notes(note(b"n" * (1 << 20)), note()), alive=2),
    "names that are not UTF-8": Broken(with_notes(note(b"\xff\xfe"), note(b"\x1b[2J")), alive=2),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_file(broken: Broken, tmp_path: Path) -> None:
    outcome = attempt(tmp_path / "file", broken.data)
    assert bool(outcome.error) == bool(broken.error), outcome
    assert broken.error in outcome.error
    if outcome.found is None:
        return
    assert (len(outcome.alive), outcome.dead) == (broken.alive, broken.dead), outcome
    assert bool(outcome.found.warnings) == bool(broken.warning), outcome
    assert any(broken.warning in line for line in outcome.found.warnings) or not broken.warning


# Work that must stay in proportion


def test_a_sparse_section_of_zeros_ends(tmp_path: Path) -> None:
    # 12 bytes of zeros are a note of nobody; 64 MiB of them cost no disk and 5.6 million steps.
    data = probe_elf(note())
    path = tmp_path / "file"
    shoff = header_field(data, "shoff")
    size = 64 << 20
    with path.open("wb") as file:
        file.write(data[:shoff])
        file.seek(shoff + size)
        file.write(data[shoff:])
    with path.open("r+b") as file:
        file.write(patched(data, header={"shoff": shoff + size})[:64])
        file.seek(shoff + size + NOTES * 64 + 24)
        file.write(struct.pack("<QQ", shoff, size))
    found = read_probes(path)
    assert found.probes == ()
    assert "reading stopped after" in found.warnings[0]


def test_thousands_of_segments_and_sites_do_not_multiply(tmp_path: Path) -> None:
    # 20,000 segments times 20,000 sites would be 400 million comparisons.
    count = 20_000
    segments = [Segment(1, 5, CODE, CODE + 16 * index, 16) for index in range(count)]
    notes = b"".join(note(location=CODE + 16 * (index % count)) for index in range(count))
    outcome = attempt(tmp_path / "file", probe_elf(notes, segments=segments))
    assert len(outcome.alive) + outcome.dead == count


def test_thousands_of_sections_of_one_name_do_not_multiply(tmp_path: Path) -> None:
    count = 5_000
    data = probe_elf([note(b"x" * 40)] * count)
    assert len(attempt(tmp_path / "file", data).alive) == count


def test_a_string_table_full_of_one_symbol_ends(tmp_path: Path) -> None:
    data = elf(
        [
            Section(b".strtab", 3, b"sv\0" * 400_000),
            Section(b".symtab", 2, symbols([(3 * i, 1, 1, i % 7) for i in range(50_000)]), link=1),
        ]
    )
    path = tmp_path / "file"
    path.write_bytes(data)
    with ElfFile(path) as file:
        assert set(symbol_addresses(file, "sv")) == set(range(7))


# Chance


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_random_damage_in_headers_and_notes(fmt: Format, tmp_path: Path) -> None:
    data = good(fmt)
    chance = random.Random(20)
    shoff = header_field(data, "shoff", fmt)
    interesting = [*range(4, 0x120), *range(0x540, len(data)), *range(shoff, len(data))]
    path = tmp_path / "file"
    outcomes = set()
    for _ in range(500):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            broken[chance.choice(interesting)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        outcome = attempt(path, bytes(broken))
        outcomes.add(bool(outcome.error))
    assert outcomes == {False, True}


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=300), fmt=st.sampled_from(FORMATS))
def test_random_bytes_behind_the_magic_number(
    body: bytes, fmt: Format, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ident = bytes([0x7F, *b"ELF", fmt.bits // 32, 1 + (fmt.byteorder == "big"), 1]) + bytes(9)
    attempt(tmp_path_factory.getbasetemp() / "random.elf", ident + body)


def test_the_base_is_where_the_tests_think_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(good())
    with ElfFile(path) as file:
        assert file.sections[BASE_SECTION].address == BASE
