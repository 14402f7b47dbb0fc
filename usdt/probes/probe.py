"""The probes of a file: its notes, put where they are in the file and grouped by name.

A note gives link-time addresses. If prelink(8) moved the file after linking, ``.stapsdt.base`` has
moved along and the note, which is not loaded, has not: the difference of the section's address and
the note's ``base`` is what location and semaphore are short of (the SystemTap wiki's
"UserSpaceProbeImplementation"). Sites and semaphores are then given as offsets in the file too,
for that is what the kernel's uprobes take.

One bad site does not hide another: a site that cannot be traced is listed with the reason in
``dead``, damage in a section is a warning, and only a file that cannot be read at all is an error.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any, Literal

from usdt.base.frozen import frozen
from usdt.elf.file import ElfFile
from usdt.elf.format import ET_REL, SHF_COMPRESSED, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE, excerpt
from usdt.probes.notes import parse_notes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from usdt.elf.format import Section
    from usdt.probes.argspec import Operand
    from usdt.probes.notes import Note

__all__ = ("FileProbes", "Probe", "Site", "read_probes")

SECTION = ".note.stapsdt"
BASE_SECTION = ".stapsdt.base"
LARGE = 1 << 20  # bytes of notes, about 15,000 of them
MAX_WARNINGS = 16  # of one kind in one file; the rest are counted


@frozen
class Site:
    """One place in the code where a probe sits.

    Attributes:
        address: link-time address of the probe's nop, after prelink adjustment.
        offset: its place in the file, or None for a dead site.
        base: address of ``.stapsdt.base`` as the note has it.
        semaphore: link-time address of the activation counter, adjusted; 0 = none.
        semaphore_offset: the counter's place in the file; 0 = none, or none that a tracer could
            write (``semaphore`` is not 0 then, and the file's warnings say why).
        args: the operands as text, "" = none.
        dead: why the site cannot be traced, or None.
    """

    address: int
    offset: int | None
    base: int
    semaphore: int
    semaphore_offset: int
    args: str
    dead: str | None

    def __init__(  # noqa: PLR0917 - the fields, in their order
        self,
        address: int,
        offset: int | None,
        base: int,
        semaphore: int,
        semaphore_offset: int,
        args: str,
        dead: str | None,
    ) -> None:
        # Written out for the same reason as that of Note.
        put = object.__setattr__
        put(self, "address", address)
        put(self, "offset", offset)
        put(self, "base", base)
        put(self, "semaphore", semaphore)
        put(self, "semaphore_offset", semaphore_offset)
        put(self, "args", args)
        put(self, "dead", dead)

    def to_json(self, operands: Iterable[Operand]) -> dict[str, Any]:
        """The site as ``usdt list --json`` shows it; only a dead one has the key "dead"."""
        shown = {
            "address": self.address,
            "offset": self.offset,
            "base": self.base,
            "semaphore": self.semaphore,
            "semaphore_offset": self.semaphore_offset,
            "args": self.args,
            "operands": [operand.to_json() for operand in operands],
        }
        return shown if self.dead is None else {**shown, "dead": self.dead}


@frozen
class Probe:
    """A probe of a file: every site of one ``provider:name``, in the order of the notes.

    Attributes:
        path: the file as it is to be shown.
        provider, name: as the notes have them; either may be empty.
        machine: the CPU as ``uname -m`` names it.
        bits, byteorder: the file's class and byte order.
        sites: at least one; dead ones too.
    """

    path: str
    provider: str
    name: str
    machine: str
    bits: int
    byteorder: Literal["little", "big"]
    sites: tuple[Site, ...]

    @property
    def full_name(self) -> str:
        """``provider:name``."""
        return f"{self.provider}:{self.name}"

    def operands(self, site: Site) -> tuple[Operand, ...]:
        """Where each argument lives at that site."""
        from usdt.probes.argspec import parse_arguments  # noqa: PLC0415 - a bare listing does without

        return parse_arguments(site.args, self.machine)

    def to_json(self) -> dict[str, Any]:
        """The probe as ``usdt list --json`` shows it."""
        return {
            "path": self.path,
            "provider": self.provider,
            "name": self.name,
            "machine": self.machine,
            "sites": [site.to_json(self.operands(site)) for site in self.sites],
        }


@frozen
class FileProbes:
    """The probes of one file in the order of their first notes, and what was wrong with it."""

    path: str
    probes: tuple[Probe, ...]
    warnings: tuple[str, ...]


def read_probes(
    path: str | os.PathLike[str], *, open_path: str | os.PathLike[str] | None = None
) -> FileProbes:
    """Read every probe of an ELF file, of any CPU, class and byte order.

    Args:
        path: the file, as it is to be shown.
        open_path: where to open it instead, ``/proc/PID/map_files/…`` for example.

    Raises:
        ElfError: not an ELF file, or one too damaged to be searched.
        TargetError: the file cannot be opened.
    """
    shown = str(path)
    with ElfFile(path if open_path is None else open_path, name=shown) as file:
        sections = file.sections_named(SECTION)
        if not sections:
            return FileProbes(shown, (), ())
        warnings: list[str] = []
        large = sum(section.size for section in sections) > LARGE
        with without_collector() if large else contextlib.nullcontext():
            groups = grouped(file, sections, warnings)
            probes = tuple(
                Probe(shown, *key, file.machine_name, file.bits, file.byteorder, tuple(group))
                for key, group in groups.items()
            )
    return FileProbes(shown, probes, tuple(warnings))


def grouped(
    file: ElfFile, sections: tuple[Section, ...], warnings: list[str]
) -> dict[tuple[str, str], list[Site]]:
    """Sites by provider and name, in the order of the notes; complaints go to ``warnings``."""
    sites = Sites(file)
    groups: dict[tuple[str, str], list[Site]] = {}
    for note in notes_of(file, sections, warnings):
        key = (note.provider, note.name)
        group = groups.get(key)
        if group is None:
            group = groups[key] = []
        group.append(sites.make(note))
    warnings += sites.warnings()
    return groups


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector from walking millions of records, none of which is garbage.

    They are made at a stretch and refer to no cycle; it takes a third of the time otherwise.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def notes_of(file: ElfFile, sections: tuple[Section, ...], warnings: list[str]) -> Iterator[Note]:
    """The notes of all those sections that can be read; what cannot be goes to ``warnings``."""
    budget = file.size  # sections that overlap could make one file as much work as thousands
    for section in sections:
        reason = unreadable(section, file.size, budget)
        if reason:
            warnings.append(f"{file.path}: section {SECTION} skipped: {reason}")
            continue
        budget -= section.size
        notes = parse_notes(
            file.contents(section),
            bits=file.bits,
            byteorder=file.byteorder,
            align=section.addralign,
        )
        warnings += (f"{file.path}: section {SECTION}, {line}" for line in notes.warnings)
        yield from notes.notes


def unreadable(section: Section, size: int, budget: int) -> str:
    """Why no notes are read from a section of the right name, or "".

    Args:
        section: one named ``.note.stapsdt``.
        size: of the file, in bytes.
        budget: how many of them no section before has taken.
    """
    if section.type != SHT_NOTE:
        return f"its type is {section.type}, SHT_NOTE ({SHT_NOTE}) expected"
    if section.flags & SHF_COMPRESSED:
        return "it is compressed"
    end = section.offset + section.size
    if end > size:
        return f"truncated: it ends at {end:#x}, the file has {size:#x} bytes"
    if section.size > budget:
        return "it overlaps others of that name"
    return ""


class Sites:
    """Makes sites of the notes of one file."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._mask = (1 << file.bits) - 1
        base = file.section(BASE_SECTION)
        self._base = None if base is None else base.address
        self._useless = why_useless(file)
        self._semaphores = {0: 0}  # address -> offset in the file, 0 where there is none
        self._complaints: list[str] = []
        self._complaint_count = 0

    def make(self, note: Note) -> Site:
        """Where a note's site is in the file, with the prelink adjustment."""
        address, semaphore = note.location, note.semaphore
        if note.base and self._base is not None and note.base != self._base:
            moved = self._base - note.base
            # 0 means "none" and "removed by the linker"; prelink does not move that.
            address = address and address + moved & self._mask
            semaphore = semaphore and semaphore + moved & self._mask
        offset = dead = None
        if address and self._useless is None:
            offset = self._file.offset_of(address, executable=True)
        if offset is None:
            dead = self._why_dead(address)
        semaphore_offset = self._semaphores.get(semaphore)
        if semaphore_offset is None:
            semaphore_offset = self._semaphore(semaphore, note)
        return Site(address, offset, note.base, semaphore, semaphore_offset, note.args, dead)

    def warnings(self) -> list[str]:
        """What was wrong with semaphores, one line each."""
        more = self._complaint_count - len(self._complaints)
        if not more:
            return self._complaints
        return [*self._complaints, f"{self._file.path}: {more} more semaphores cannot be used"]

    def _why_dead(self, address: int) -> str:
        if self._useless is not None:
            return self._useless
        if not address:
            return "its address is 0: the linker removed the code it stood in"
        if self._file.offset_of(address, executable=False) is None:
            return f"address {address:#x} is in no segment loaded from the file"
        return f"address {address:#x} is not in an executable segment"

    def _semaphore(self, address: int, note: Note) -> int:
        # The kernel counts in private writable mappings of the file only (valid_ref_ctr_vma() of
        # kernel/events/uprobes.c), so neither .bss nor read-only data will do.
        file = self._file
        found = file.offset_of(address, executable=False, writable=True)
        if not found and self._useless is None:
            reason = "is in no segment loaded from the file"
            if file.offset_of(address, executable=False) is not None:
                reason = "is not writable"
            name = excerpt(f"{note.provider}:{note.name}")
            self._complaint_count += 1
            if self._complaint_count <= MAX_WARNINGS:
                self._complaints.append(
                    f"{file.path}: semaphore {address:#x} of {name} {reason}:"
                    " it cannot be raised, and a program that tests it will not reach the probe"
                )
        self._semaphores[address] = found or 0
        return found or 0


def why_useless(file: ElfFile) -> str | None:
    """Why no site of a whole file can be traced, or None."""
    if file.type == ET_REL:
        return "a relocatable object: it has no addresses before it is linked"
    code = [one.type for one in file.sections if one.flags & SHF_EXECINSTR]
    if code and all(kind == SHT_NOBITS for kind in code):
        return "separate debug information: the code is in the file this was made from"
    return None
