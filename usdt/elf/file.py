"""ELF files: headers, segments, sections, the build ID.

A reader of its own, since ``usdt list -a`` opens thousands of files: opening one takes tens of
microseconds.

The files are hostile. Every table is checked against the file's size before it is read, names are
bounded, and damage raises :class:`~usdt.base.errors.ElfError`. So does a file that another process
truncates meanwhile: files are read, not mapped.
"""

from __future__ import annotations

import bisect
import functools
import os
import stat
from typing import TYPE_CHECKING, NoReturn, Self

from usdt.base.errors import ElfError, TargetError
from usdt.base.text import encoded
from usdt.elf.file_bytes import FileBytes, OpenFile
from usdt.elf.format import (
    EI_NIDENT,
    ELF_STRUCTS,
    MACHINES,
    NT_GNU_BUILD_ID,
    PF_W,
    PF_X,
    PN_XNUM,
    PT_LOAD,
    PT_NOTE,
    SHN_XINDEX,
    SHT_NOBITS,
    SHT_NOTE,
    HeaderTable,
    Section,
    Segment,
    check_table,
    decode_header,
    decode_segments,
    excerpt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.elf.dynamic import Dynamic


__all__ = ("MAX_CONTENTS", "ElfFile", "Section", "Segment")

MAX_NAME = 4096  # bytes of one section's name
MAX_NAMES = 64 << 20  # bytes of all names together: they may overlap
MAX_BUILD_ID_NOTES = 64
MAX_CONTENTS = 256 << 20  # bytes of a section that is read as a whole
MAX_BUILD_ID = 1024  # bytes


class ElfFile:
    """An ELF file, open for reading; a context manager.

    Attributes:
        path: the file's name in messages.
        size: in bytes.
        bits: 32 or 64.
        byteorder: "little" or "big".
        machine: ``e_machine``.
        type: ``e_type``, ET_EXEC (2), ET_DYN (3), ET_REL (1)…

    Args:
        path: of the file; opening never blocks on a FIFO and never touches a device.
        name: the name to show, if ``path`` is a detour such as ``/proc/PID/map_files/…``.

    Raises:
        ElfError: not a regular file, not ELF, or its headers point outside the file.
        TargetError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        self.path = name if name is not None else os.fspath(path)
        descriptor = open_regular(path, self.path)
        self._file = OpenFile(descriptor, self.path)
        try:
            header = decode_header(os.pread(descriptor, EI_NIDENT + 48, 0), self.path)
            self.size = os.fstat(descriptor).st_size
        except OSError as err:
            self.close()
            raise ElfError(f"{self.path}: cannot be read as a file: {err}") from err
        except ElfError:
            self.close()
            raise
        self._header = header
        self._structs = ELF_STRUCTS[header.bits, header.byteorder]
        self.bits, self.byteorder = header.bits, header.byteorder
        self.machine, self.type = header.machine, header.type
        try:
            self._check_tables()
        except ElfError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Open an ELF image that is in memory.

        Raises:
            ElfError: it is none, or damaged.
        """
        descriptor = os.memfd_create("elf", os.MFD_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            return cls(f"/proc/self/fd/{descriptor}", name=name)
        finally:
            os.close(descriptor)

    @staticmethod
    def is_elf(path: str | os.PathLike[str]) -> bool:
        """Return whether ``path`` is a readable regular file with ELF's magic number."""
        try:
            descriptor = open_regular(path, "")
        except (ElfError, TargetError):
            return False
        try:
            return os.pread(descriptor, 4, 0) == b"\x7fELF"
        except OSError:
            return False
        finally:
            os.close(descriptor)

    @property
    def machine_name(self) -> str:
        """The CPU as ``uname -m`` names it; "machine-N" if it has no name here."""
        names = MACHINES.get(self.machine)
        if names is None:
            return f"machine-{self.machine}"
        return names[2 * (self.bits == 64) + (self.byteorder == "big")]

    # Headers

    def _check_tables(self) -> None:
        header, shdr = self._header, self._structs.shdr
        self._phnum, self._shnum, self._shstrndx = header.phnum, header.shnum, header.shstrndx
        if header.shoff and (header.shnum or header.shentsize):
            # If a number does not fit its 16 bits, section 0 holds it.
            extended = not self._shnum or SHN_XINDEX in (self._shstrndx, self._phnum)
            self._check_sections(max(self._shnum, extended))
            if extended:
                first = shdr.unpack(self._file.read(header.shoff, shdr.size))
                self._shnum = self._shnum or first[5]
                self._shstrndx = first[6] if self._shstrndx == SHN_XINDEX else self._shstrndx
                self._phnum = first[7] if self._phnum == PN_XNUM else self._phnum
                self._check_sections(self._shnum)
        else:
            self._shnum = self._shstrndx = 0
        if self._phnum:
            table = HeaderTable("program", header.phoff, self._phnum, header.phentsize)
            check_table(table, self._structs.phdr, self.size, self.path)
        self._names = self._names_extent()

    def _check_sections(self, count: int) -> None:
        table = HeaderTable("section", self._header.shoff, count, self._header.shentsize)
        check_table(table, self._structs.shdr, self.size, self.path)

    def _names_extent(self) -> tuple[int, int]:
        """Return where the sections' names are in the file: start, size."""
        if not self._shstrndx or not self._shnum:
            return 0, 0
        if self._shstrndx >= self._shnum:
            self._fail(f"section names are in section {self._shstrndx} of {self._shnum}")
        at = self._header.shoff + self._shstrndx * self._structs.shdr.size
        shdr = self._structs.shdr
        _, kind, _, _, offset, size, *_ = shdr.unpack(self._file.read(at, shdr.size))
        if kind == SHT_NOBITS or offset + size > self.size:
            self._fail(f"section names ({size} bytes at {offset:#x}) are outside the file")
        if size > MAX_CONTENTS:
            self._fail(f"section names of {size} bytes; at most {MAX_CONTENTS} are read")
        return offset, size

    @functools.cached_property
    def _name_bytes(self) -> bytes:
        return self._file.read(*self._names)

    def _fail(self, reason: str) -> NoReturn:
        raise ElfError(f"{self.path}: {reason}")

    # Segments

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every program header, in file order."""
        size = self._phnum * self._structs.phdr.size
        return decode_segments(self._file.read(self._header.phoff, size), self._header)

    def offset_of(self, address: int, *, executable: bool, writable: bool = False) -> int | None:
        """Return the file offset of the byte that is loaded at a link-time address.

        Args:
            address: after prelink adjustment.
            executable: search executable segments only (PF_X).
            writable: search writable segments only (PF_W).

        Returns:
            None if no PT_LOAD segment loads that byte from the file (so also for ``.bss``).
        """
        starts, loads = self._loads[PF_X * executable | PF_W * writable]
        found = bisect.bisect_right(starts, address) - 1
        if found < 0:
            return None
        segment = loads[found]
        distance = address - segment.address
        offset = segment.offset + distance
        return offset if distance < segment.filesz and offset < self.size else None

    def address_of(self, offset: int) -> int | None:
        """Return the link-time address of the code at a file offset; None if there is none."""
        _, loads = self._loads[PF_X]
        found = (one for one in loads if 0 <= offset - one.offset < one.filesz)
        return next((offset - one.offset + one.address for one in found), None)

    @functools.cached_property
    def _loads(self) -> tuple[tuple[list[int], list[Segment]], ...]:
        """PT_LOAD segments with contents by required flags, sorted by address for bisection.

        In a valid file their addresses do not overlap. In a damaged one the later of two hides the
        rest of the earlier.
        """
        loads = sorted(
            (one for one in self.segments if one.type == PT_LOAD and one.filesz),
            key=lambda one: one.address,
        )
        groups = [[one for one in loads if one.flags & need == need] for need in range(4)]
        return tuple(([one.address for one in group], group) for group in groups)

    @functools.cached_property
    def first_address(self) -> int:
        """The lowest address of a PT_LOAD segment; 0 if there is none.

        Prelinking may move a file after its debug file was made: their link-time addresses differ
        by as much as their first addresses do.
        """
        return min((one.address for one in self.segments if one.type == PT_LOAD), default=0)

    @functools.cached_property
    def dynamic(self) -> Dynamic:
        """The information that the loader reads."""
        from usdt.elf.dynamic import parse_dynamic  # noqa: PLC0415 - for names of libraries

        return parse_dynamic(FileBytes(self._file, 0, self.size), self.path)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        return self._file.read(offset, max(0, min(size, self.size - offset)))

    # Sections

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Every section header, in file order, including the empty first one.

        Raises:
            ElfError: the names together are longer than those of real files.
        """
        table = self._file.read(self._header.shoff, self._shnum * self._structs.shdr.size)
        budget = MAX_NAMES
        found = []
        for name, *rest in self._structs.shdr.iter_unpack(table):
            text = self._section_name(name)
            budget -= len(text)
            if budget < 0:
                self._fail(f"section names are longer than {MAX_NAMES} bytes together")
            found.append(Section(text, *rest))
        return tuple(found)

    def _section_name(self, position: int) -> str:
        names = self._name_bytes
        stop = names.find(b"\0", position, position + MAX_NAME)
        return "" if stop < 0 else str(names[position:stop], "utf-8", "surrogateescape")

    def section(self, name: str) -> Section | None:
        """Return the first section with a name; None if there is none."""
        return next(iter(self.sections_named(name)), None)

    def sections_named(self, name: str) -> tuple[Section, ...]:
        """Return every section with a name; fast if there is none, which is the common case."""
        wanted = encoded(name) + b"\0"
        if wanted not in self._name_bytes:
            return ()
        return tuple(section for section in self.sections if section.name == name)

    def data(self, section: Section) -> FileBytes:
        """Return a section's bytes, which are read when they are used.

        Raises:
            ElfError: the section lies outside the file.
        """
        if section.type == SHT_NOBITS:
            return FileBytes(self._file, 0, 0)
        end = section.offset + section.size
        if end > self.size:
            self._fail(
                f"truncated: section {excerpt(section.name)} ends at {end:#x},"
                f" the file has {self.size:#x} bytes"
            )
        return FileBytes(self._file, section.offset, section.size)

    def contents(self, section: Section) -> bytes:
        """Return all bytes of a section.

        Raises:
            ElfError: the section lies outside the file, or is larger than real ones.
        """
        found = self.data(section)
        if len(found) > MAX_CONTENTS:
            self._fail(
                f"section {excerpt(section.name)} has {len(found)} bytes,"
                f" at most {MAX_CONTENTS} are read"
            )
        return found[:]

    # Build ID

    @functools.cached_property
    def build_id(self) -> str | None:
        """The GNU build ID in hexadecimal; None if there is none or it cannot be read."""
        for start, size in self._gnu_notes():
            found = self._build_id_in(start, min(start + size, self.size))
            if found:
                return found
        return None

    def _gnu_notes(self) -> Iterator[tuple[int, int]]:
        """Yield offset and size of notes that may contain the build ID: sections, then segments."""
        for section in self.sections_named(".note.gnu.build-id"):
            if section.type == SHT_NOTE:
                yield section.offset, section.size
        for segment in self.segments:
            if segment.type == PT_NOTE:
                yield segment.offset, segment.filesz

    def _build_id_in(self, position: int, end: int) -> str | None:
        for _ in range(MAX_BUILD_ID_NOTES):
            if position + self._structs.note.size > end:
                return None
            note = self._structs.note
            namesz, descsz, kind = note.unpack(self._file.read(position, note.size))
            owner = position + self._structs.note.size
            desc = owner + (namesz + 3 & ~3)
            if desc + descsz > end:
                return None
            if kind == NT_GNU_BUILD_ID and namesz == 4 and self._file.read(owner, 4) == b"GNU\0":
                return self._file.read(desc, min(descsz, MAX_BUILD_ID)).hex()
            position = desc + (descsz + 3 & ~3)
        return None


def open_regular(path: str | os.PathLike[str], name: str) -> int:
    """Open a regular file for reading; the caller closes the descriptor.

    Checks the type before opening, since opening a device has effects (a watchdog starts), and
    again after, since another file may have taken the name.

    Raises:
        ElfError: a directory, FIFO, socket or device.
        TargetError: there is no such file, or no permission.
    """
    try:
        require_regular_file(os.stat(path), name)  # noqa: PTH116 - as fast as can be
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(path, flags)
    except OSError as err:
        raise TargetError(f"{name}: cannot be opened: {err.strerror}") from err
    except ElfError:
        raise
    except ValueError as err:  # a NUL or a lone surrogate in the path
        raise TargetError(f"{name!r}: cannot be opened: {err}") from err
    try:
        require_regular_file(os.fstat(descriptor), name)
    except ElfError:
        os.close(descriptor)
        raise
    return descriptor


def require_regular_file(status: os.stat_result, name: str) -> None:
    """Raise ElfError for anything but a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = SPECIAL.get(stat.S_IFMT(status.st_mode), "special file")
        raise ElfError(f"{name}: is a {kind}, not an ELF file")


SPECIAL = {
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
