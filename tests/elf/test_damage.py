"""What the ELF reader refuses or survives: damaged headers, special files, files that change."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from elfwriter import Format, Section, Segment, elf, note, patched, probe_elf, symbols

from usdt.base.errors import ElfError, TargetError, TracingError
from usdt.elf import file as elf_module
from usdt.elf.file import MAX_CONTENTS, ElfFile
from usdt.elf.file_bytes import FileBytes, OpenFile
from usdt.elf.symbol_table import symbol_addresses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def save(data: bytes) -> Path:
        path = tmp_path / "file.elf"
        path.write_bytes(data)
        return path

    return save


SYMBOLS = elf(
    [Section(b".strtab", 3, b"\0x\0"), Section(b".symtab", 2, symbols([(1, 1, 1, 1)]), link=1)]
)


# Headers


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "empty file, not an ELF file", id="an empty file"),
        pytest.param(b"#!/bin/sh\n", "not an ELF file", id="a script"),
        pytest.param(b"\x7fEL", "not an ELF file", id="three bytes"),
        pytest.param(
            b"\x7fELF", "truncated ELF header: 4 bytes, 16 of", id="the magic number only"
        ),
        pytest.param(elf([])[:63], "truncated ELF header: 63 bytes, 64 needed", id="63 bytes"),
        pytest.param(
            elf([], fmt=Format(32))[:51], "truncated ELF header: 51 bytes, 52 needed", id="51 bytes"
        ),
        pytest.param(b"\x7fELF\3\1" + elf([])[6:], "class 3, data 1", id="an unknown class"),
        pytest.param(b"\x7fELF\2\0" + elf([])[6:], "class 2, data 0", id="an unknown byte order"),
        pytest.param(
            elf([], header={"shentsize": 40}),
            "section headers of 40 bytes, 64 expected",
            id="section headers of another size",
        ),
        pytest.param(
            elf([], [Segment()], header={"phentsize": 0}),
            "program headers of 0 bytes, 56 expected",
            id="program headers without a size",
        ),
        pytest.param(
            elf([])[:-1], "truncated: 2 section headers at", id="the last section header is cut"
        ),
        pytest.param(
            elf([], header={"shoff": 2**64 - 1}),
            "truncated: 2 section headers at 0xffffffffffffffff",
            id="section headers at the end of the address space",
        ),
        pytest.param(
            elf([], [Segment()], header={"phoff": 1 << 62}),
            "truncated: 1 program headers",
            id="program headers outside",
        ),
        pytest.param(
            elf([], header={"shstrndx": 7}),
            "section names are in section 7 of 2",
            id="names in a section that is not there",
        ),
        pytest.param(
            patched(elf([]), section=(1, {"offset": 1 << 63})),
            "section names (11 bytes at 0x8000000000000000) are outside the file",
            id="names outside the file",
        ),
        pytest.param(
            patched(elf([]), section=(1, {"type": 8})),
            "are outside the file",
            id="names without contents",
        ),
        pytest.param(
            patched(elf([], header={"shnum": 0}), section=(0, {"size": 2**64 - 1})),
            "18446744073709551615 section headers, at most",
            id="as many sections as 64 bits can count",
        ),
    ],
)
def test_a_damaged_header_is_one_clear_error(data: bytes, message: str, write: Write) -> None:
    path = write(data)
    with pytest.raises(ElfError) as caught:
        ElfFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_section_outside_the_file_is_refused_when_it_is_read(write: Write) -> None:
    with ElfFile(write(elf([Section(b".x", size=1 << 62)]))) as file:
        section = file.section(".x")
        assert section is not None
        with pytest.raises(ElfError, match=r"truncated: section \.x ends at"):
            file.contents(section)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param((2, {"link": 99}), "strings in section 99", id="strings nowhere"),
        pytest.param((2, {"size": 1 << 50}), "at most", id="more symbols than any file has"),
        pytest.param((2, {"offset": 1 << 50}), "truncated", id="symbols outside the file"),
        pytest.param((1, {"size": 1 << 50}), "truncated", id="strings outside the file"),
    ],
)
def test_a_damaged_symbol_table_is_one_clear_error(
    change: tuple[int, dict[str, int]], message: str, write: Write
) -> None:
    data = patched(SYMBOLS, section=change)
    with ElfFile(write(data)) as file, pytest.raises(ElfError, match=message):
        symbol_addresses(file, "x")


def test_a_symbol_table_may_be_its_own_string_table(write: Write) -> None:
    data = patched(SYMBOLS, section=(2, {"link": 2}))
    with ElfFile(write(data)) as file:
        assert symbol_addresses(file, "x") == ()


def test_more_names_than_any_file_has_are_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All sections may claim one long name: the file is small, what it unfolds to is not.
    data = elf([Section(b"n" * 1000) for _ in range(5)])
    for index in range(1, 6):
        data = patched(data, section=(index, {"name": 1}))
    monkeypatch.setattr(elf_module, "MAX_NAMES", 4999)
    with ElfFile(write(data)) as file, pytest.raises(ElfError, match="4999 bytes together"):
        _ = file.sections


def test_a_name_without_an_end_is_empty(write: Write) -> None:
    data = patched(elf([Section(b"abc")]), section=(2, {"size": 4}))
    with ElfFile(write(data)) as file:
        assert [one.name for one in file.sections] == ["", "", ""]


# Special files


def special(tmp_path: Path, kind: str) -> str:
    path = str(tmp_path / kind)
    if kind == "directory":
        os.mkdir(path)  # noqa: PTH102
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
    elif kind == "character device":
        return "/dev/zero"
    return path


@pytest.mark.parametrize("kind", ["directory", "FIFO", "socket", "character device"])
def test_a_special_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = special(tmp_path, kind)
    with pytest.raises(ElfError, match=f"{path}: is a {kind}, not an ELF file"):
        ElfFile(path)
    assert not ElfFile.is_elf(path)


def test_a_missing_file_is_a_target_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="missing: cannot be opened: No such file") as caught:
        ElfFile(tmp_path / "missing")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert not ElfFile.is_elf(tmp_path / "missing")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5000, ""])
def test_a_path_that_cannot_be_is_a_target_error(path: str) -> None:
    with pytest.raises(TargetError, match="cannot be opened"):
        ElfFile(path)
    assert not ElfFile.is_elf(path)


def test_a_file_of_proc_is_no_elf_file() -> None:
    with pytest.raises(ElfError, match="/proc/self/status: not an ELF file"):
        ElfFile("/proc/self/status")


def test_a_file_in_memory_only_is_as_good_as_any() -> None:
    descriptor = os.memfd_create("probes")
    try:
        os.write(descriptor, probe_elf(note()))
        with ElfFile(f"/proc/self/fd/{descriptor}", name="memfd:probes") as file:
            assert file.section(".note.stapsdt") is not None
    finally:
        os.close(descriptor)


def test_a_symbolic_link_is_followed(write: Write, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(write(elf([])))
    with ElfFile(link) as file:
        assert file.path == str(link)
    assert ElfFile.is_elf(link)


def test_a_path_may_hold_any_byte(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n")
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(elf([]))
    with ElfFile(path) as opened:
        assert opened.path == path


@pytest.mark.parametrize(
    ("data", "answer"),
    [(b"\x7fELF", True), (b"\x7fEL", False), (b"", False), (b"#!/bin/sh", False)],
)
def test_is_elf_looks_at_four_bytes(data: bytes, answer: bool, write: Write) -> None:
    assert ElfFile.is_elf(write(data)) is answer


# Closing, size


def test_closing_twice_is_harmless_and_a_closed_file_is_not_read(write: Write) -> None:
    file = ElfFile(write(elf([Section(b".x", contents=b"abc")])))
    section = file.section(".x")
    assert section is not None
    data = file.data(section)
    assert data[:] == file.contents(section) == b"abc"
    file.close()
    file.close()
    with pytest.raises(ElfError, match="cannot be read"):
        file.contents(section)


def test_an_error_leaves_nothing_open(write: Write) -> None:
    path = write(elf([])[:-1])
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        with pytest.raises(TracingError):
            ElfFile(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_file_of_many_gigabytes_is_not_read_as_a_whole(tmp_path: Path) -> None:
    # Sparse: header and notes at the beginning, the section headers 8 GiB further on.
    data = probe_elf(note())
    shoff = struct.unpack_from("<Q", data, 0x28)[0]
    far = 8 << 30
    path = tmp_path / "large.elf"
    with path.open("wb") as file:
        try:
            file.truncate(far)
        except OSError as err:
            pytest.skip(f"needs a file system with sparse files of 8 GiB: {err}")
        file.write(patched(data[:shoff], header={"shoff": far}))
        file.seek(far)
        file.write(data[shoff:])
    with ElfFile(path) as opened:
        assert opened.size == far + 6 * 64
        section = opened.section(".note.stapsdt")
        assert section is not None
        assert bytes(opened.contents(section)) == note()


def test_a_file_that_shrinks_while_it_is_open_is_one_error(write: Write) -> None:
    path = write(elf([Section(b".x", contents=bytes(200_000))]))
    with ElfFile(path) as file:
        section = file.section(".x")
        assert section is not None
        os.truncate(path, section.offset + 199_999)
        data = file.data(section)
        assert data[0] == 0
        for read in (
            lambda: file.contents(section),
            lambda: data[199_999],
            lambda: [*data.pieces()],
        ):
            with pytest.raises(ElfError, match=r"file\.elf: became shorter while it was read"):
                read()
        with pytest.raises(IndexError):
            _ = data[200_000]


def test_a_section_larger_than_real_ones_is_not_read_at_once(write: Write) -> None:
    path = write(elf([Section(b".x", contents=b"abc")]))
    path.write_bytes(patched(path.read_bytes(), section=(1, {"size": MAX_CONTENTS + 1})))
    os.truncate(path, MAX_CONTENTS * 2)
    with ElfFile(path) as file:
        section = file.section(".x")
        assert section is not None
        with pytest.raises(
            ElfError, match=r"section '?\.x'? has 268435457 bytes, at most 268435456"
        ):
            file.contents(section)


def test_bytes_are_found_across_the_pieces_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first = (1 << 20) - 2
    path.write_bytes(b"-" * first + b"name\0" + b"-" * 100 + b"name\0name\0")
    file = OpenFile(os.open(path, os.O_RDONLY), "file")
    data = FileBytes(file, 0, path.stat().st_size)
    assert [*data.find_all(b"name\0")] == [first, first + 105, first + 110]
    assert data.string(first, 100) == b"name"
    assert data.string(first, 4) is None
    assert b"".join(data.pieces(3)) == path.read_bytes()[: len(data) // 3 * 3]
    assert data[-5:] == b"name\0"
    assert data[5:2] == b""
    file.close()


def test_a_range_that_is_read_everywhere_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(256)) * (1 << 10)
    path.write_bytes(content)
    file = OpenFile(os.open(path, os.O_RDONLY), "file")
    data = FileBytes(file, 0, len(content))
    places = [*range(0, len(content), 4096), *reversed(range(0, len(content), 4096))]
    assert all(data[at : at + 8] == content[at : at + 8] for at in places)
    os.truncate(path, 0)
    assert all(data[at : at + 8] == content[at : at + 8] for at in places)
    again = FileBytes(file, 0, len(content))
    with pytest.raises(ElfError, match="became shorter"):
        again[:8]
    file.close()
