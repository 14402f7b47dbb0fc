"""The probes of a file: its notes, resolved to file offsets and grouped by name.

A note has link-time addresses. If prelink(8) moved the file after linking, ``.stapsdt.base`` has
moved with it, but the note, which is not loaded, is unchanged. The difference between the section's
address and the note's ``base`` must be added to location and semaphore (the SystemTap wiki,
"UserSpaceProbeImplementation"). Sites and semaphores also have file offsets, because the kernel's
uprobes take those.

A bad site does not hide others: a site that cannot be traced has the reason in ``dead``, damage in
a section is a warning, and only a file that cannot be read at all is an error.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

from usdt.base.collector import without_collector
from usdt.base.frozen import frozen
from usdt.base.text import plural
from usdt.elf.file import MAX_CONTENTS, ElfFile
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
MAX_WARNINGS = 16  # per kind and file; the rest are counted


@frozen
class Site:
    """A place in the code where a probe fires.

    Attributes:
        address: link-time address of the probe's nop, after prelink adjustment.
        offset: file offset of the nop, or None for a dead site.
        base: address of ``.stapsdt.base`` in the note.
        semaphore: link-time address of the activation counter, adjusted; 0 for none.
        semaphore_offset: file offset of the counter; 0 for none. Also 0 if tracers cannot write it;
            then ``semaphore`` is not 0, and the file's warnings say why.
        args: the operands as text, "" for none.
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
        # Written out, as that of Note.
        put = object.__setattr__
        put(self, "address", address)
        put(self, "offset", offset)
        put(self, "base", base)
        put(self, "semaphore", semaphore)
        put(self, "semaphore_offset", semaphore_offset)
        put(self, "args", args)
        put(self, "dead", dead)

    def to_json(self, operands: Iterable[Operand]) -> dict[str, Any]:
        """Return the JSON object of ``usdt list --json``; only a dead site has the key "dead"."""
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
    """A probe of a file: all sites of one ``provider:name``, in the order of the notes.

    Attributes:
        path: the file's name, for messages and output.
        provider, name: from the notes; either may be empty.
        machine: the CPU, as ElfFile.machine_name gives it.
        bits, byteorder: the file's class and byte order.
        sites: at least one; includes dead sites.
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
        """Return the operand of each argument at a site."""
        from usdt.probes.argspec import parse_arguments  # noqa: PLC0415 - a bare listing does without

        return parse_arguments(site.args, self.machine)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``usdt list --json``."""
        return {
            "path": self.path,
            "provider": self.provider,
            "name": self.name,
            "machine": self.machine,
            "sites": [site.to_json(self.operands(site)) for site in self.sites],
        }


@frozen
class FileProbes:
    """The probes of one file in the order of their first notes, and warnings about its damage.

    If the files of processes were searched, ``containers`` are those whose processes have mapped
    it. ``open_path`` is the path that was opened, if it is not ``path``.
    """

    path: str
    probes: tuple[Probe, ...]
    warnings: tuple[str, ...]
    containers: tuple[str, ...] = ()
    open_path: str | None = None

    def elf(self) -> ElfFile:
        """Open the file again.

        Raises:
            TargetError: it is gone.
        """
        return ElfFile(self.open_path or self.path, name=self.path)


def read_probes(
    path: str | os.PathLike[str], *, open_path: str | os.PathLike[str] | None = None
) -> FileProbes:
    """Read all probes of an ELF file, of any CPU, class and byte order.

    Args:
        path: the file; this name is shown in messages and output.
        open_path: the path to open instead, for example ``/proc/PID/map_files/…``.

    Raises:
        ElfError: the file is not an ELF file, or too damaged to be searched.
        TargetError: the file cannot be opened.
    """
    shown = str(path)
    other = None if open_path is None else str(open_path)
    with ElfFile(path if open_path is None else open_path, name=shown) as file:
        sections = file.sections_named(SECTION)
        if not sections:
            return FileProbes(shown, (), (), open_path=other)
        warnings: list[str] = []
        large = sum(section.size for section in sections) > LARGE
        with without_collector() if large else contextlib.nullcontext():
            groups = grouped(file, sections, warnings)
            probes = tuple(
                Probe(shown, *key, file.machine_name, file.bits, file.byteorder, tuple(group))
                for key, group in groups.items()
            )
    return FileProbes(shown, probes, tuple(warnings), open_path=other)


def grouped(
    file: ElfFile, sections: tuple[Section, ...], warnings: list[str]
) -> dict[tuple[str, str], list[Site]]:
    """Return sites by provider and name, in the order of the notes; add to ``warnings``."""
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


def notes_of(file: ElfFile, sections: tuple[Section, ...], warnings: list[str]) -> Iterator[Note]:
    """Yield the notes of all readable sections; add a warning for each of the others."""
    budget = file.size  # bounds the work if many sections overlap
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
    """Return why a ``.note.stapsdt`` section cannot be read, or "".

    Args:
        section: the section.
        size: size of the file in bytes.
        budget: bytes of the file that earlier sections have not used up.
    """
    if section.type != SHT_NOTE:
        return f"its type is {section.type}, expected SHT_NOTE ({SHT_NOTE})"
    if section.flags & SHF_COMPRESSED:
        return "it is compressed"
    end = section.offset + section.size
    if end > size:
        return f"truncated: it ends at {end:#x}, the file has {size:#x} bytes"
    if section.size > MAX_CONTENTS:
        return f"it has {section.size} bytes, at most {MAX_CONTENTS} are read"
    if section.size > budget:
        return "it overlaps others of that name"
    return ""


class Sites:
    """Turns the notes of one file into sites."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._mask = (1 << file.bits) - 1
        base = file.section(BASE_SECTION)
        self._base = None if base is None else base.address
        self._useless = why_useless(file)
        self._semaphores = {0: 0}  # address -> file offset, 0 for none
        self._complaints: list[str] = []
        self._complaint_count = 0

    def make(self, note: Note) -> Site:
        """Return the site of a note, with the prelink adjustment."""
        address, semaphore = note.location, note.semaphore
        if note.base and self._base is not None and note.base != self._base:
            moved = self._base - note.base
            # 0 means "none" or "removed by the linker" and is not adjusted.
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
        """Return the warnings about semaphores, one line each."""
        more = self._complaint_count - len(self._complaints)
        if not more:
            return self._complaints
        others = plural(more, "more semaphore")
        return [*self._complaints, f"{self._file.path}: {others} cannot be used"]

    def _why_dead(self, address: int) -> str:
        if self._useless is not None:
            return self._useless
        if not address:
            return "its address is 0: the linker removed the code around it"
        if self._file.offset_of(address, executable=False) is None:
            return f"address {address:#x} is in no segment loaded from the file"
        return f"address {address:#x} is not in an executable segment"

    def _semaphore(self, address: int, note: Note) -> int:
        # The kernel increments counters only in private writable mappings of the file
        # (valid_ref_ctr_vma(), kernel/events/uprobes.c), not in .bss or read-only data.
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
                    " it cannot be incremented; a program that tests it does not reach the probe"
                )
        self._semaphores[address] = found or 0
        return found or 0


def why_useless(file: ElfFile) -> str | None:
    """Return why no site of a file can be traced, or None."""
    if file.type == ET_REL:
        return "a relocatable object: it has no addresses before it is linked"
    code = [one.type for one in file.sections if one.flags & SHF_EXECINSTR]
    if code and all(kind == SHT_NOBITS for kind in code):
        return "separate debug information: the code is in the original file"
    return None
