"""The ELF reader: every class and byte order, extended numbering, symbols, special files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile
from elfwriter import (
    CODE,
    CODE_OFFSET,
    DATA,
    DATA_OFFSET,
    FORMATS,
    LE64,
    Format,
    Section,
    Segment,
    elf,
    note,
    patched,
    probe_elf,
    raw_note,
    symbols,
)

from usdt.base.errors import ElfError
from usdt.elf.file import ElfFile
from usdt.elf.symbol_table import symbol_addresses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[bytes], Path]

FORMAT_IDS = [f"{fmt.bits}-bit {fmt.byteorder}-endian" for fmt in FORMATS]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def save(data: bytes) -> Path:
        path = tmp_path / "file.elf"
        path.write_bytes(data)
        return path

    return save


# What stands in a file


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_headers_sections_and_segments_are_read(fmt: Format, write: Write) -> None:
    path = write(probe_elf(note(fmt=fmt), fmt=fmt, machine=1234, kind=2))
    with ElfFile(path) as file:
        assert (file.bits, file.byteorder, file.machine, file.type) == (
            fmt.bits,
            fmt.byteorder,
            1234,
            2,
        )
        assert file.path == str(path)
        assert file.size == path.stat().st_size
        assert [one.name for one in file.sections] == [
            *("", ".text", ".data", ".note.stapsdt", ".stapsdt.base", ".shstrtab")
        ]
        text = file.section(".text")
        assert text is not None
        assert (text.type, text.flags, text.address, text.offset, text.size, text.addralign) == (
            *(1, 6, CODE, CODE_OFFSET, 0x100, 1),
        )
        assert [
            (one.type, one.flags, one.offset, one.address, one.filesz, one.memsz)
            for one in file.segments
        ] == [(1, 5, CODE_OFFSET, CODE, 0x100, 0x100), (1, 6, DATA_OFFSET, DATA, 0x40, 0x50)]
        assert bytes(file.contents(text)) == b"\x90" * 0x100


def test_the_name_to_show_is_the_callers(write: Write) -> None:
    with ElfFile(write(elf([])), name="/usr/bin/shown") as file:
        assert file.path == "/usr/bin/shown"
    with pytest.raises(ElfError, match=r"^/usr/bin/shown: a script, not an ELF"):
        ElfFile(write(b"#!/bin/sh"), name="/usr/bin/shown")


@pytest.mark.parametrize(
    ("machine", "fmt", "name"),
    [
        (62, Format(64, "little"), "x86_64"),
        (62, Format(32, "little"), "x86_64"),
        (3, Format(32, "little"), "i386"),
        (183, Format(64, "little"), "aarch64"),
        (40, Format(32, "little"), "arm"),
        (22, Format(64, "big"), "s390x"),
        (22, Format(32, "big"), "s390"),
        (21, Format(64, "little"), "ppc64le"),
        (21, Format(64, "big"), "ppc64"),
        (20, Format(32, "big"), "ppc"),
        (8, Format(64, "little"), "mips64el"),
        (8, Format(64, "big"), "mips64"),
        (8, Format(32, "little"), "mipsel"),
        (8, Format(32, "big"), "mips"),
        (243, Format(64, "little"), "riscv64"),
        (243, Format(32, "little"), "riscv32"),
        (258, Format(64, "little"), "loongarch64"),
        (4711, Format(64, "little"), "machine-4711"),
    ],
)
def test_machines_have_names(machine: int, fmt: Format, name: str, write: Write) -> None:
    with ElfFile(write(elf([], fmt=fmt, machine=machine))) as file:
        assert file.machine_name == name


def test_two_sections_of_one_name_are_both_found(write: Write) -> None:
    data = elf([Section(b".x", contents=b"1"), Section(b".y"), Section(b".x", contents=b"2")])
    with ElfFile(write(data)) as file:
        assert [bytes(file.contents(one)) for one in file.sections_named(".x")] == [b"1", b"2"]
        first = file.section(".x")
        assert first is not None
        assert bytes(file.contents(first)) == b"1"


def test_a_name_that_is_only_part_of_others_is_not_found(write: Write) -> None:
    with ElfFile(write(elf([Section(b".rela.note"), Section(b".notes")]))) as file:
        assert file.section(".note") is None
        assert file.section("") is not None  # the empty section 0


def test_a_file_without_section_headers_has_none(write: Write) -> None:
    data = probe_elf(note())
    data = patched(data, header={"shoff": 0, "shnum": 0, "shstrndx": 0})
    with ElfFile(write(data)) as file:
        assert file.sections == ()
        assert file.section(".text") is None
        assert symbol_addresses(file, "main") == ()
        assert len(file.segments) == 2


def test_a_section_without_bytes_in_the_file_has_no_contents(write: Write) -> None:
    data = elf([Section(b".bss", 8, size=1 << 40)])
    with ElfFile(write(data)) as file:
        bss = file.section(".bss")
        assert bss is not None
        assert bytes(file.contents(bss)) == b""


def test_names_may_be_anything(write: Write) -> None:
    with ElfFile(write(elf([Section(b"\xff\x1b[2J"), Section(b"e\xcc\x81")]))) as file:
        assert [one.name for one in file.sections[1:3]] == ["\udcff\x1b[2J", "e\u0301"]
        assert file.section("\udcff\x1b[2J") is not None


# Extended numbering: elf(5), "e_shnum", "e_shstrndx", "e_phnum"


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_numbers_too_large_for_the_header_stand_in_section_0(fmt: Format, write: Write) -> None:
    data = probe_elf(note(fmt=fmt), fmt=fmt)
    data = patched(data, header={"shnum": 0, "shstrndx": 0xFFFF, "phnum": 0xFFFF}, fmt=fmt)
    data = patched(data, section=(0, {"size": 6, "link": 5, "info": 2}), fmt=fmt)
    with ElfFile(write(data)) as file:
        assert file.sections[3].name == ".note.stapsdt"
        assert len(file.sections) == 6
        assert len(file.segments) == 2


def test_70_000_sections_are_read(write: Write) -> None:
    count = 70_000
    sections = [Section(b".s%d" % index) for index in range(count)]
    data = elf(sections, header={"shnum": 0, "shstrndx": 0xFFFF})
    data = patched(data, section=(0, {"size": count + 2, "link": count + 1}))
    with ElfFile(write(data)) as file:
        assert file.sections[count].name == f".s{count - 1}"


# Addresses


@pytest.mark.parametrize(
    ("address", "options", "offset"),
    [
        pytest.param(CODE, {"executable": True}, CODE_OFFSET, id="the first byte of the code"),
        pytest.param(CODE + 255, {"executable": True}, CODE_OFFSET + 255, id="its last byte"),
        pytest.param(CODE + 256, {"executable": True}, None, id="the byte behind it"),
        pytest.param(CODE - 1, {"executable": True}, None, id="the byte before it"),
        pytest.param(DATA, {"executable": True}, None, id="data are not executable"),
        pytest.param(DATA, {"executable": False}, DATA_OFFSET, id="data"),
        pytest.param(CODE, {"executable": False}, CODE_OFFSET, id="code will do for any"),
        pytest.param(DATA + 63, {"executable": False}, DATA_OFFSET + 63, id="their last byte"),
        pytest.param(DATA + 64, {"executable": False}, None, id="in memory but not in the file"),
        pytest.param(CODE, {"executable": False, "writable": True}, None, id="code is read-only"),
        pytest.param(DATA, {"executable": False, "writable": True}, DATA_OFFSET, id="writable"),
        pytest.param(0, {"executable": False}, None, id="address 0"),
        pytest.param(2**64 - 1, {"executable": False}, None, id="the highest address"),
    ],
)
@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_offsets_follow_the_segments(
    fmt: Format, address: int, options: dict[str, bool], offset: int | None, write: Write
) -> None:
    with ElfFile(write(probe_elf(note(fmt=fmt), fmt=fmt))) as file:
        assert file.offset_of(address, **options) == offset


def test_segments_may_come_in_any_order_and_only_loaded_ones_count(write: Write) -> None:
    segments = [
        Segment(2, 7, 1, CODE, 0x1000),  # PT_DYNAMIC
        Segment(1, 5, 0x20, CODE + 0x100, 0x10),
        Segment(1, 5, 0, CODE + 0x100, 0),  # nothing of it comes from the file
        Segment(1, 5, 0x10, CODE, 0x10),
    ]
    with ElfFile(write(elf([], segments))) as file:
        assert file.offset_of(CODE + 1, executable=True) == 0x11
        assert file.offset_of(CODE + 0x101, executable=True) == 0x21
        assert file.offset_of(CODE + 0x20, executable=True) is None


def test_an_offset_behind_the_end_of_the_file_is_none(write: Write) -> None:
    data = elf([], [Segment(1, 5, 0, CODE, 1 << 40)])
    with ElfFile(write(data)) as file:
        assert file.offset_of(CODE + len(data) - 1, executable=True) == len(data) - 1
        assert file.offset_of(CODE + len(data), executable=True) is None


# Symbols

STT_OBJECT, STT_FUNC, STT_FILE, STT_TLS = 1, 2, 4, 6


def symbol_file(
    rows: list[tuple[bytes, int, int, int]], fmt: Format, strings: bytes | None = None
) -> bytes:
    """A file with a .symtab of (name, type, section, value)."""
    if strings is None:
        strings = b"\0" + b"".join(name + b"\0" for name, *_ in rows)
    table = [(strings.index(name + b"\0"), kind, where, value) for name, kind, where, value in rows]
    return elf(
        [
            Section(b".strtab", 3, strings),
            Section(b".symtab", 2, symbols(table, fmt), link=1),
        ],
        fmt=fmt,
    )


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        pytest.param("counter", (0x1000,), id="one"),
        pytest.param("ti", (0x2000, 0x3000), id="two of one name at two addresses, in order"),
        pytest.param("alias", (0x4000,), id="two of one name at one address"),
        pytest.param("function", (0x5000,), id="a function"),
        pytest.param("undefined", (), id="undefined"),
        pytest.param("tls", (), id="thread-local"),
        pytest.param("file.c", (), id="the name of a source file"),
        pytest.param("common", (), id="common"),
        pytest.param("both", (0x6000,), id="only one of two is defined"),
        pytest.param("missing", (), id="missing"),
        pytest.param("coun", (), id="the beginning of a name"),
        pytest.param("ounter", (), id="the end of a name no symbol has"),
        pytest.param("seq_iter.6", (0x7000,), id="a dot in the name"),
        pytest.param("", (), id="no name"),
        pytest.param("ti\0alias", (), id="two names"),
    ],
)
def test_symbols_have_addresses(
    fmt: Format, name: str, wanted: tuple[int, ...], write: Write
) -> None:
    rows = [
        (b"file.c", STT_FILE, 0xFFF1, 0),
        (b"ti", STT_OBJECT, 1, 0x2000),
        (b"counter", STT_OBJECT, 1, 0x1000),
        (b"ti", STT_OBJECT, 1, 0x3000),
        (b"alias", STT_OBJECT, 1, 0x4000),
        (b"alias", STT_OBJECT | 0x10, 1, 0x4000),
        (b"function", STT_FUNC | 0x10, 1, 0x5000),
        (b"undefined", 0x10, 0, 0),
        (b"tls", STT_TLS, 1, 0x10),
        (b"common", STT_OBJECT | 0x10, 0xFFF2, 8),
        (b"both", 0x10, 0, 0),
        (b"both", STT_OBJECT, 1, 0x6000),
        (b"seq_iter.6", STT_OBJECT, 1, 0x7000),
    ]
    with ElfFile(write(symbol_file(rows, fmt))) as file:
        assert symbol_addresses(file, name) == wanted
        assert symbol_addresses(file, name) == wanted  # and again, from memory


def test_names_that_share_their_tail_are_told_apart(write: Write) -> None:
    # Linkers store "counter" inside "xcounter": same NUL, other beginning.
    rows = [(b"xcounter", STT_OBJECT, 1, 1), (b"counter", STT_OBJECT, 1, 2)]
    data = symbol_file(rows, LE64, b"\0xcounter\0")
    with ElfFile(write(data)) as file:
        assert symbol_addresses(file, "counter") == (2,)
        assert symbol_addresses(file, "xcounter") == (1,)
        assert symbol_addresses(file, "ounter") == ()


def test_the_dynamic_table_is_asked_when_the_full_one_has_no_such_name(write: Write) -> None:
    strings = b"\0both\0dynamic\0"
    data = elf(
        [
            Section(b".dynstr", 3, strings),
            Section(b".dynsym", 11, symbols([(1, 1, 1, 0xD), (6, 1, 1, 0xDD)]), link=1),
            Section(b".symtab", 2, symbols([(1, 1, 1, 0x5)]), link=1),
        ]
    )
    with ElfFile(write(data)) as file:
        assert symbol_addresses(file, "both") == (0x5,)
        assert symbol_addresses(file, "dynamic") == (0xDD,)


def test_symbols_of_a_real_library_are_those_pyelftools_finds() -> None:
    path = next((p for p in map_files() if "libc.so" in p or "libc-" in p), None)
    if path is None:
        pytest.skip("needs a libc.so mapped into the interpreter (musl or static)")
    wanted: dict[str, set[int]] = {}
    with open(path, "rb") as stream:  # noqa: PTH123
        table = ELFFile(stream).get_section_by_name(".dynsym")
        for symbol in table.iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] != "STT_TLS":
                wanted.setdefault(symbol.name, set()).add(symbol["st_value"])
    names = ["malloc", "stdout", "environ", "errno", "memcpy", *sorted(wanted)[:50]]
    with ElfFile(path) as file:
        if any(one.type == 2 for one in file.sections):
            pytest.skip("needs a stripped libc: a full symbol table has other duplicates")
        for name in filter(None, names):
            assert set(symbol_addresses(file, name)) == wanted.get(name, set()), name


def map_files() -> list[str]:
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        return sorted({line.split()[-1] for line in maps if ".so" in line})


def test_headers_of_every_library_of_this_process_are_those_pyelftools_reads() -> None:
    paths = [os.path.realpath(sys.executable), *map_files()]
    for path in paths:
        with open(path, "rb") as stream, ElfFile(path) as file:  # noqa: PTH123
            peer = ELFFile(stream)
            assert [one.name for one in file.sections] == [s.name for s in peer.iter_sections()]
            assert [
                (one.offset, one.address, one.filesz, one.memsz, one.flags) for one in file.segments
            ] == [
                (s["p_offset"], s["p_vaddr"], s["p_filesz"], s["p_memsz"], s["p_flags"])
                for s in peer.iter_segments()
            ]
            ident = peer.get_section_by_name(".note.gnu.build-id")
            notes = list(ident.iter_notes()) if ident else []
            assert file.build_id == (notes[0]["n_desc"] if notes else None)


# Build ID


@pytest.mark.parametrize("fmt", FORMATS, ids=FORMAT_IDS)
def test_the_build_id_is_read_from_its_section(fmt: Format, write: Write) -> None:
    data = raw_note(b"GNU\0", 1, b"abi!", fmt) + raw_note(b"GNU\0", 3, bytes(range(20)), fmt)
    with ElfFile(write(elf([Section(b".note.gnu.build-id", 7, data)], fmt=fmt))) as file:
        assert file.build_id == bytes(range(20)).hex()


def test_the_build_id_is_read_from_a_segment_when_sections_are_gone(write: Write) -> None:
    body = raw_note(b"GNU\0", 3, b"\xab\xcd")
    data = elf([Section(b"x", contents=body, offset=0x200)], [Segment(4, 4, 0x200, 0, len(body))])
    data = patched(data, header={"shoff": 0})
    with ElfFile(write(data)) as file:
        assert file.build_id == "abcd"


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(Section(b".other", 7, raw_note(b"GNU\0", 3, b"x")), id="no such section"),
        pytest.param(Section(b".note.gnu.build-id", 7, b"\1\0\0"), id="cut short"),
        pytest.param(
            Section(b".note.gnu.build-id", 7, raw_note(b"GNU\0", 3, b"x")[:14]),
            id="cut in the owner",
        ),
        pytest.param(
            Section(b".note.gnu.build-id", 7, raw_note(b"X\0", 3, b"x")), id="of somebody else"
        ),
        pytest.param(Section(b".note.gnu.build-id", 7, b"", size=1 << 60), id="far too large"),
        pytest.param(Section(b".note.gnu.build-id", 8, b"", size=64), id="without contents"),
    ],
)
def test_a_build_id_that_cannot_be_read_is_none(section: Section, write: Write) -> None:
    with ElfFile(write(elf([section]))) as file:
        assert file.build_id is None


def test_debug_files_and_objects_of_a_real_compiler_are_read(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("needs the program gcc")
    source = tmp_path / "x.c"
    source.write_text("int counter = 7; static int ti; int get(void) { return ti += counter; }\n")
    built = tmp_path / "x.so"
    subprocess.run([compiler, "-g", "-shared", "-fPIC", "-o", built, source], check=True)
    with ElfFile(built) as file:
        (counter,) = symbol_addresses(file, "counter")
        (get,) = symbol_addresses(file, "get")
        assert len(symbol_addresses(file, "ti")) == 1
        offset = file.offset_of(counter, executable=False, writable=True)
        assert offset is not None
        assert built.read_bytes()[offset : offset + 4] in (b"\7\0\0\0", b"\0\0\0\7")
        assert file.offset_of(get, executable=True) is not None
        assert file.offset_of(symbol_addresses(file, "ti")[0], executable=False) is None  # .bss
