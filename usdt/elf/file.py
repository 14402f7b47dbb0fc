"""ELF files, as far as probes need them: headers, segments, sections, symbols' addresses.

An own reader over mmap: opening a file costs tens of microseconds, since ``usdt list -a`` opens
thousands. Layouts are those of elf(5), both classes and byte orders.

The files are hostile. Every table is checked against the file's size before it is read, names are
bounded, and whatever cannot be believed is one :class:`~usdt.base.errors.ElfError`. One danger is
not met here: a regular file that another process cuts short while it is mapped ends this one with
SIGBUS, as it does every reader by mmap.
"""

from __future__ import annotations

import bisect
import functools
import mmap
import os
import stat
from typing import TYPE_CHECKING, NoReturn, Self

from usdt.base.errors import ElfError, TargetError
from usdt.elf.format import (
    CLASSES,
    EI_NIDENT,
    LAYOUTS,
    MACHINES,
    NT_GNU_BUILD_ID,
    ORDERS,
    PF_W,
    PF_X,
    PN_XNUM,
    PT_LOAD,
    PT_NOTE,
    SHN_XINDEX,
    SHT_NOBITS,
    SHT_NOTE,
    Section,
    Segment,
    excerpt,
)

if TYPE_CHECKING:
    import struct
    from collections.abc import Iterator

    from usdt.elf.format import Layout

__all__ = ("ElfFile", "Section", "Segment")

MAX_ENTRIES = 1 << 18  # sections or segments; real files stay below 100,000
MAX_NAME = 4096  # bytes of one section's name
MAX_NAMES = 64 << 20  # bytes of all names together: they may overlap
MAX_BUILD_ID_NOTES = 64


class ElfFile:
    """An ELF file, mapped for reading; a context manager.

    Attributes:
        path: the file's name in messages.
        size: its length in bytes.
        bits: 32 or 64.
        byteorder: "little" or "big".
        machine: ``e_machine``.
        type: ``e_type``, ET_EXEC (2), ET_DYN (3), ET_REL (1)…

    Args:
        path: what to open; never blocks on a FIFO, never touches a device.
        name: the name to show, where ``path`` is a detour such as ``/proc/PID/map_files/…``.

    Raises:
        ElfError: not a regular file, not ELF, or the headers lead outside the file.
        TargetError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        self.path = name if name is not None else os.fspath(path)
        self._layout: Layout
        descriptor = open_regular(path, self.path)
        try:
            self._read_ident(os.pread(descriptor, EI_NIDENT + 48, 0))
            self.size = os.fstat(descriptor).st_size
            self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as err:
            if isinstance(err, ElfError):
                raise
            raise ElfError(f"{self.path}: cannot be read as a file: {err}") from err
        finally:
            os.close(descriptor)
        self._view = memoryview(self._map)
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
        """Unmap the file; a view of it that is still in use keeps the mapping until it goes."""
        try:
            self._view.release()
            self._map.close()
        except BufferError:
            pass  # a caller's view: the mapping goes with the last of them

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
        """Whether ``path`` is a regular file that begins as ELF does; False if unreadable."""
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
        """The CPU as ``uname -m`` names it, "machine-N" for one without a name here."""
        names = MACHINES.get(self.machine)
        if names is None:
            return f"machine-{self.machine}"
        return names[2 * (self.bits == 64) + (self.byteorder == "big")]

    # Headers

    def _read_ident(self, start: bytes) -> None:
        if start[:4] != b"\x7fELF":
            self._fail("not an ELF file" if start else "empty file, not an ELF file")
        if len(start) < EI_NIDENT:
            self._fail(
                f"truncated ELF header: {len(start)} bytes, {EI_NIDENT} of identification needed"
            )
        if start[4] not in CLASSES or start[5] not in ORDERS:
            self._fail(f"damaged ELF header: class {start[4]}, data {start[5]}; 1 or 2 expected")
        self.bits = CLASSES[start[4]]
        self.byteorder = ORDERS[start[5]]
        self._layout = LAYOUTS[self.bits, self.byteorder]
        need = EI_NIDENT + self._layout.ehdr.size
        if len(start) < need:
            self._fail(f"truncated ELF header: {len(start)} bytes, {need} needed")
        fields = self._layout.ehdr.unpack_from(start, EI_NIDENT)
        self.type, self.machine, _, _, self._phoff, self._shoff, _, _ = fields[:8]
        self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = fields[8:]

    def _check_tables(self) -> None:
        shdr, phdr = self._layout.shdr, self._layout.phdr
        if self._shoff and (self._shnum or self._shentsize):
            # Where a number does not fit its 16 bits, section 0 holds it.
            extended = not self._shnum or SHN_XINDEX in (self._shstrndx, self._phnum)
            self._check("section", self._shoff, max(self._shnum, extended), self._shentsize, shdr)
            if extended:
                first = shdr.unpack_from(self._map, self._shoff)
                self._shnum = self._shnum or first[5]
                self._shstrndx = first[6] if self._shstrndx == SHN_XINDEX else self._shstrndx
                self._phnum = first[7] if self._phnum == PN_XNUM else self._phnum
                self._check("section", self._shoff, self._shnum, self._shentsize, shdr)
        else:
            self._shnum = self._shstrndx = 0
        if self._phnum:
            self._check("program", self._phoff, self._phnum, self._phentsize, phdr)
        self._names = self._names_extent()

    def _check(self, what: str, offset: int, count: int, entry: int, layout: struct.Struct) -> None:
        if entry != layout.size:
            self._fail(
                f"damaged ELF header: {what} headers of {entry} bytes, {layout.size} expected"
            )
        if count > MAX_ENTRIES:
            self._fail(f"{count} {what} headers, at most {MAX_ENTRIES} are read")
        if offset + count * entry > self.size:
            self._fail(
                f"truncated: {count} {what} headers at {offset:#x} end at"
                f" {offset + count * entry:#x}, the file has {self.size:#x} bytes"
            )

    def _names_extent(self) -> tuple[int, int]:
        """Where the sections' names lie in the file: from, to."""
        if not self._shstrndx or not self._shnum:
            return 0, 0
        if self._shstrndx >= self._shnum:
            self._fail(f"section names are in section {self._shstrndx} of {self._shnum}")
        at = self._shoff + self._shstrndx * self._layout.shdr.size
        _, kind, _, _, offset, size, *_ = self._layout.shdr.unpack_from(self._map, at)
        if kind == SHT_NOBITS or offset + size > self.size:
            self._fail(f"section names ({size} bytes at {offset:#x}) are outside the file")
        return offset, offset + size

    def _fail(self, reason: str) -> NoReturn:
        raise ElfError(f"{self.path}: {reason}")

    # Segments

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every program header, in file order."""
        table = self._map[self._phoff : self._phoff + self._phnum * self._layout.phdr.size]
        if self.bits == 64:
            return tuple(
                Segment(kind, flags, offset, address, filesz, memsz)
                for kind, flags, offset, address, _, filesz, memsz, _ in (
                    self._layout.phdr.iter_unpack(table)
                )
            )
        return tuple(
            Segment(kind, flags, offset, address, filesz, memsz)
            for kind, offset, address, _, filesz, memsz, flags, _ in (
                self._layout.phdr.iter_unpack(table)
            )
        )

    def offset_of(self, address: int, *, executable: bool, writable: bool = False) -> int | None:
        """The place in the file of the byte that is loaded at a link-time address.

        Args:
            address: after prelink adjustment.
            executable: look only in segments that are (PF_X).
            writable: look only in segments that are (PF_W).

        Returns:
            None where no PT_LOAD segment brings that byte from the file (so also for ``.bss``).
        """
        starts, loads = self._loads[PF_X * executable | PF_W * writable]
        found = bisect.bisect_right(starts, address) - 1
        if found < 0:
            return None
        segment = loads[found]
        distance = address - segment.address
        offset = segment.offset + distance
        return offset if distance < segment.filesz and offset < self.size else None

    @functools.cached_property
    def _loads(self) -> tuple[tuple[list[int], list[Segment]], ...]:
        """PT_LOAD segments with contents by required flags, sorted by address for bisection.

        Addresses of such segments do not overlap in a sane file; of two that do in a damaged one
        the later hides the rest of the earlier.
        """
        loads = sorted(
            (one for one in self.segments if one.type == PT_LOAD and one.filesz),
            key=lambda one: one.address,
        )
        chosen = [[one for one in loads if one.flags & need == need] for need in range(4)]
        return tuple(([one.address for one in group], group) for group in chosen)

    @functools.cached_property
    def first_address(self) -> int:
        """The lowest address of a PT_LOAD segment; 0 if there is none.

        Prelinking may move a file after its debug file was made: their link-time addresses differ
        by as much as their first addresses do.
        """
        return min((one.address for one in self.segments if one.type == PT_LOAD), default=0)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer where it ends."""
        return self._map[offset : offset + size]

    # Sections

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Every section header, in file order, the empty first one included.

        Raises:
            ElfError: the names together are larger than any real file's.
        """
        table = self._map[self._shoff : self._shoff + self._shnum * self._layout.shdr.size]
        budget = MAX_NAMES
        found = []
        for name, *rest in self._layout.shdr.iter_unpack(table):
            text = self._section_name(name)
            budget -= len(text)
            if budget < 0:
                self._fail(f"section names are longer than {MAX_NAMES} bytes together")
            found.append(Section(text, *rest))
        return tuple(found)

    def _section_name(self, position: int) -> str:
        start, end = self._names
        start += position
        stop = self._map.find(b"\0", start, min(end, start + MAX_NAME))
        return "" if stop < 0 else str(self._map[start:stop], "utf-8", "surrogateescape")

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next(iter(self.sections_named(name)), None)

    def sections_named(self, name: str) -> tuple[Section, ...]:
        """Every section of that name; cheap where there is none, which is the usual answer."""
        wanted = name.encode("utf-8", "surrogateescape") + b"\0"
        if self._map.find(wanted, *self._names) < 0:
            return ()
        return tuple(section for section in self.sections if section.name == name)

    def contents(self, section: Section) -> memoryview:
        """A section's bytes, in place; to be dropped before the file is closed.

        Raises:
            ElfError: the section lies outside the file.
        """
        if section.type == SHT_NOBITS:
            return self._view[:0]
        end = section.offset + section.size
        if end > self.size:
            self._fail(
                f"truncated: section {excerpt(section.name)} ends at {end:#x},"
                f" the file has {self.size:#x} bytes"
            )
        return self._view[section.offset : end]

    def find_in(self, section: Section, wanted: bytes) -> Iterator[int]:
        """Yield the positions in a section at which some bytes stand.

        Raises:
            ElfError: the section lies outside the file.
        """
        self.contents(section)  # refuses one that lies outside the file
        if section.type == SHT_NOBITS:
            return
        end = section.offset + section.size
        at = self._map.find(wanted, section.offset, end)
        while at >= 0:
            yield at - section.offset
            at = self._map.find(wanted, at + len(wanted), end)

    # Build ID

    @functools.cached_property
    def build_id(self) -> str | None:
        """The GNU build ID in hexadecimal, None where there is none or it cannot be read."""
        for start, size in self._gnu_notes():
            found = self._build_id_in(start, min(start + size, self.size))
            if found:
                return found
        return None

    def _gnu_notes(self) -> Iterator[tuple[int, int]]:
        """Extents in the file that may hold the build ID: the section, else the segments."""
        for section in self.sections_named(".note.gnu.build-id"):
            if section.type == SHT_NOTE:
                yield section.offset, section.size
        for segment in self.segments:
            if segment.type == PT_NOTE:
                yield segment.offset, segment.filesz

    def _build_id_in(self, position: int, end: int) -> str | None:
        for _ in range(MAX_BUILD_ID_NOTES):
            if position + self._layout.note.size > end:
                return None
            namesz, descsz, kind = self._layout.note.unpack_from(self._map, position)
            owner = position + self._layout.note.size
            desc = owner + (namesz + 3 & ~3)
            if desc + descsz > end:
                return None
            if kind == NT_GNU_BUILD_ID and self._map[owner : owner + namesz] == b"GNU\0":
                return self._map[desc : desc + descsz].hex()
            position = desc + (descsz + 3 & ~3)
        return None


def open_regular(path: str | os.PathLike[str], name: str) -> int:
    """Open a regular file for reading; the descriptor is the caller's.

    Looks before it opens, since opening alone does things to devices (a watchdog starts), and
    again after, since another file may have taken the name.

    Raises:
        ElfError: a directory, FIFO, socket or device.
        TargetError: there is no such file, or no permission.
    """
    try:
        refuse_special(os.stat(path), name)  # noqa: PTH116 - as fast as can be
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(path, flags)
    except OSError as err:
        raise TargetError(f"{name}: cannot be opened: {err.strerror}") from err
    except ElfError:
        raise
    except ValueError as err:  # a NUL or a lone surrogate in the path
        raise TargetError(f"{name!r}: cannot be opened: {err}") from err
    try:
        refuse_special(os.fstat(descriptor), name)
    except ElfError:
        os.close(descriptor)
        raise
    return descriptor


def refuse_special(status: os.stat_result, name: str) -> None:
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
